"""From the log to storage: in batches, bounded, quiet while storage is away."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
import pytest_asyncio
import structlog

from postroom import logs, tracing
from postroom.domain.trace_entry import TraceEntry, TraceLevel
from postroom.records import traces
from postroom.records.names import TABLES
from postroom.records.traces import TraceFilter
from postroom.storage.memory import MemoryTables
from postroom.storage.port import Change, Tables, Unavailable
from postroom.tracing import BUFFER, TraceWriter
from tests.clock import MovableClock

ADDRESS = "@".join(["ada", "contoso.edu"])
log = structlog.get_logger("tests")


class TiredTables(MemoryTables):
    is_away = False
    writes = 0

    async def batch(self, table: str, partition: str, changes: Sequence[Change]) -> list[str]:
        if self.is_away:
            raise Unavailable("no answer")
        self.writes += 1
        return await super().batch(table, partition, changes)


@pytest.fixture
def logging() -> Iterator[None]:
    kept = structlog.get_config()
    yield
    structlog.configure(**kept)
    BUFFER.level = None
    BUFFER.is_open = False
    BUFFER.events.clear()
    BUFFER.dropped = 0


@pytest_asyncio.fixture
async def writer(logging: None) -> TraceWriter:
    logs.configure("info", "info")
    BUFFER.is_open = True
    return TraceWriter(TiredTables(TABLES), MovableClock(), "sender", "host.1", BUFFER, 1_000_000)


async def stored(tables: Tables, level: TraceLevel = TraceLevel.DEBUG) -> list[TraceEntry]:
    page = await traces.read_page(tables, TraceFilter(level=level), limit=5000)
    assert page.next is None
    return [each.entry for each in reversed(page.traces)]


async def test_an_event_becomes_a_trace_with_a_sentence(writer: TraceWriter) -> None:
    log.warning("batch_taken_over", ref="638888888888888888", batch=3, owner="x", known=1, again=2)
    log.error("confirmation_not_sent", list="news", person="6f32b03b", attempts=5, status="5.1.1")
    assert await writer.write()
    taken, given_up = await stored(writer.tables)
    assert (taken.level, taken.role, taken.instance) == (TraceLevel.WARNING, "sender", "host.1")
    assert (taken.event, taken.ref, taken.fields["batch"]) == (
        "batch_taken_over", "638888888888888888", 3,
    )  # fmt: skip
    assert taken.words.startswith("Sender x stopped while working on batch 3.")
    assert (given_up.level, given_up.person) == (TraceLevel.ERROR, "6f32b03b")


async def test_no_address_and_nothing_of_an_exception_but_its_class_is_kept(
    writer: TraceWriter,
) -> None:
    log.warning("bounce_mailbox_unavailable", mailbox="m", words=f"no mailbox {ADDRESS}\nhere")
    try:
        raise KeyError(ADDRESS)
    except KeyError as error:
        log.exception("message_stuck", ref="1")
        log.error("asking_crashed", exc_info=error)
    await writer.write()
    found = await stored(writer.tables)
    assert ADDRESS not in repr(found)
    assert found[0].fields["words"] == "no mailbox … here"
    assert [one.fields["error"] for one in found[1:]] == ["KeyError", "KeyError"]


async def test_what_is_written_together_is_one_write_a_partition(writer: TraceWriter) -> None:
    for number in range(90):
        log.info("import_ended", id=number, status="done")
    await writer.write()
    assert isinstance(writer.tables, TiredTables)
    assert writer.tables.writes <= 3  # the count and one partition, or two at the full hour
    assert len(await stored(writer.tables)) == writer.written == 90


async def test_while_storage_is_away_the_newest_wait_and_the_rest_is_counted(
    writer: TraceWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", "info")  # standard error is the test's only now
    tables = writer.tables
    assert isinstance(tables, TiredTables)
    tables.is_away = True
    log.info("import_ended", id=-1, status="done")
    assert not await writer.write()
    for number in range(tracing.BUFFERED_MAX + 30):
        log.info("import_ended", id=number, status="done")
    capsys.readouterr()
    assert not await writer.write()
    assert capsys.readouterr().err == ""  # quiet
    tables.is_away = False
    assert await writer.write()
    assert await writer.write()
    found = await stored(tables)
    dropped = [one for one in found if one.event == "traces_dropped"]
    assert [one.fields["count"] for one in dropped] == [30]
    assert found[0].fields["id"] == -1
    assert found[-2].fields["id"] == tracing.BUFFERED_MAX + 29
    assert len(found) == tracing.BUFFERED_MAX + 2


async def test_one_process_writes_only_so_many_an_hour(writer: TraceWriter) -> None:
    writer.rows_max = 100
    for number in range(20):
        log.info("import_ended", id=number, status="done")
    await writer.write()
    assert len(await stored(writer.tables)) == 5
    clock = writer.clock
    assert isinstance(clock, MovableClock)
    clock.move(3600)
    await writer.write()
    assert (await stored(writer.tables))[-1].fields == {"count": 15}


async def test_traces_may_be_finer_or_coarser_than_the_log(
    logging: None, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = MovableClock()
    for level, trace_level, count in (("warning", "debug", 3), ("debug", "error", 1)):
        logs.configure(level, trace_level)
        tables = MemoryTables(TABLES)
        writer = TraceWriter(tables, clock, "web", "host.1", BUFFER, 1_000_000)
        BUFFER.is_open = True
        log.debug("item_idle")
        log.info("import_ended", id=1, status="done")
        log.error("page_failed", error="KeyError", at="x")
        await writer.write()
        assert len(await stored(tables)) == count
        lines = [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()]
        assert lines == (["error"] if level == "warning" else ["debug", "info", "error"])


async def test_a_role_leaves_traces_of_its_start_and_its_end(logging: None) -> None:
    logs.configure("error", "info")
    clock = MovableClock()
    tables = MemoryTables(TABLES)

    async def run(role: str) -> None:
        async with tracing.traced(tables, clock, role, every_s=60.0, rows_max=10**6):
            if role == "scheduler":
                raise RuntimeError(ADDRESS)

    await run("web")
    with pytest.raises(RuntimeError):
        await run("scheduler")
    found = [(one.role, one.event) for one in await stored(tables)]
    assert found == [
        ("web", "role_started"),
        ("web", "role_stopped"),
        ("scheduler", "role_started"),
        ("scheduler", "role_failed"),
    ]
    assert ADDRESS not in repr(await stored(tables))
    log.info("import_ended", id=1, status="done")
    assert not BUFFER.events


async def test_without_traces_nothing_is_buffered(logging: None) -> None:
    logs.configure("info")
    BUFFER.is_open = True
    log.info("import_ended", id=1, status="done")
    assert not BUFFER.events
