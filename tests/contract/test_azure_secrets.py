"""What proves who we are to Azure never shows, not even in a traceback somebody logs."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable

import pytest

from postroom.clock import WallClock
from postroom.records.names import MAIL_QUEUE, STORAGE_NAMES
from postroom.storage.azure.account import parse_account
from postroom.storage.azure.http import open_session
from postroom.storage.azure.retry import RetryPolicy
from postroom.storage.azure.storage import AzureStorage
from postroom.storage.port import Unavailable

SIGNATURE = "c2VjcmV0U2lnbmF0dXJl"
CALLS: dict[str, Callable[[AzureStorage], Awaitable[object]]] = {
    "table": lambda storage: storage.tables.upsert("service", "a", "b", {}),
    "queue": lambda storage: storage.queues.put(MAIL_QUEUE, "an item"),
    "blob": lambda storage: storage.blobs.put("a.txt", b""),
}


@pytest.mark.parametrize("part", CALLS)
async def test_a_signature_is_in_no_traceback(part: str) -> None:
    """It is in the URL of every request, which the HTTP client puts into its errors."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 hello there\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/contoso"
        account = parse_account(
            f"BlobEndpoint={url};QueueEndpoint={url};TableEndpoint={url};"
            f"SharedAccessSignature=sv=2020-12-06&sig={SIGNATURE}"
        )
        clock = WallClock()
        async with open_session(account) as session:
            storage = AzureStorage(account, session, RetryPolicy(clock, 5.0), clock, STORAGE_NAMES)
            with pytest.raises(Unavailable) as caught:
                await CALLS[part](storage)
    told = "".join(traceback.format_exception(caught.value))
    assert "the connection was lost; it may have been done" in told
    assert SIGNATURE not in told
