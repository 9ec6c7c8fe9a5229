"""Shared by queues and blobs: the SDK's clients on our connections, and what its errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.core.pipeline.transport import AioHttpTransport

from postroom.storage.azure.account import Account
from postroom.storage.azure.retry import (
    RequestInDoubt,
    RetryPolicy,
    UnexpectedAnswer,
    as_trouble,
    check_answer,
)
from postroom.storage.port import Unavailable

VERSION = "2025-11-05"  # the newest that Azurite 3.35 supports

Credential = AzureNamedKeyCredential | AzureSasCredential | AsyncTokenCredential
T = TypeVar("T")


def credential_of(account: Account, identity: AsyncTokenCredential | None) -> Credential:
    if account.key:
        return AzureNamedKeyCredential(account.name, account.key)
    if account.signature:
        return AzureSasCredential(account.signature)
    if identity is None:
        raise ValueError("an account without key and signature needs an identity")
    return identity


class SdkCaller:
    """Calls of the SDK with our retries, and the options of its clients."""

    def __init__(
        self, retry_policy: RetryPolicy, session: aiohttp.ClientSession, credential: Credential
    ) -> None:
        self._retry_policy = retry_policy
        # The SDK sends once and leaves retries to us. Its own rules would repeat any request whose
        # connection was lost, and put an item twice.
        self.client_options: dict[str, Any] = {
            "credential": credential,
            "api_version": VERSION,
            "transport": AioHttpTransport(session=session, session_owner=False),
            "retry_total": 0,
        }

    async def read(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._retry_policy.call(lambda: _once(call), reads=True)

    async def write(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._retry_policy.call(lambda: _once(call), reads=False)

    async def create(self, call: Callable[[], Awaitable[object]]) -> None:
        """Create a queue or container, unless it exists."""

        async def create() -> None:
            with contextlib.suppress(ResourceExistsError):
                await call()

        await self.read(create)  # safe to retry, like a read


async def _once(call: Callable[[], Awaitable[T]]) -> T:
    try:
        return await call()
    except ClientAuthenticationError as error:
        raise Unavailable(f"Azure Storage refuses our credentials: {error.message}") from error
    except HttpResponseError as error:
        code = getattr(error, "error_code", "") or ""
        code = str(getattr(code, "value", code))
        headers = getattr(error.response, "headers", {})
        check_answer(error.status_code or 0, code, headers.get("Retry-After"))
        raise UnexpectedAnswer(error.status_code, code) from error
    except (ServiceRequestError, ServiceResponseError) as error:
        # The SDK raises ServiceRequestError, "never sent", even if the connection was lost after
        # sending; the cause says which. It may contain the URL with the signature: never log it.
        raise as_trouble(error.__cause__ or error) from None
    except AzureError as error:
        raise RequestInDoubt(f"unexpected answer ({type(error).__name__})") from None
