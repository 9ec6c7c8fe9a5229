"""Traces and stories, in every state that has words of its own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from postroom.domain.delivery import Deferral, Ledger
from postroom.domain.feedback import BounceClass, BounceReason, FeedbackKind
from postroom.domain.message import Status
from postroom.domain.texts import ENGLISH, speaking
from postroom.domain.trace_entry import FieldValue, TraceEntry, TraceLevel
from postroom.domain.trace_sentences import SENTENCES, trace_sentence
from postroom.records import batches, messages, traces
from postroom.records import feedback as feedback_rows
from postroom.records.feedback import BounceRecord
from postroom.records.rows import to_properties
from postroom.records.traces import KeyedTrace
from postroom.storage.port import Tables
from tests.web.office import NOW
from tests.web.test_admin_sending import going_out
from tests.web.visitor import Visit

PERSON = "6f32b03b"
REPLY = "550 5.1.1 mailbox unavailable"
FIELDS: dict[str, FieldValue] = {  # of all events together; numbers are no words
    **dict.fromkeys(("reason", "kind"), "unknown"),
    **dict.fromkeys(("batch", "count", "code", "refused", "ended", "known", "again", "held"), 0),
}


def a_trace(
    number: int, event: str = "scheduler_leads", about: Mapping[str, Any] | None = None
) -> KeyedTrace:
    """As a role writes it: the stored sentence is English, whoever reads the page."""
    at = NOW - timedelta(seconds=number)
    with speaking(ENGLISH):
        words = str(trace_sentence(event, FIELDS))
    values: dict[str, Any] = {
        "at": at,
        "level": list(TraceLevel)[number % 4],
        "role": "sender",
        "instance": "host.1",
        "event": event,
        "words": words,
        "fields": FIELDS,
    }
    entry = TraceEntry(**values | dict(about or {}))
    return KeyedTrace(traces.trace_key(at, number, entry.instance), entry)


async def at_traces(visit: Visit) -> None:
    await visit.get("/admin/traces")
    tables = visit.owner.office.storage.tables
    some = [a_trace(number, event) for number, event in enumerate(SENTENCES)]
    await traces.write(tables, some)
    page = await visit.get("/admin/traces", level="debug")
    assert "before=" in page
    await visit.get("/admin/traces", level="debug", before=some[10].key)
    await visit.get("/admin/traces", level="error", text="host.1", span="1h")
    wrong = {"level": "x", "message": "x", "person": "x", "from": "x", "to": "x"}
    await visit.get("/admin/traces", 422, **wrong)
    await visit.get("/admin/traces", 404, before="x")
    await _at_an_unfinished_search(visit, tables)
    await _at_stories(visit, tables)


async def _at_an_unfinished_search(visit: Visit, tables: Tables) -> None:
    many = [a_trace(number, about={"level": TraceLevel.DEBUG}) for number in range(100, 9_100)]
    await traces.write(tables, many)
    page = await visit.get("/admin/traces", level="debug", role="web")
    assert "before=" in page
    for key, entry in many:  # other visits need not read them
        hour = f"{999_999 - int(entry.at.timestamp() // 3600):06d}"
        await tables.delete(traces.TABLE, f"debug-{hour}", key)


async def _at_stories(visit: Visit, tables: Tables) -> None:
    path = await going_out(visit.owner)
    ref = path.rpartition("/")[2]
    about = {"ref": ref, "person": PERSON}
    await traces.write(tables, [a_trace(3, "batch_taken_over", about)])
    bounce = BounceRecord(
        batch=0,
        position=0,
        kind=FeedbackKind.BOUNCED,
        at=NOW,
        source="",
        key="key0",
        address="student0@contoso.edu",
        bounce_class=BounceClass.DEAD,
        reason=next(iter(BounceReason)),
        words=REPLY,
    )
    where = f"m-{ref}"
    row = to_properties(bounce)
    await tables.upsert(feedback_rows.TABLE, where, "to:0000000:00:bounced", row)
    summary = to_properties(feedback_rows.FeedbackSummary(kinds={"delivered": 2, "bounced": 1}))
    await tables.upsert(feedback_rows.TABLE, where, "summary", summary)
    counted = feedback_rows.CountedRecipients({"delivered": "3"})
    await tables.upsert(feedback_rows.TABLE, where, "batch:0000000", to_properties(counted))
    await visit.get("/admin/traces", message=ref, level="debug")
    await visit.get(f"{path}/story")
    for position in (0, 1):
        await visit.get(f"{path}/story", delivery=f"0.{position}")
    await visit.get(f"{path}/story", 404, delivery="0.7")
    await visit.get(f"{path}/story", 404, delivery="x")
    for states, deferral in (
        ("aa", None),
        ("qq", None),
        ("qq", Deferral(2, NOW.timestamp(), NOW.timestamp(), REPLY)),
        ("ss", None),
    ):
        await _change_ledger(tables, ref, states, deferral)
        await visit.get(f"{path}/story", delivery="0.1")
    for status in (Status.CANCELLED, Status.COMPLETED):
        found = await messages.find_live(tables, ref)
        assert found
        ended = msgspec.structs.replace(found.value, status=status, completed_at=NOW)
        await messages.replace(tables, ended, found.etag)
        await visit.get(f"{path}/story")


async def _change_ledger(tables: Tables, ref: str, states: str, wait: Deferral | None) -> None:
    found = await batches.find_ledger(tables, ref, 0)
    assert found
    ledger: Ledger = msgspec.structs.replace(
        found.value, states=states, owner="", deferred={1: wait} if wait else {}
    )
    await batches.replace_ledger(tables, ledger, found.etag)
