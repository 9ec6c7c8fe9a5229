"""Stories: everything that happened to a message, or to one delivery, in chronological order.

They are made from rows that exist anyway (message, ledger, archive, feedback, consent record) and
from traces. A trace that only repeats a row is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

from postroom.domain.consent import EVENT_TEXTS, source_text
from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State
from postroom.domain.errors import NotFound
from postroom.domain.feedback import KIND_TEXTS, REASON_TEXTS, BounceReason, FeedbackKind
from postroom.domain.message import Message, Status
from postroom.domain.texts import Text, _, ngettext
from postroom.domain.trace_entry import TraceEntry, TraceLevel, person_id
from postroom.domain.trace_sentences import trace_sentence
from postroom.records import archive, batches, consents, feedback, traces
from postroom.records.feedback import BounceRecord
from postroom.records.traces import TraceFilter
from postroom.storage.port import Tables

TRACES_MAX = 200  # of a message; all of them are on the page of traces
ALIKE_SHOWN_MAX = 3
_OF_BATCHES = frozenset({"item_after_restart"})  # say the same about each
_IN_ROWS = frozenset({"message_started", "message_completed", "message_cancelled"})


class StoryEvent(NamedTuple):
    """One thing that happened; without a time, it describes the current state."""

    at: datetime | None
    text: Text
    level: TraceLevel = TraceLevel.INFO
    words: str = ""  # of a server
    role: str = ""  # that wrote the trace
    instance: str = ""


class DeliveryStory(NamedTuple):
    delivery: Delivery
    events: list[StoryEvent]


async def of_message(tables: Tables, message: Message) -> list[StoryEvent]:
    """The story of a whole message."""
    events = _milestones(message)
    page = await traces.read_page(
        tables, TraceFilter(ref=message.ref, level=TraceLevel.DEBUG), limit=TRACES_MAX
    )
    events += _folded(entry for _key, entry in page.traces if entry.event not in _IN_ROWS)
    summary = await feedback.find_summary(tables, message.ref)
    for kind in feedback.COUNTED_KINDS:
        if count := summary.count(kind):
            events.append(StoryEvent(None, _reported(kind, count)))
    return _in_order(events)


def _reported(kind: FeedbackKind, count: int) -> Text:
    return ngettext(
        "Reported so far for {count} recipient: {what}.",
        "Reported so far for {count:,} recipients: {what}.",
        count,
        what=KIND_TEXTS[kind],
    )


async def of_delivery(tables: Tables, message: Message, batch: int, position: int) -> DeliveryStory:
    """The story of one delivery: how they subscribed, what was sent, what was reported."""
    found = await batches.find_ledger(tables, message.ref, batch)
    if found is None or not 0 <= position < len(found.value.states):
        raise NotFound(_("This message has no such delivery."))
    ledger = found.value
    waiting = await batches.load_deliveries(tables, message.ref, batch)
    ended = {one.delivery.position: one async for one in archive.load(tables, message.ref, batch)}
    archived = ended.get(position)
    delivery = archived.delivery if archived else waiting.get(position)
    if delivery is None:
        raise NotFound(_("The rows of this delivery no longer exist."))
    events = await _consents(tables, message, delivery)
    events += _milestones(message)
    events.append(_queued(message, ledger, position))
    if archived and archived.ended.state.value == ledger.states[position]:
        events.append(_end(archived.ended, message))
    else:
        events += _present(ledger, position)
    bounces = await feedback.bounces_of_delivery(tables, message.ref, batch, position)
    events += [_bounced(each) for each in bounces]
    events += await _counted(tables, message.ref, batch, position, bounces)
    events += await _traces(tables, message.ref, batch, delivery)
    return DeliveryStory(delivery, _in_order(events))


def _milestones(message: Message) -> list[StoryEvent]:
    events = [StoryEvent(message.created_at, _("The message was created."))]
    if message.due_at and message.status is not Status.DRAFT:
        events.append(StoryEvent(message.due_at, _("The message became due.")))
    if message.queuing_at:
        text = _("The scheduler started it: the recipients on the list were queued.")
        events.append(StoryEvent(message.queuing_at, text))
    if message.completed_at:
        is_cancelled = message.status is Status.CANCELLED
        text = ngettext(
            "Every recipient had an outcome ({count} of 1), and the message was completed.",
            "Every recipient had an outcome ({count:,} in all), and the message was completed.",
            message.audience,
        )
        cancelled = _("The message was cancelled, and everybody else was skipped.")
        events.append(StoryEvent(message.completed_at, cancelled if is_cancelled else text))
    return events


async def _consents(tables: Tables, message: Message, delivery: Delivery) -> list[StoryEvent]:
    history = await consents.history(tables, message.list_name, delivery.key)
    return [
        StoryEvent(
            each.at,
            _(
                "The subscriber: {what} ({source}).",
                what=EVENT_TEXTS[each.event],
                source=source_text(each.source),
            ),
        )
        for each in history.events
    ]


def _queued(message: Message, ledger: Ledger, position: int) -> StoryEvent:
    text = _(
        "The delivery was stored and queued: number {position} of {size} in batch {batch}.",
        position=position + 1,
        size=len(ledger.states),
        batch=ledger.batch,
    )
    return StoryEvent(message.queuing_at, text)


def _end(ended: DeliveryEnd, message: Message) -> StoryEvent:
    texts: Mapping[State, Text] = {
        State.SENT: _(
            "A sender recorded that it would send the email, then handed it over. The mail server "
            "accepted it, and the delivery was archived as sent."
        ),
        State.FAILED: _("The delivery failed for good and was archived."),
        State.SKIPPED: _("The delivery was skipped and archived; nothing was sent."),
    }
    text = texts[ended.state]
    if ended.state is State.SENT and message.is_test:
        text = _(
            "A sender put the email into the test mailbox, and the delivery was archived as sent."
        )
        return StoryEvent(ended.ended_at, text)
    level = TraceLevel.WARNING if ended.state is State.FAILED else TraceLevel.INFO
    return StoryEvent(ended.ended_at, text, level, ended.words)


def _present(ledger: Ledger, position: int) -> list[StoryEvent]:
    """The state of a delivery without an outcome, by its ledger."""
    touched_at = datetime.fromtimestamp(ledger.touched_at, UTC)
    wait = ledger.deferred.get(position)
    words = wait.words if wait else ""
    match State(ledger.states[position]):
        case State.SENDING:
            text = _(
                "Sender {owner} is handing the email over, or died while doing so.",
                owner=ledger.owner,
            )
            return [StoryEvent(touched_at, text)]
        case State.HELD:
            text = _(
                "The delivery is held until somebody decides what to do, on the message’s page."
            )
            return [StoryEvent(touched_at, text, TraceLevel.WARNING, words)]
        case State.QUEUED if wait and wait.attempts:
            text = ngettext(
                "It was not accepted in {count} attempt. It will be retried at {time}.",
                "It was not accepted in {count} attempts. It will be retried at {time}.",
                wait.attempts,
                time=f"{datetime.fromtimestamp(wait.retry_at, UTC):%Y-%m-%d %H:%M:%S UTC}",
            )
            return [StoryEvent(touched_at, text, TraceLevel.WARNING, words)]
        case State.QUEUED:
            return [StoryEvent(None, _("It is waiting for a sender."), words=words)]
    return [StoryEvent(None, _("It has an outcome, but its archived row no longer exists."))]


def _bounced(bounce: BounceRecord) -> StoryEvent:
    what = KIND_TEXTS[bounce.kind]
    text = _("Reported by {source}: {what}.", source=bounce.source, what=what)
    if bounce.reason in set(BounceReason):
        reason = REASON_TEXTS[BounceReason(bounce.reason)]
        text = _(
            "Reported by {source}: {what}, {reason}.",
            source=bounce.source,
            what=what,
            reason=reason,
        )
    return StoryEvent(bounce.at, text, TraceLevel.WARNING, bounce.words)


async def _counted(
    tables: Tables, ref: str, batch: int, position: int, bounces: list[BounceRecord]
) -> list[StoryEvent]:
    """What was reported without details: delivered, deferred, opened…"""
    counted = await feedback.find_counted(tables, ref, batch)
    shown = {each.kind for each in bounces}
    return [
        StoryEvent(None, _("Reported for this delivery: {what}.", what=KIND_TEXTS[kind]))
        for kind in feedback.COUNTED_KINDS
        if kind not in shown and counted.has(kind, position)
    ]


async def _traces(tables: Tables, ref: str, batch: int, delivery: Delivery) -> list[StoryEvent]:
    """Traces of its batch, and those of the person that name no other message."""
    everything = TraceLevel.DEBUG
    person = person_id(delivery.guid)
    of_message = await traces.read_page(
        tables, TraceFilter(ref=ref, level=everything), limit=TRACES_MAX
    )
    of_person = await traces.read_page(
        tables, TraceFilter(person=person, level=everything), limit=TRACES_MAX
    )
    found = {
        key: entry
        for key, entry in (*of_message.traces, *of_person.traces)
        if (entry.ref == ref and entry.fields.get("batch") in (batch, str(batch)))
        or (entry.person == person and entry.ref in ("", ref))
    }
    return [_traced(entry) for entry in found.values()]


def _folded(entries: Iterable[TraceEntry]) -> Iterator[StoryEvent]:
    """The traces; of many alike that follow each other, one per batch, only the first one."""
    in_order = sorted(entries, key=lambda entry: entry.at)
    for (name, _role), group in groupby(in_order, key=lambda entry: (entry.event, entry.role)):
        alike = list(group)
        if len(alike) <= ALIKE_SHOWN_MAX or name not in _OF_BATCHES:
            yield from map(_traced, alike)
            continue
        yield _traced(alike[0])
        more = ngettext(
            "The same happened to {count} more batch.",
            "The same happened to {count:,} more batches.",
            len(alike) - 1,
        )
        yield StoryEvent(alike[-1].at, more, alike[-1].level, role=alike[-1].role)


def _traced(entry: TraceEntry) -> StoryEvent:
    text = trace_sentence(entry.event, entry.fields)
    return StoryEvent(entry.at, text, entry.level, role=entry.role, instance=entry.instance)


def _in_order(events: list[StoryEvent]) -> list[StoryEvent]:
    """Sort by time; the current state comes last."""
    never = datetime.max.replace(tzinfo=UTC)
    return sorted(events, key=lambda event: event.at or never)
