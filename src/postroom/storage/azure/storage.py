"""The distributed engine: Azure Tables, Queues and Blobs of one storage account.

What the service cannot take is refused before it is sent (limits.py). What it refuses because it
is busy is tried again for as long as the caller's patience lasts (azure_patience.py).
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import aiohttp
from azure.core.credentials_async import AsyncTokenCredential

from postroom.clock import Clock
from postroom.storage import port
from postroom.storage.azure.account import Account, check_prefix
from postroom.storage.azure.blobs import AzureBlobs
from postroom.storage.azure.http import (
    HttpClient,
    Identity,
    SharedAccess,
    SharedKey,
    Signer,
    open_session,
)
from postroom.storage.azure.queues import AzureQueues
from postroom.storage.azure.retry import TIMEOUT_S, RetryPolicy
from postroom.storage.azure.sdk import SdkCaller, client_options, credential_of
from postroom.storage.azure.tables import AzureTables, TableMissing


class AzureStorage:
    """One account, opened. Close it in the event loop that opened it."""

    def __init__(
        self,
        account: Account,
        session: aiohttp.ClientSession,
        retry_policy: RetryPolicy,
        clock: Clock,
        *,
        prefix: str = "",
        page_names: int = port.BLOB_NAMES_MAX,
        identity: AsyncTokenCredential | None = None,
    ) -> None:
        options = client_options(session)
        credential, caller = credential_of(account, identity), SdkCaller(retry_policy)
        line = HttpClient(account, session, _signer(account, identity, clock), clock)
        self.tables = AzureTables(line, retry_policy, prefix)
        self.queues = AzureQueues(account, credential, caller, prefix, options)
        self.blobs = AzureBlobs(account, credential, caller, prefix, page_names, options)
        self._retry_policy = retry_policy
        self._opened = AsyncExitStack()

    @classmethod
    async def open(
        cls,
        account: Account,
        clock: Clock,
        *,
        prefix: str = "",
        create: bool = True,
        timeout_s: float = TIMEOUT_S,
        page_names: int = port.BLOB_NAMES_MAX,
        identity: AsyncTokenCredential | None = None,
    ) -> AzureStorage:
        """Unavailable, with a sentence, if the account cannot be used.

        `create` makes the tables, queues and container that are absent.
        `prefix` is put before every name. `timeout_s` bounds a call with all its tries, and
        `page_names` a page of blob names.
        `identity` vouches for us where the account has no key; default is what this machine has.
        """
        async with AsyncExitStack() as stack:
            if identity is None and not account.key and not account.signature:
                identity = await stack.enter_async_context(_identity_of_this_machine())
            session = await stack.enter_async_context(open_session(account))
            storage = cls(
                account,
                session,
                RetryPolicy(clock, timeout_s),
                clock,
                prefix=check_prefix(prefix),
                page_names=page_names,
                identity=identity,
            )
            await (storage._make() if create else storage._look())
            storage._opened = stack.pop_all()
        return storage

    @property
    def troubles(self) -> port.Troubles:
        return self._retry_policy.troubles

    async def close(self) -> None:
        await self._opened.aclose()

    async def _look(self) -> None:
        try:
            await self.tables.get("service", "secret", "installation")
        except TableMissing:
            raise port.Unavailable(
                "There is no Postroom storage in this account, or not with this prefix. "
                "Set POSTROOM_STORAGE and POSTROOM_AZURE_PREFIX."
            ) from None

    async def _make(self) -> None:
        try:
            async with asyncio.TaskGroup() as making:
                for part in (self.tables, self.queues, self.blobs):
                    making.create_task(part.make())
        except ExceptionGroup as troubles:
            raise troubles.exceptions[0] from None  # one sentence will do


def _signer(account: Account, identity: AsyncTokenCredential | None, clock: Clock) -> Signer:
    if account.key:
        return SharedKey(account.name, account.key)
    if account.signature or identity is None:
        return SharedAccess()
    return Identity(identity, clock)


def _identity_of_this_machine() -> AsyncTokenCredential:
    """A managed identity, or what the environment or a developer's login offers."""
    from azure.identity.aio import DefaultAzureCredential

    return DefaultAzureCredential()
