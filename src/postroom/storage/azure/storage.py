"""The distributed engine: Azure Tables, Queues and Blobs of one storage account.

Calls that break a limit of the service are rejected before they are sent (validation.py). Requests
that the service refuses because it is busy are retried until the timeout (retry.py).
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
from postroom.storage.azure.http import HttpClient, Identity, SharedKey, Signer, open_session
from postroom.storage.azure.queues import AzureQueues
from postroom.storage.azure.retry import TIMEOUT_S, RetryPolicy
from postroom.storage.azure.sdk import SdkCaller, credential_of
from postroom.storage.azure.tables import AzureTables


class AzureStorage:
    """One account, opened. Close it in the event loop that opened it."""

    def __init__(
        self,
        account: Account,
        session: aiohttp.ClientSession,
        retry_policy: RetryPolicy,
        clock: Clock,
        names: port.StorageNames,
        *,
        prefix: str = "",
        page_names: int = port.BLOB_NAMES_MAX,
        identity: AsyncTokenCredential | None = None,
    ) -> None:
        caller = SdkCaller(retry_policy, session, credential_of(account, identity))
        client = HttpClient(account, session, _signer(account, identity, clock), clock)
        container = prefix + names.container
        self.tables = AzureTables(client, retry_policy, names.tables, prefix)
        self.queues = AzureQueues(account.queue_url, caller, names.queues, prefix)
        self.blobs = AzureBlobs(account.blob_url, caller, container, page_names)
        self._retry_policy = retry_policy
        self._opened = AsyncExitStack()

    @classmethod
    async def open(
        cls,
        account: Account,
        clock: Clock,
        names: port.StorageNames,
        *,
        prefix: str = "",
        create: bool = True,
        timeout_s: float = TIMEOUT_S,
        page_names: int = port.BLOB_NAMES_MAX,
        identity: AsyncTokenCredential | None = None,
    ) -> AzureStorage:
        """Open the account; Unavailable, with a reason, if it cannot be used.

        `create` creates missing tables, queues and the container; `prefix` is put before every
        name. `timeout_s` limits a call with all its attempts, `page_names` a page of blob names.
        `identity` is used if the account has neither key nor signature; default: this machine's.
        """
        async with AsyncExitStack() as stack:
            if identity is None and not account.key and not account.signature:
                from azure.identity.aio import DefaultAzureCredential  # slow, and rarely needed

                identity = await stack.enter_async_context(DefaultAzureCredential())
            session = await stack.enter_async_context(open_session(account))
            storage = cls(
                account,
                session,
                RetryPolicy(clock, timeout_s),
                clock,
                names,
                prefix=check_prefix(prefix),
                page_names=page_names,
                identity=identity,
            )
            if create:
                await storage._create_missing()
            else:
                await storage.tables.check_exists()
            storage._opened = stack.pop_all()
        return storage

    @property
    def troubles(self) -> port.Troubles:
        return self._retry_policy.troubles

    async def close(self) -> None:
        await self._opened.aclose()

    async def _create_missing(self) -> None:
        try:
            async with asyncio.TaskGroup() as creating:
                for part in (self.tables, self.queues, self.blobs):
                    creating.create_task(part.create_missing())
        except ExceptionGroup as troubles:
            raise troubles.exceptions[0] from None  # one reason is enough


def _signer(account: Account, identity: AsyncTokenCredential | None, clock: Clock) -> Signer | None:
    if account.key:
        return SharedKey(account.name, account.key)
    if account.signature or identity is None:
        return None  # a shared access signature is part of the query
    return Identity(identity, clock)
