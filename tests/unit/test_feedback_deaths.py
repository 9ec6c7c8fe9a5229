"""Whoever deals with feedback may be killed at any write: each event counts once, none is lost."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest

from postroom.domain.address import parse_address
from postroom.domain.delivery_token import delivery_tokens
from postroom.domain.feedback import (
    BounceClass,
    BounceReason,
    Classification,
    FeedbackEvent,
    FeedbackKind,
)
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import InactiveReason
from postroom.domain.suppression import Suppression
from postroom.flow import fan_out, schedule, subscribe
from postroom.flow.compose import Draft, compose
from postroom.flow.feedback import CLAIM_S, FeedbackHandler, put_forgotten_items
from postroom.records import feedback, lists, messages, subscribers, suppressions
from postroom.storage.port import Storage
from tests.acting import acting
from tests.clock import MovableClock
from tests.unit.failing import Fuse, Killed, fused_storage

SECRET = "secret"
LIST = "contoso1"
PEOPLE = [f"student{number}@contoso.edu" for number in range(6)]
GONE = Classification(BounceClass.DEAD, BounceReason.NO_SUCH_USER, "5.1.1", "550 5.1.1 No")
FULL = Classification(BounceClass.TEMPORARY, BounceReason.MAILBOX_FULL, "5.2.2", "552 5.2.2 Full")


async def queued_message(storage: Storage, clock: MovableClock) -> str:
    now = clock.now()
    act = acting(storage, now)
    sender = "History <history@contoso.edu>"
    await lists.create(
        storage.tables,
        MailingList(name=LIST, description="History", sender=sender, created_at=now),
    )
    for person in PEOPLE:
        await subscribe.add(act, LIST, parse_address(person), {}, verified=True)
    draft = Draft(list_name=LIST, subject="Lectures", html=None, text="Hello", due_at=now)
    ref = (await compose(act, draft)).ref
    found = await messages.find_live(storage.tables, ref)
    assert found
    await schedule.start(
        storage.tables, found.value, found.etag, now, scheduler="scheduler", is_test=False
    )
    for _step in range(10):
        found = await messages.find_live(storage.tables, ref)
        assert found
        await fan_out.advance(storage, found.value, found.etag, now)
    return ref


def events_for(ref: str, clock: MovableClock) -> list[FeedbackEvent]:
    tokens = delivery_tokens(SECRET.encode(), ref, 0, range(len(PEOPLE)))
    reports = [
        (0, FeedbackKind.DELIVERED, None),
        (1, FeedbackKind.BOUNCED, GONE),
        (2, FeedbackKind.COMPLAINED, None),
        (3, FeedbackKind.BOUNCED, FULL),
        (3, FeedbackKind.OPENED, None),
        (4, FeedbackKind.UNSUBSCRIBED, None),
    ]
    return [
        FeedbackEvent(
            id=f"event-{number}",
            kind=kind,
            at=clock.now() + timedelta(seconds=number),
            source="sendgrid",
            delivery=tokens[position],
            address=PEOPLE[position],
            classification=found,
        )
        for number, (position, kind, found) in enumerate(reports)
    ]


async def suppressed(storage: Storage) -> dict[str, Suppression]:
    return {name: entry async for name, (entry, _etag) in suppressions.everyone(storage.tables)}


async def check_everything_counted_once(storage: Storage, ref: str) -> None:
    summary = await feedback.find_summary(storage.tables, ref)
    assert summary.kinds == {
        "delivered": 1,
        "bounced": 2,
        "complained": 1,
        "opened": 1,
        "unsubscribed": 1,
    }
    assert summary.classes == {"dead": 1, "temporary": 1}
    assert len(await suppressed(storage)) == 2
    reasons = []
    for person in PEOPLE:
        key = parse_address(person).storage_key
        found = await subscribers.find(storage.tables, LIST, key)
        assert found
        reasons.append(found.value.inactive_reason)
    bounced, complained, left = (
        InactiveReason.BOUNCED,
        InactiveReason.COMPLAINED,
        InactiveReason.UNSUBSCRIBED,
    )
    assert reasons == [None, bounced, complained, None, left, None]
    strikes = await feedback.find_soft_bounces(storage.tables, parse_address(PEOPLE[3]).storage_key)
    assert strikes
    assert len(strikes.value.strikes) == 1
    assert await feedback.shards_with_events(storage.tables) == []


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
async def test_killed_at_any_write_each_event_counts_once(is_after: bool) -> None:
    kills_at = 1
    while True:
        clock = MovableClock()
        fuse = Fuse()
        storage = fused_storage(clock, fuse)
        ref = await queued_message(storage, clock)
        handler = FeedbackHandler(storage, clock, SECRET)
        events = events_for(ref, clock)
        fuse.set(kills_at, is_after=is_after)
        was_killed = False
        try:
            await feedback.take_in(storage, events)
            while await handler.step():
                pass
        except Killed:
            was_killed = True
        writes = fuse.writes
        fuse.set(-1)
        if not was_killed:
            await check_everything_counted_once(storage, ref)
            assert writes >= 8  # or there was nothing to die at
            return
        clock.move(CLAIM_S + 1)
        await feedback.take_in(storage, events)  # the reporter got no answer, and reports again
        await put_forgotten_items(storage)
        with contextlib.suppress(Killed):
            while await handler.step():
                pass
        await check_everything_counted_once(storage, ref)
        kills_at += 1
