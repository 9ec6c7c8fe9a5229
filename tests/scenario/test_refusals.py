"""Refusals: what a server does not take is tried again, or fails with the server's words."""

from __future__ import annotations

from postroom.domain.delivery import State
from postroom.domain.message import Books, Status
from postroom.domain.retry import RetryRules
from tests.clock import START
from tests.scenario.town import Town, once_each, students

HOUR_S = 3600.0
BUSY_ANSWER = "450 4.2.0 Try again later"


async def test_a_dead_mailbox_fails_with_the_servers_words(town: Town) -> None:
    ref = await town.mailing("ada", "perm-fail", "zoe")
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["ada", "zoe"])
    assert (await town.fates(ref))["perm-fail"] == (State.FAILED, "550 5.1.1 No such user")
    assert (await town.read(ref)).books == Books(sent=2, failed=1)
    assert await town.is_archived(ref)


async def test_a_mail_refused_by_policy_fails_and_the_next_one_is_sent(town: Town) -> None:
    ref = await town.mailing("policy", "zoe")
    await town.open_sender()
    await town.quiet()
    assert (await town.fates(ref))["policy"] == (State.FAILED, "550 5.7.1 Refused by policy")
    assert town.arrived() == once_each(["zoe"])


async def test_a_busy_mailbox_gets_the_mail_at_the_next_try(town: Town) -> None:
    ref = await town.mailing("temp-fail-once")
    await town.open_sender()
    await town.quiet()
    assert (await town.fates(ref))["temp-fail-once"] == (State.QUEUED, BUSY_ANSWER)
    await town.pass_time(59)
    await town.quiet()
    assert not town.sink.mails
    await town.pass_time(1)
    await town.quiet()
    assert town.arrived() == once_each(["temp-fail-once"])
    assert (await town.read(ref)).books == Books(sent=1)
    assert await town.is_archived(ref)


async def test_the_rest_of_the_batch_does_not_wait_for_a_busy_mailbox(town: Town) -> None:
    names = students(60)
    ref = await town.mailing("temp-fail", "full", "rate", *names)
    await town.open_sender(slice_size=10)
    await town.quiet()
    assert town.arrived() == once_each(names)
    assert (await town.read(ref)).books == Books(queued=3, sent=60)


async def test_pauses_double_up_to_an_hour_and_every_attempt_is_counted(town: Town) -> None:
    ref = await town.mailing("temp-fail")
    await town.open_sender()
    await town.quiet()
    pauses = []
    for attempt in range(1, 10):
        [ledger] = await town.ledgers(ref)
        assert (
            ledger.deferred[0].attempts == attempt == town.sink.attempts[b"temp-fail@contoso.edu"]
        )
        assert ledger.deferred[0].since == START.timestamp()
        pauses.append(ledger.deferred[0].retry_at - town.clock.now().timestamp())
        await town.pass_time(pauses[-1])
        await town.quiet()
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


async def test_those_refused_together_do_not_come_back_together(town: Town) -> None:
    ref = await town.mailing(*(f"temp-fail{number}" for number in range(20)))
    await town.open_sender(rules=RetryRules())
    await town.quiet()
    [ledger] = await town.ledgers(ref)
    waits = {wait.retry_at - START.timestamp() for wait in ledger.deferred.values()}
    assert len(waits) == 20
    assert min(waits) >= 45
    assert max(waits) <= 75


async def test_after_a_day_of_refusals_it_has_failed_with_the_last_words(town: Town) -> None:
    ref = await town.mailing("temp-fail", "zoe")
    await town.open_sender()
    await town.quiet()
    await town.live_through(23 * HOUR_S, every_s=HOUR_S / 2)
    assert (await town.read(ref)).books == Books(queued=1, sent=1)
    await town.live_through(2 * HOUR_S, every_s=HOUR_S / 2)
    assert (await town.fates(ref))["temp-fail"] == (State.FAILED, BUSY_ANSWER)
    message = await town.read(ref)
    assert message.status is Status.COMPLETED
    assert message.books == Books(sent=1, failed=1)
    assert await town.is_archived(ref)
    assert await town.items() == 0


async def test_a_full_mailbox_is_tried_again(town: Town) -> None:
    ref = await town.mailing("full-once")
    await town.open_sender()
    await town.quiet()
    assert (await town.fates(ref))["full-once"] == (State.QUEUED, "452 4.2.2 Mailbox full")
    await town.pass_time(60)
    await town.quiet()
    assert town.arrived() == once_each(["full-once"])
