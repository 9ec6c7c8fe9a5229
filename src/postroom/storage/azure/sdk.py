"""Shared by queues and blobs: the SDK's clients on our connections, and what its errors mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.core.pipeline.transport import AioHttpTransport

from postroom.storage.azure.account import Account
from postroom.storage.azure.retry import RequestInDoubt, RetryPolicy, as_trouble, check_answer
from postroom.storage.port import Unavailable

VERSION = "2025-11-05"  # the newest that Azurite 3.35 supports

Credential = AzureNamedKeyCredential | AzureSasCredential | AsyncTokenCredential
T = TypeVar("T")


def client_options(session: aiohttp.ClientSession) -> dict[str, Any]:
    """Make the SDK send once and leave retries to us.

    Its own rules would repeat any request whose connection was lost, and put an item twice.
    """
    return {
        "api_version": VERSION,
        "transport": AioHttpTransport(session=session, session_owner=False),
        "retry_total": 0,
    }


def credential_of(account: Account, identity: AsyncTokenCredential | None) -> Credential:
    if account.key:
        return AzureNamedKeyCredential(account.name, account.key)
    if account.signature:
        return AzureSasCredential(account.signature)
    if identity is None:
        raise ValueError("an account without key and signature needs an identity")
    return identity


class SdkCaller:
    """Calls of the SDK with our retries.

    Errors about the object itself (not found, other version) are raised as the SDK raised them.
    """

    def __init__(self, retry_policy: RetryPolicy) -> None:
        self._retry_policy = retry_policy

    async def read(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._retry_policy.call(lambda: _once(call), reads=True)

    async def write(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._retry_policy.call(lambda: _once(call), reads=False)


async def _once(call: Callable[[], Awaitable[T]]) -> T:
    try:
        return await call()
    except ClientAuthenticationError as error:
        raise Unavailable(f"Azure Storage refuses our credentials: {error.message}") from error
    except HttpResponseError as error:
        headers = getattr(error.response, "headers", {})
        check_answer(error.status_code or 0, code_of(error), headers.get("Retry-After"))
        raise
    except (ServiceRequestError, ServiceResponseError) as error:
        # The SDK raises ServiceRequestError, "never sent", even if the connection was lost after
        # sending; the cause says which. It may contain the URL with the signature: never log it.
        raise as_trouble(error.__cause__ or error) from None
    except AzureError as error:
        raise RequestInDoubt(f"unexpected answer ({type(error).__name__})") from None


def code_of(error: HttpResponseError) -> str:
    """The service's error code, such as `PopReceiptMismatch`."""
    code = getattr(error, "error_code", "") or ""
    return str(getattr(code, "value", code))


def unexpected(error: HttpResponseError) -> Unavailable:
    return Unavailable(f"Azure Storage: unexpected answer ({error.status_code} {code_of(error)}).")
