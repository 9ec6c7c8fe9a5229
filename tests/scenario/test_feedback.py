"""Feedback: what servers and providers report changes what people get, once, whoever dies."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.actions.control_message import Control, control
from postroom.domain.address import parse_address
from postroom.domain.delivery import State
from postroom.domain.delivery_token import parse_token
from postroom.domain.feedback import (
    BounceClass,
    BounceReason,
    Classification,
    FeedbackEvent,
    FeedbackKind,
)
from postroom.domain.message import Books, OnDoubt, Status
from postroom.domain.retry import RetryRules
from postroom.domain.subscriber import InactiveReason
from postroom.domain.suppression import SuppressionReason, SuppressionScope
from postroom.flow import subscribe
from postroom.flow.feedback import FeedbackHandler, put_forgotten_items
from postroom.records import feedback
from postroom.records.names import FEEDBACK_QUEUE
from postroom.records.suppression_filter import REFRESH_EVERY_S
from postroom.storage.port import Unavailable
from tests.acting import acting
from tests.scenario.test_aftermath import die_at_write
from tests.scenario.town import LIST, SITE, Town, address_of, once_each, students

DAY_S = 24 * 3600.0
FULL = Classification(BounceClass.TEMPORARY, BounceReason.MAILBOX_FULL, "5.2.2", "552 5.2.2 full")
GONE = Classification(
    BounceClass.DEAD, BounceReason.NO_SUCH_USER, "5.1.1", "550 5.1.1 No such user"
)
SPAM = Classification(BounceClass.OURS, BounceReason.BLOCKED, "5.7.1", "550 5.7.1 Blocked")
OTHER_LIST = "other"


async def sent(town: Town, *names: str, on_doubt: OnDoubt = OnDoubt.RESEND) -> str:
    ref = await town.mailing(*names, on_doubt=on_doubt)
    await town.open_sender()
    await town.quiet()
    return ref


async def second_message(town: Town, list_name: str = LIST) -> str:
    ref = await town.compose(list_name=list_name)
    await town.quiet()
    return ref


async def test_a_dead_mailbox_is_never_mailed_again_by_any_list(town: Town) -> None:
    await town.found_list(OTHER_LIST)
    await town.join("perm-fail", "zoe", list_name=OTHER_LIST)
    await sent(town, "ada", "perm-fail")
    await town.hear()
    assert (await town.subscriber("perm-fail")).inactive_reason is InactiveReason.BOUNCED
    entry = await town.suppression("perm-fail")
    assert entry
    assert entry.scope is SuppressionScope.ALL
    assert entry.reason is SuppressionReason.DEAD
    assert entry.words == "550 5.1.1 No such user"
    assert parse_token(SITE.secret.encode(), entry.delivery)
    town.clock.move(REFRESH_EVERY_S)
    ref = await second_message(town, OTHER_LIST)
    assert (await town.read(ref)).audience == 1
    assert town.arrived() == once_each(["ada", "zoe"])


async def test_a_complaint_stops_messages_of_every_list_that_are_being_sent(town: Town) -> None:
    first = await sent(town, "ada", "zoe")
    await town.found_list(OTHER_LIST)
    await town.join("ada", "ben", list_name=OTHER_LIST)
    ref = await town.compose(list_name=OTHER_LIST)
    await town.fan_out()
    await town.report(FeedbackKind.COMPLAINED, first, "ada")
    await town.hear()
    town.clock.move(REFRESH_EVERY_S)
    await town.quiet()
    assert (await town.fates(ref))["ada"] == (State.SKIPPED, "suppressed: reported spam")
    assert (await town.read(ref)).books == Books(sent=1, skipped=1)
    entry = await town.suppression("ada")
    assert entry
    assert entry.scope is SuppressionScope.BULK
    assert not entry.covers_single_mails
    assert (await town.subscriber("ada")).inactive_reason is InactiveReason.COMPLAINED


async def test_events_in_any_order_and_number_count_once(town: Town) -> None:
    ref = await sent(town, *students(5))
    for _time in range(3):
        await town.report(FeedbackKind.OPENED, ref, "student000")
        await town.report(FeedbackKind.BOUNCED, ref, "student001", classification=GONE)
        await town.report(FeedbackKind.DELIVERED, ref, "student000")
        await town.hear()
    summary = await feedback.find_summary(town.storage.tables, ref)
    assert summary.kinds == {"opened": 1, "bounced": 1, "delivered": 1}
    assert summary.classes == {"dead": 1}
    assert summary.domains == {"contoso.edu": {"delivered": 1, "dead": 1}}
    [bounce], more = await feedback.bounces_of(town.storage.tables, ref)
    assert more is None
    assert (bounce.address, bounce.words) == (address_of("student001"), GONE.words)
    assert (await town.read(ref)).books == Books(sent=5)


async def test_events_with_a_forged_or_foreign_token_change_nothing(town: Town) -> None:
    ref = await sent(town, "ada")
    token = await town.token(ref, "ada")
    forged = token[:-1] + ("a" if token[-1] != "a" else "b")
    for number, delivery in enumerate(["", forged, "x" * 32, "a" * 40]):
        event = FeedbackEvent(
            id=f"forged-{number}",
            kind=FeedbackKind.COMPLAINED,
            at=town.clock.now(),
            source="mailbox",
            delivery=delivery,
            address=address_of("ada"),
        )
        await feedback.take_in(town.storage, [event])
    await town.hear()
    assert await town.suppression("ada") is None
    assert (await town.subscriber("ada")).inactive_reason is None
    assert await feedback.shards_with_events(town.storage.tables) == []


async def test_five_temporary_bounces_over_a_week_and_none_before(town: Town) -> None:
    ref = await sent(town, "ada")
    for day in range(4):
        await town.report(FeedbackKind.BOUNCED, ref, "ada", classification=FULL)
        await town.hear()
        assert await town.suppression("ada") is None, day
        await town.live_through(2 * DAY_S, DAY_S)
        ref = await second_message(town)
    await town.report(FeedbackKind.BOUNCED, ref, "ada", classification=FULL)
    await town.hear()
    entry = await town.suppression("ada")
    assert entry
    assert entry.reason is SuppressionReason.KEEPS_BOUNCING


async def test_a_delivery_ends_a_row_of_temporary_bounces(town: Town) -> None:
    ref = await sent(town, "ada")
    for message in range(8):
        await town.report(FeedbackKind.BOUNCED, ref, "ada", classification=FULL)
        await town.hear()
        await town.live_through(2 * DAY_S, DAY_S)
        ref = await second_message(town)
        if message % 3 == 2:
            await town.report(FeedbackKind.DELIVERED, ref, "ada")
            await town.hear()
    assert await town.suppression("ada") is None


async def test_refusals_that_are_our_fault_pause_the_message_and_touch_nobody(town: Town) -> None:
    names = students(60)
    ref = await town.mailing(*names, *(f"policy-{number}" for number in range(30)), "temp-fail")
    await town.open_sender()
    await town.quiet()
    await town.hear()
    message = await town.read(ref)
    assert message.status is Status.PAUSED
    assert message.pause_cause
    assert message.pause_cause.refused == 30
    assert message.pause_cause.words == "550 5.7.1 Refused by policy"
    assert await town.suppression("policy-1") is None
    assert (await town.subscriber("policy-1")).inactive_reason is None
    await control(acting(town.storage, town.clock.now()), ref, Control.RESUME)
    await town.quiet()
    await town.hear()
    assert (
        await town.read(ref)
    ).status is Status.PROCESSING  # the same refusals do not count twice


@pytest.mark.parametrize("on_doubt", OnDoubt)
async def test_a_doubt_is_settled_by_what_the_provider_reports(
    town: Town, on_doubt: OnDoubt
) -> None:
    ref = await town.mailing("ada", "drop-after-dot", on_doubt=on_doubt)
    await town.open_sender(rules=RetryRules(doubt_s=600.0))
    await town.quiet()
    assert (await town.states(ref))["drop-after-dot"] in (State.QUEUED, State.HELD)
    await town.report(FeedbackKind.ACCEPTED, ref, "drop-after-dot")
    await town.hear()
    assert (await town.fates(ref))["drop-after-dot"] == (
        State.SENT,
        "accepted, as the provider reports",
    )
    await town.live_through(900, 300)
    assert (await town.read(ref)).books == Books(sent=2, doubts=1)
    assert (await town.read(ref)).status is Status.COMPLETED
    assert town.arrived() == once_each(["ada", "drop-after-dot"])


async def test_a_doubt_settled_just_before_a_death_is_counted_all_the_same(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await town.mailing("ada", "drop-after-dot", on_doubt=OnDoubt.HOLD)
    await town.open_sender()
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=1, held=1, doubts=1)
    await town.report(FeedbackKind.DELIVERED, ref, "drop-after-dot")

    async def die(self: FeedbackHandler, ref: str) -> None:
        raise Unavailable("killed")

    with monkeypatch.context() as patch:
        patch.setattr(FeedbackHandler, "_count_again", die)
        with pytest.raises(Unavailable):
            await town.hear()
    assert (await town.states(ref))["drop-after-dot"] is State.SENT
    await town.live_through(120, 60)
    await town.hear()
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=2, doubts=1)
    assert await town.is_archived(ref)


async def test_an_event_waits_for_the_sender_that_has_the_batch_in_hand(town: Town) -> None:
    ref = await town.mailing("slow", "zoe")
    clerk = await town.clerk()
    await clerk.take_until(town.sink.is_waiting.wait())
    await town.report(FeedbackKind.ACCEPTED, ref, "slow")
    await town.hear()
    assert await feedback.shards_with_events(town.storage.tables) != []
    await clerk.die()  # "slow" is in doubt now; without a journal nobody knows better
    town.sink.release()
    await town.open_sender(machine="elsewhere", rules=RetryRules(doubt_s=600.0))
    await town.live_through(400, 20)
    await town.hear()
    assert (await town.fates(ref))["slow"] == (State.SENT, "accepted, as the provider reports")
    assert await feedback.shards_with_events(town.storage.tables) == []
    assert town.arrived()["slow"] == 1


async def test_a_doubt_without_a_report_is_decided_by_the_policy(town: Town) -> None:
    ref = await town.mailing("drop-after-dot-once", "zoe")
    await town.open_sender(rules=RetryRules(doubt_s=600.0))
    await town.quiet()
    await town.live_through(540, 60)
    assert (await town.states(ref))["drop-after-dot-once"] is State.QUEUED
    await town.live_through(120, 60)
    assert (await town.states(ref))["drop-after-dot-once"] is State.SENT


@pytest.mark.parametrize("at", range(1, 8))
async def test_a_refusal_is_heard_whenever_the_sender_dies(town: Town, at: int) -> None:
    """The event is stored before the archive row, by which a later sender settles the delivery."""
    await town.mailing("perm-fail")
    await die_at_write(town, at)
    await town.open_sender()
    await town.live_through(400, 20)
    await put_forgotten_items(town.storage)
    await town.hear()
    assert await town.suppression("perm-fail")


async def test_a_lost_item_is_put_again(town: Town) -> None:
    ref = await sent(town, "ada")
    await town.report(FeedbackKind.DELIVERED, ref, "ada")
    [claim] = await town.storage.queues.claim(FEEDBACK_QUEUE, limit=1, lease_s=60)
    await town.storage.queues.complete(claim)
    await put_forgotten_items(town.storage)
    await town.hear()
    assert (await feedback.find_summary(town.storage.tables, ref)).kinds == {"delivered": 1}


async def test_people_who_subscribed_again_stay(town: Town) -> None:
    ref = await sent(town, "ada")
    await town.leave("ada")
    act = acting(town.storage, town.clock.now() + timedelta(seconds=1))
    ada = parse_address(address_of("ada"))
    await subscribe.add(act, LIST, ada, {}, verified=True, bring_back=True)
    await town.report(FeedbackKind.UNSUBSCRIBED, ref, "ada")
    await town.hear()
    assert (await town.subscriber("ada")).inactive_reason is None
