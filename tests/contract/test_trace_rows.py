"""Traces on every engine: the newest first over levels and hours, page by page, and expired."""

from __future__ import annotations

from datetime import timedelta

from postroom.domain.trace_entry import TraceEntry, TraceLevel
from postroom.records import traces
from postroom.records.rows import all_rows
from postroom.records.traces import KeyedTrace, TraceFilter
from postroom.storage.port import KeysAcross, Tables
from tests.clock import START

REF = "638888888888888888"


def a_trace(number: int) -> KeyedTrace:
    """One every 25 minutes, of all levels in turn; every second one is about a message."""
    at = START - timedelta(minutes=25 * number)
    entry = TraceEntry(
        at=at,
        level=list(TraceLevel)[number % 4],
        role="sender",
        instance="host.1",
        event="brand_new",
        words=f"Number {number}.",
        ref=REF if number % 2 else "",
    )
    return KeyedTrace(traces.trace_key(at, number, "host.1"), entry)


async def numbers(tables: Tables, wanted: TraceFilter) -> list[int]:
    found: list[int] = []
    before = ""
    for _page in range(20):
        page = await traces.read_page(tables, wanted, limit=4, before=before)
        found += [int(entry.words[7:-1]) for _key, entry in page.traces]
        if page.next is None:
            return found
        before = page.next
    raise AssertionError("the pages do not end")


async def test_traces_are_paged_filtered_and_expired(tables: Tables) -> None:
    written = [a_trace(number) for number in range(20)]
    for hours_ago in range(9):
        await traces.note_count(tables, "host.1", START - timedelta(hours=hours_ago), 3)
    await traces.write(tables, written)
    await traces.write(tables, written)  # a write whose answer was lost is repeated
    everything = TraceFilter(level=TraceLevel.DEBUG)
    assert await numbers(tables, everything) == list(range(20))
    assert await numbers(tables, TraceFilter(level=TraceLevel.ERROR)) == [3, 7, 11, 15, 19]
    assert await numbers(tables, TraceFilter(ref=REF)) == list(range(1, 20, 2))
    assert await numbers(tables, TraceFilter(text="number 13")) == [13]
    since = TraceFilter(level=TraceLevel.DEBUG, since=START - timedelta(minutes=130))
    assert await numbers(tables, since) == list(range(6))
    await traces.expire(tables, START, keep_days=3 / 24, rows_max=10**6)
    assert await numbers(tables, everything) == list(range(8))  # since the hour of 06:00
    await traces.expire(tables, START, keep_days=3, rows_max=0)
    left = [row async for row in all_rows(tables, traces.TABLE, KeysAcross())]
    assert {row.partition.split("-")[0] for row in left} == {"counts", "debug"}
