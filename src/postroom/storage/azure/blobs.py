"""Blobs on Azure, through the SDK.

A large blob is uploaded in blocks and becomes visible, as a whole, when its block list is written.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from azure.storage.blob.aio import ContainerClient

from postroom.storage import port, validation
from postroom.storage.azure.retry import UnexpectedAnswer
from postroom.storage.azure.sdk import SdkCaller

BLOCK_BYTES = 1024 * 1024  # more at once would block the event loop

T = TypeVar("T")


class AzureBlobs:
    def __init__(self, url: str, caller: SdkCaller, container: str, page_names: int) -> None:
        self._caller = caller
        self._page_names = page_names
        self._client = ContainerClient(
            url,
            container,
            max_single_put_size=BLOCK_BYTES,
            max_block_size=BLOCK_BYTES,
            max_single_get_size=port.BLOB_BYTES_MAX,
            **caller.client_options,
        )

    async def create_missing(self) -> None:
        await self._caller.create(self._client.create_container)

    async def put(self, name: str, content: bytes) -> None:
        validation.check_blob(name, content)
        copy = bytes(content)
        upload = partial(self._client.upload_blob, name, copy, overwrite=True)
        await self._answer(self._caller.write(upload))

    async def get(self, name: str) -> bytes | None:
        validation.check_blob(name)

        async def download() -> bytes:
            return await (await self._client.download_blob(name)).readall()

        return await self._answer(self._caller.read(download))

    async def delete(self, name: str) -> None:
        validation.check_blob(name)
        await self._answer(self._caller.write(lambda: self._client.delete_blob(name)))

    async def list(
        self, prefix: str = "", *, after: str | None = None
    ) -> tuple[builtins.list[str], str | None]:
        async def page() -> tuple[builtins.list[str], str | None]:
            pages = self._client.list_blob_names(
                name_starts_with=prefix or None, results_per_page=self._page_names
            ).by_page(after)
            names = [name async for name in await anext(pages)]
            return names, getattr(pages, "continuation_token", None) or None

        return await self._answer(self._caller.read(page)) or ([], None)

    async def _answer(self, call: Awaitable[T]) -> T | None:
        """Return the answer of the call; None if there is no such blob."""
        try:
            return await call
        except UnexpectedAnswer as answer:
            if answer.code == "BlobNotFound":
                return None
            raise
