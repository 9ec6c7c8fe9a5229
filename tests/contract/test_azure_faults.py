"""What Azure may do to a request, and what comes of it: nothing lost, nothing done twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any

import pytest
import pytest_asyncio

from postroom.clock import WallClock
from postroom.records.names import STORAGE_NAMES
from postroom.storage.azure.account import Account, parse_account
from postroom.storage.azure.http import open_session
from postroom.storage.azure.retry import READ_TRIES, RetryPolicy
from postroom.storage.azure.storage import AzureStorage
from postroom.storage.port import Claim, Insert, KeysWithin, Storage, Unavailable
from postroom_bench.ports import held_port
from tests.clock import MovableClock
from tests.contract.engines import all_rows
from tests.contract.faulty_azure import Fault, FaultyAzure, faulty_azure

TABLE, QUEUE = "message", "azuremailqueue"
TIMEOUT_S = 60.0
SOON_S = 3.0  # many times what a request takes here, on a busy machine too

Read = Callable[[Storage], Awaitable[Any]]
READS: dict[str, Read] = {
    "get": lambda storage: storage.tables.get(TABLE, "p", "k"),
    "scan": lambda storage: all_rows(storage.tables, TABLE, KeysWithin("p")),
    "length": lambda storage: storage.queues.length(QUEUE),
    "peek": lambda storage: storage.queues.peek(QUEUE),
    "get a blob": lambda storage: storage.blobs.get("a.htm"),
    "list blobs": lambda storage: storage.blobs.list(),
}


class Write:
    """A call that changes something, and how to see whether it did."""

    def __init__(
        self,
        act: Callable[[Storage, Claim, str], Awaitable[Any]],
        done: Callable[[Storage], Awaitable[bool]],
    ) -> None:
        self.act = act
        self.done = done


async def _is_row(storage: Storage, key: str) -> bool:
    return await storage.tables.get(TABLE, "p", key) is not None


async def _is_hidden(storage: Storage) -> bool:
    return await storage.queues.peek(QUEUE) == []


async def _length(storage: Storage) -> int:
    return await storage.queues.length(QUEUE)


async def _row_n(storage: Storage) -> Any:
    row = await storage.tables.get(TABLE, "p", "old")
    return None if row is None else row.properties["n"]


async def _put_done(storage: Storage) -> bool:
    return await _length(storage) == 3


async def _claim_done(storage: Storage) -> bool:
    return await _is_hidden(storage)


async def _complete_done(storage: Storage) -> bool:
    return await _length(storage) == 1


async def _release_done(storage: Storage) -> bool:
    return len(await storage.queues.peek(QUEUE)) == 2


async def _inserted(storage: Storage) -> bool:
    return await _is_row(storage, "new")


async def _upserted(storage: Storage) -> bool:
    return bool(await _row_n(storage) == 2)


async def _deleted(storage: Storage) -> bool:
    return await _row_n(storage) is None


async def _blob_put(storage: Storage) -> bool:
    return await storage.blobs.get("new.htm") == b"new"


async def _blob_deleted(storage: Storage) -> bool:
    return await storage.blobs.get("old.htm") is None


WRITES: dict[str, Write] = {
    "insert": Write(lambda s, _c, _e: s.tables.insert(TABLE, "p", "new", {}), _inserted),
    "upsert": Write(lambda s, _c, _e: s.tables.upsert(TABLE, "p", "old", {"n": 2}), _upserted),
    "replace": Write(
        lambda s, _c, etag: s.tables.replace(TABLE, "p", "old", {"n": 2}, etag), _upserted
    ),
    "delete": Write(lambda s, _c, _e: s.tables.delete(TABLE, "p", "old"), _deleted),
    "batch": Write(
        lambda s, _c, _e: s.tables.batch(TABLE, "p", [Insert("new", {}), Insert("other", {})]),
        _inserted,
    ),
    "put": Write(lambda s, _c, _e: s.queues.put(QUEUE, "third"), _put_done),
    "claim": Write(lambda s, _c, _e: s.queues.claim(QUEUE, limit=9, lease_s=30), _claim_done),
    "complete": Write(lambda s, claim, _e: s.queues.complete(claim), _complete_done),
    "release": Write(lambda s, claim, _e: s.queues.release(claim), _release_done),
    "put a blob": Write(lambda s, _c, _e: s.blobs.put("new.htm", b"new"), _blob_put),
    "delete a blob": Write(lambda s, _c, _e: s.blobs.delete("old.htm"), _blob_deleted),
}
each_read = pytest.mark.parametrize("read", READS.values(), ids=READS)
each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)

Opened = tuple[AzureStorage, FaultyAzure, Account]


@pytest_asyncio.fixture
async def opened(clock: MovableClock) -> AsyncIterator[Opened]:
    """A storage, what stands between it and Azurite, and the account."""
    async with faulty_azure() as (azure, account):
        storage = await AzureStorage.open(
            account, clock, STORAGE_NAMES, prefix=f"f{token_hex(6)}", timeout_s=TIMEOUT_S
        )
        try:
            yield storage, azure, account
        finally:
            await storage.close()


@asynccontextmanager
async def _hasty(opened: Opened, timeout_s: float) -> AsyncIterator[AzureStorage]:
    """Real time is short for a call, but not for all that is made before the first."""
    account, clock, prefix = opened[2], WallClock(), f"f{token_hex(6)}"
    await (await AzureStorage.open(account, clock, STORAGE_NAMES, prefix=prefix)).close()
    async with open_session(account) as session:
        yield AzureStorage(
            account, session, RetryPolicy(clock, timeout_s), clock, STORAGE_NAMES, prefix=prefix
        )


async def filled(storage: Storage) -> tuple[Claim, str]:
    """With a row, two items (one of them claimed) and a blob; the claim and the row's etag."""
    etag = await storage.tables.insert(TABLE, "p", "old", {"n": 1})
    await storage.queues.put(QUEUE, "first", "second")
    [claim] = await storage.queues.claim(QUEUE, limit=1, lease_s=300)
    await storage.blobs.put("old.htm", b"old")
    return claim, etag


# --- Refused: everything is tried again -------------------------------------------------------


@each_read
@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.THROTTLED])
async def test_a_read_is_asked_again_when_the_service_is_busy(
    opened: Opened, read: Read, fault: Fault
) -> None:
    storage, azure, _ = opened
    await filled(storage)
    calm = await read(storage)
    azure.expect(fault, fault)
    assert await read(storage) == calm
    assert storage.troubles.refused == 2


@each_write
@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.THROTTLED])
async def test_a_write_is_asked_again_when_the_service_is_busy(
    opened: Opened, write: Write, fault: Fault
) -> None:
    storage, azure, _ = opened
    claim, etag = await filled(storage)
    azure.expect(fault, fault)
    await write.act(storage, claim, etag)
    assert len(azure.seen) == 3
    assert await write.done(storage)


@each_write
async def test_a_service_busy_for_too_long_is_unavailable_and_nothing_changed(
    opened: Opened, clock: MovableClock, write: Write
) -> None:
    storage, azure, _ = opened
    claim, etag = await filled(storage)
    azure.expect(*[Fault.BUSY] * 200)
    began = clock.now()
    with pytest.raises(Unavailable, match="busy"):
        await write.act(storage, claim, etag)
    azure.expect()
    assert (clock.now() - began).total_seconds() <= TIMEOUT_S
    assert not await write.done(storage)


async def test_pauses_grow_and_what_the_service_asks_for_is_kept(
    opened: Opened, clock: MovableClock
) -> None:
    storage, azure, _ = opened
    pauses: list[float] = []
    clock.followers.append(pauses.append)
    azure.expect(*[Fault.BUSY] * 5, Fault.THROTTLED)
    await storage.tables.upsert(TABLE, "p", "k", {})
    assert pauses[:5] == sorted(pauses[:5])
    assert all(0.05 * 2**turn <= pause <= 0.1 * 2**turn for turn, pause in enumerate(pauses[:5]))
    assert pauses[5] == 17.0


async def test_a_service_that_cannot_be_reached_is_unavailable(clock: MovableClock) -> None:
    with held_port() as port:
        account = parse_account(f"emulator?blob={port}&queue={port}&table={port}")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await AzureStorage.open(account, clock, STORAGE_NAMES, timeout_s=5)


@pytest.mark.parametrize("call", [*READS.values(), WRITES["put"].act], ids=[*READS, "put"])
async def test_refused_credentials_are_reported_at_once(
    opened: Opened, call: Callable[..., Awaitable[Any]]
) -> None:
    storage, azure, _ = opened
    azure.expect(Fault.FORBIDDEN)
    needs_more = call is WRITES["put"].act
    with pytest.raises(Unavailable, match="credentials"):
        await (call(storage, None, "") if needs_more else call(storage))
    assert len(azure.seen) == 1


# --- In doubt: only what reads is tried again -------------------------------------------------

IN_DOUBT = [Fault.RESET, Fault.LOST, Fault.INNER, Fault.GATEWAY]


@each_read
@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_a_read_is_asked_again_when_its_answer_is_lost(
    opened: Opened, read: Read, fault: Fault
) -> None:
    storage, azure, _ = opened
    await filled(storage)
    calm = await read(storage)
    azure.expect(fault, fault)
    assert await read(storage) == calm


@each_write
async def test_a_write_done_whose_answer_is_lost_is_in_doubt_and_done_once(
    opened: Opened, write: Write
) -> None:
    storage, azure, _ = opened
    claim, etag = await filled(storage)
    azure.expect(Fault.LOST)
    with pytest.raises(Unavailable, match="may have been done"):
        await write.act(storage, claim, etag)
    assert len(azure.seen) == 1, "sent again, it would conflict with itself or be done twice"
    assert await write.done(storage)


@each_write
@pytest.mark.parametrize("fault", [Fault.RESET, Fault.INNER, Fault.GATEWAY])
async def test_a_write_that_may_have_been_done_is_not_sent_again(
    opened: Opened, write: Write, fault: Fault
) -> None:
    storage, azure, _ = opened
    claim, etag = await filled(storage)
    azure.expect(fault)
    with pytest.raises(Unavailable, match="may have been done"):
        await write.act(storage, claim, etag)
    assert len(azure.seen) == 1


async def test_a_late_answer_to_a_write_is_unavailable_in_time(opened: Opened) -> None:
    _, azure, _ = opened
    async with _hasty(opened, SOON_S) as storage:
        azure.expect(Fault.HANGS)
        with pytest.raises(Unavailable, match="may have been done"):
            await storage.tables.insert(TABLE, "p", "k", {})
        assert len(azure.seen) == 1


async def test_a_read_that_hangs_is_asked_again(opened: Opened) -> None:
    _, azure, _ = opened
    async with _hasty(opened, SOON_S * READ_TRIES) as storage:
        azure.expect(Fault.HANGS)
        assert await storage.tables.get(TABLE, "p", "k") is None
        assert len(azure.seen) == 2


async def test_a_read_that_always_hangs_is_unavailable_in_time(opened: Opened) -> None:
    _, azure, _ = opened
    async with _hasty(opened, 0.3) as storage:
        azure.expect(*[Fault.HANGS] * 9)
        with pytest.raises(Unavailable):
            await storage.tables.get(TABLE, "p", "k")


# --- Pages ------------------------------------------------------------------------------------


async def test_an_empty_page_before_the_row_is_passed_over(opened: Opened) -> None:
    storage, azure, _ = opened
    etag = await storage.tables.insert(TABLE, "p", "k", {"n": 1})
    azure.expect(Fault.EMPTY_PAGE)
    row = await storage.tables.get(TABLE, "p", "k")
    assert row is not None
    assert row.etag == etag
    azure.expect(Fault.EMPTY_PAGE)
    assert await all_rows(storage.tables, TABLE, KeysWithin("p")) == [row]


async def test_a_forged_continuation_leads_to_no_row_out_of_range(opened: Opened) -> None:
    storage, _, _ = opened
    for partition in ("p", "q"):
        await storage.tables.batch(TABLE, partition, [Insert(f"k{n}", {}) for n in range(4)])
    page = await storage.tables.scan(TABLE, KeysWithin("q"), limit=2)
    assert page.next is not None
    forged = await storage.tables.scan(TABLE, KeysWithin("p"), after=page.next)
    assert all(row.partition == "p" for row in forged.rows)
