"""Traces in storage: newest first, filtered with bounded work, deleted by age and number."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
import pytest_asyncio

from postroom.domain.trace_entry import TraceEntry, TraceLevel, person_id
from postroom.records import traces
from postroom.records.names import TABLES
from postroom.records.rows import all_rows
from postroom.records.traces import KeyedTrace, TraceFilter
from postroom.storage.memory import MemoryTables
from postroom.storage.port import KeysAcross, KeysWithin, Page, Tables, Value
from tests.clock import START

REF, OTHER = "638888888888888888", "638888888888888889"
PERSON = person_id("6F32B03B-90ed41a9b8acc1310c67b66a")
LEVELS = [TraceLevel.INFO, TraceLevel.INFO, TraceLevel.WARNING, TraceLevel.ERROR, TraceLevel.DEBUG]


@pytest_asyncio.fixture
async def tables() -> Tables:
    return MemoryTables(TABLES)


def a_trace(number: int, **more: object) -> KeyedTrace:
    """One every 20 minutes, the newest first."""
    at = START - timedelta(minutes=20 * number)
    values: dict[str, object] = {
        "at": at,
        "level": LEVELS[number % 5],
        "role": "sender",
        "instance": "host.1",
        "event": "brand_new",
        "words": f"Number {number}.",
    }
    entry = TraceEntry(**values | more)  # type: ignore[arg-type]
    return KeyedTrace(traces.trace_key(at, number, entry.instance), entry)


async def read_all(
    tables: Tables, wanted: TraceFilter, *, limit: int = 7, scans: int = traces.SCANS_A_PAGE
) -> list[TraceEntry]:
    found: list[KeyedTrace] = []
    before = ""
    for _page in range(200):
        page = await traces.read_page(tables, wanted, limit=limit, before=before, scans=scans)
        found += page.traces
        if page.next is None:
            break
        assert page.next > before
        before = page.next
    else:
        raise AssertionError("the pages do not end")
    assert all(one.key < other.key for one, other in pairwise(found))
    return [each.entry for each in found]


@pytest.mark.parametrize(
    ("level", "count"), [("debug", 100), ("info", 80), ("warning", 40), ("error", 20)]
)
async def test_pages_show_each_trace_of_a_level_once_and_the_newest_first(
    tables: Tables, level: str, count: int
) -> None:
    await traces.write(tables, [a_trace(number) for number in range(100)])
    found = await read_all(tables, TraceFilter(level=TraceLevel(level)))
    assert len(found) == count
    assert [one.at for one in found] == sorted((one.at for one in found), reverse=True)


async def test_every_filter_finds_what_it_should(tables: Tables) -> None:
    await traces.write(tables, [a_trace(number) for number in range(50)])
    special = [
        a_trace(50, role="web", ref=REF, level=TraceLevel.INFO),
        a_trace(51, instance="host.2", ref=OTHER, person=PERSON, level=TraceLevel.INFO),
        a_trace(52, words="A needle in the hay.", level=TraceLevel.INFO),
    ]
    await traces.write(tables, special)
    web, person, needle = (each.entry for each in special)
    assert await read_all(tables, TraceFilter(role="web")) == [web]
    assert await read_all(tables, TraceFilter(instance="host.2")) == [person]
    assert await read_all(tables, TraceFilter(ref=REF)) == [web]
    assert await read_all(tables, TraceFilter(person=PERSON)) == [person]
    assert await read_all(tables, TraceFilter(person=PERSON, ref=OTHER)) == [person]
    assert await read_all(tables, TraceFilter(person=PERSON, ref=REF)) == []
    assert await read_all(tables, TraceFilter(ref=REF, level=TraceLevel.ERROR)) == []
    assert await read_all(tables, TraceFilter(text="NEEDLE")) == [needle]
    assert len(await read_all(tables, TraceFilter(text="brand_new"))) == 43
    ages = TraceFilter(
        level=TraceLevel.DEBUG,
        since=START - timedelta(minutes=200),
        until=START - timedelta(minutes=100),
    )
    assert [one.words for one in await read_all(tables, ages)] == [
        f"Number {number}." for number in range(5, 10)
    ]
    here = TraceFilter(ref=REF, until=START - timedelta(days=1))
    assert await read_all(tables, here) == []


class ShortTables(MemoryTables):
    """Pages of three rows, and counted."""

    scans = 0

    async def scan(self, *args: object, **options: object) -> Page:
        self.scans += 1
        limit = min(3, int(str(options.pop("limit", 3))))
        return await super().scan(*args, **options, limit=limit)  # type: ignore[arg-type]


async def test_a_rare_filter_reads_a_limited_number_of_rows_per_page_and_continues() -> None:
    tables = ShortTables(TABLES)
    await traces.write(tables, [a_trace(number, level=LEVELS[number % 3]) for number in range(90)])
    await traces.write(tables, [a_trace(95, role="web", level=TraceLevel.INFO)])
    wanted = TraceFilter(role="web")
    page = await traces.read_page(tables, wanted, limit=5)
    assert (page.traces, page.is_complete) == ([], False)
    assert page.next is not None
    assert tables.scans <= traces.SCANS_A_PAGE + 2
    assert len(await read_all(tables, wanted)) == 1
    assert len(await read_all(tables, TraceFilter(), scans=3)) == 91


async def test_empty_pages_of_storage_do_not_end_a_page() -> None:
    tables = MemoryTables(TABLES, 2, True)
    await traces.write(tables, [a_trace(number) for number in range(40)])
    assert len(await read_all(tables, TraceFilter(), scans=1)) == 32


async def kept(tables: Tables) -> list[str]:
    return sorted(
        {
            str(row.properties["Details"])
            async for row in all_rows(tables, traces.TABLE, KeysAcross())
            if row.partition != "counts"
        }
    )


async def write_hours(tables: Tables, hours: int, rows: int) -> None:
    """So many rows in each hour, as a writer does."""
    for hour in range(hours):
        at = START - timedelta(hours=hour)
        some = [
            KeyedTrace(
                traces.trace_key(at, number, "host.1"),
                a_trace(0, at=at, words=f"{hour:02d}", ref=REF, person=PERSON).entry,
            )
            for number in range(rows)
        ]
        await traces.note_count(tables, "host.1", at, rows)
        await traces.write(tables, some)


async def test_old_traces_are_deleted_with_their_copies_and_counts(tables: Tables) -> None:
    await write_hours(tables, 6, 5)
    deleted = await traces.expire(tables, START, keep_days=2.5 / 24, rows_max=1_000)
    assert deleted == 10
    assert await kept(tables) == ["00", "01", "02", "03"]
    counts = [row async for row in all_rows(tables, traces.TABLE, KeysWithin("counts"))]
    assert len(counts) == 4


async def test_the_oldest_are_deleted_if_there_are_too_many_but_never_this_hour(
    tables: Tables,
) -> None:
    await write_hours(tables, 6, 5)
    assert await traces.expire(tables, START, keep_days=30, rows_max=17) == 15
    assert await kept(tables) == ["00", "01", "02"]
    await traces.expire(tables, START, keep_days=30, rows_max=0)
    assert await kept(tables) == ["00"]


async def test_expiry_continues_where_it_was_interrupted(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "EXPIRED_BATCHES_A_SWEEP", 1)
    await write_hours(tables, 4, 150)
    deleted = [await traces.expire(tables, START, keep_days=30, rows_max=0) for _sweep in range(8)]
    assert sum(deleted) == 450
    assert deleted[-1] == 0
    assert await kept(tables) == ["00"]


async def test_a_copy_that_is_gone_does_not_stop_the_expiry(tables: Tables) -> None:
    await write_hours(tables, 2, 3)
    rows: Sequence[str] = [
        row.key async for row in all_rows(tables, traces.TABLE, KeysWithin(f"message-{REF}"))
    ]
    await tables.delete(traces.TABLE, f"message-{REF}", rows[-1])
    await traces.expire(tables, START, keep_days=30, rows_max=0)
    assert await kept(tables) == ["00"]


async def test_a_row_that_cannot_be_read_is_passed_over(tables: Tables) -> None:
    await traces.write(tables, [a_trace(0), a_trace(1)])
    newer = KeyedTrace(traces.trace_key(START, 7, "host.1"), a_trace(0).entry)
    await traces.write(tables, [newer])
    hour = f"{999_999 - int(START.timestamp() // 3600):06d}"
    broken: dict[str, Value] = {"Format": 99, "Level": "info"}
    await tables.upsert(traces.TABLE, f"info-{hour}", newer.key, broken)
    assert len(await read_all(tables, TraceFilter())) == 2


def test_keys_fall_with_time_and_number() -> None:
    at = datetime(2026, 11, 18, 4, 0, 0, 123_000, tzinfo=UTC)
    first = traces.trace_key(at, 1, "host.1")
    second = traces.trace_key(at, 2, "host.1")
    later = traces.trace_key(at + timedelta(milliseconds=1), 3, "host.1")
    assert later < second < first
    assert traces.time_of(first) == at
    assert traces.is_trace_key(first)
    assert not traces.is_trace_key("../" + first)
