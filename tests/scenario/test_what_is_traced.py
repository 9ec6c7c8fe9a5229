"""What a person must be able to read later is logged: from there it becomes a trace."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog
from structlog.testing import capture_logs

from postroom.domain.message import OnDoubt, Status
from postroom.domain.trace_sentences import trace_sentence
from postroom.flow import fan_out
from postroom.records import messages
from tests.clock import START
from tests.scenario.test_dead_sender import killed_in_the_middle
from tests.scenario.town import Town, students


@contextmanager
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    try:
        with capture_logs() as entries:
            yield entries
    finally:
        structlog.configure(**before)


def told(entries: list[MutableMapping[str, Any]], event: str) -> list[str]:
    """The sentences of an event, as the page of traces shows them."""
    return [str(trace_sentence(event, one)) for one in entries if one["event"] == event]


async def test_a_message_is_told_from_start_to_archive_and_so_is_who_failed(town: Town) -> None:
    with logged() as entries:
        ref = await town.mailing("ada", "perm-fail")
        await town.open_sender()
        await town.quiet()
    about = [one["event"] for one in entries if one.get("ref") == ref]
    assert about == [
        "message_started",
        "message_queued",
        "deliveries_failed",
        "message_completed",
        "message_archived",
    ]
    assert told(entries, "message_queued") == ["All recipients are queued: 2 people."]
    assert told(entries, "deliveries_failed") == [
        "1 delivery of batch 0 failed for good. The server said: 550 5.1.1 No such user"
    ]
    (failed,) = [one for one in entries if one["event"] == "deliveries_failed"]
    assert len(failed["person"]) == 8
    assert "@" not in repr(entries)


async def test_a_take_over_says_what_became_of_everybody(town: Town) -> None:
    with logged() as entries:
        await killed_in_the_middle(town, OnDoubt.HOLD)
        await town.open_sender()
        await town.quiet()
    (sentence,) = told(entries, "batch_taken_over")
    assert "2 deliveries had a known outcome, 2 are sent again, 1 are held" in sentence
    assert len(told(entries, "sender_died")) == 1


async def test_a_broken_line_leaves_a_trace_of_who_is_in_doubt(town: Town) -> None:
    with logged() as entries:
        await town.mailing("drop-after-dot", on_doubt=OnDoubt.HOLD)
        await town.open_sender()
        await town.quiet()
    assert told(entries, "deliveries_in_doubt")[0].startswith("1 delivery of batch 0 is in doubt")


async def test_a_scheduler_after_a_restart_says_that_it_took_over(town: Town) -> None:
    await town.found_list()
    await town.join(*students(150))
    ref = await town.compose(OnDoubt.RESEND)
    tables = town.storage.tables
    message, etag = await messages.read_with_etag(tables, ref)
    before = msgspec.structs.replace(
        message, status=Status.QUEUING, queued_by="scheduler.0/1", queuing_at=START, expected=150
    )
    etag = await messages.replace(tables, before, etag)
    begun, _ = await fan_out.advance(town.storage, before, etag, START, room=1)
    assert (begun.batches, begun.fanned_out) == (1, False)
    with logged() as entries:
        await town.open_sender()
        await town.quiet()
    assert told(entries, "message_taken_over") == [
        "The scheduler continued the message where another one had stopped, after batch 0."
    ]
    assert len(told(entries, "message_queued")) == 1
