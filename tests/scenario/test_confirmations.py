"""Confirmations: retried like any delivery, in slices, never held up, and nothing is silent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from structlog.typing import EventDict

from postroom.domain.address import parse_address
from postroom.domain.confirmation import ConfirmationAttempts, ConfirmationState
from postroom.domain.retry import RetryRules
from postroom.domain.token import sign
from postroom.flow import render, subscribe
from postroom.mail.mime import CompiledMail, MailParts, compile_mail
from postroom.records.names import DEAD_LETTER_QUEUE, SINGLE_MAIL_QUEUE
from postroom.records.single_mail_items import CLAIM_S, CLAIMS_MAX, DELAY_S_MAX
from tests.acting import acting
from tests.clock import soon
from tests.scenario.test_rate_limit import limit
from tests.scenario.town import (
    LIST,
    SITE,
    TURNS_MAX,
    Town,
    address_of,
    once_each,
    students,
)

QUICK = RetryRules(1.0, 2.0, 600.0, chance=lambda: 0.5)


async def sign_up(town: Town, *names: str) -> None:
    for name in names:
        address = parse_address(address_of(name))
        await subscribe.sign_up(acting(town.storage, town.clock.now()), LIST, address, {})


async def attempts_of(town: Town, name: str) -> ConfirmationAttempts:
    found = (await town.subscriber(name)).confirmation
    assert found
    return found


def greylist(town: Town, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks everybody to come back, until so much later."""
    until = town.clock.now() + timedelta(seconds=seconds)

    def script(_recipient: bytes) -> bytes:
        return b"temp-fail" if town.clock.now() < until else b""

    monkeypatch.setattr(town.sink, "script", script)


# --- Retries ------------------------------------------------------------------------------------


async def test_a_greylisting_of_an_hour_loses_no_confirmation(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    greylist(town, 3600, monkeypatch)
    await town.open_sender()
    await town.quiet()
    await town.live_through(2 * 3600, every_s=300)
    assert town.arrived() == once_each(["ada"])
    assert (await town.subscriber("ada")).confirmation is None
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_retries_follow_the_settings_and_their_window(
    town: Town, log_lines: list[EventDict]
) -> None:
    await town.found_list()
    await sign_up(town, "temp-fail")
    began_at = town.clock.now()
    await town.open_sender(rules=QUICK)
    await town.quiet()
    first = await attempts_of(town, "temp-fail")
    assert first.state is ConfirmationState.WAITING
    assert first.retry_at == began_at + timedelta(seconds=1)
    await town.live_through(590, every_s=10)
    assert (await attempts_of(town, "temp-fail")).state is ConfirmationState.WAITING
    await town.live_through(20, every_s=1)
    ended = await attempts_of(town, "temp-fail")
    assert ended.state is ConfirmationState.GIVEN_UP
    assert ended.first_at == began_at
    assert ended.words.startswith("450 4.2.0")
    assert await town.items(SINGLE_MAIL_QUEUE) == 0
    assert await town.items(DEAD_LETTER_QUEUE) == 0
    [line] = [line for line in log_lines if line["event"] == "confirmation_not_sent"]
    assert line["state"] == "given_up"
    assert line["status"] == "450 4.2.0"


async def test_a_refusal_for_good_is_kept_and_logged_without_the_address(
    town: Town, log_lines: list[EventDict]
) -> None:
    await town.found_list()
    await sign_up(town, "perm-fail")
    await town.open_sender()
    await town.quiet()
    refused = await attempts_of(town, "perm-fail")
    assert refused.state is ConfirmationState.REFUSED
    assert refused.last_at == town.clock.now()
    assert refused.words.startswith("550 5.1.1")
    assert await town.items(SINGLE_MAIL_QUEUE) == 0
    [line] = [line for line in log_lines if line["event"] == "confirmation_not_sent"]
    assert line["list"] == LIST
    assert "perm-fail" not in str(line)


async def test_after_a_refusal_signing_up_again_works_at_once(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.found_list()
    await sign_up(town, "perm-fail")
    await town.open_sender()
    await town.quiet()
    monkeypatch.setattr(town.sink, "script", lambda _recipient: b"")  # the mailbox was made
    await town.pass_time(1)
    await sign_up(town, "perm-fail")
    await town.quiet()
    assert town.arrived() == once_each(["perm-fail"])
    assert (await town.subscriber("perm-fail")).confirmation is None


async def test_asking_again_while_a_retry_is_pending_puts_no_second_item(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "temp-fail")
    await town.open_sender()
    await town.quiet()
    await town.live_through(4 * 3600, every_s=900)
    await sign_up(town, "temp-fail")
    assert await town.items(SINGLE_MAIL_QUEUE) == 1
    assert (await attempts_of(town, "temp-fail")).count > 4


async def test_attempts_survive_a_restart(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "temp-fail")
    role = await town.open_sender()
    await town.quiet()
    before = await attempts_of(town, "temp-fail")
    await town.close_sender(role)
    await town.open_sender()
    await town.live_through(120, every_s=60)
    after = await attempts_of(town, "temp-fail")
    assert (before.count, after.count) == (1, 2)
    assert after.first_at == before.first_at


async def test_an_item_that_shows_too_early_waits_for_its_retry(town: Town) -> None:
    """As after a death between two writes: only the row knows when it is due."""
    await town.found_list()
    await sign_up(town, "temp-fail")
    await town.open_sender()
    await town.quiet()
    guid = (await town.subscriber("temp-fail")).guid
    await town.storage.queues.put(SINGLE_MAIL_QUEUE, f"{guid},{LIST}")
    await town.quiet()
    assert (await attempts_of(town, "temp-fail")).count == 1
    assert await town.items(SINGLE_MAIL_QUEUE) == 2


async def test_an_item_never_hides_for_longer_than_a_migration_waits(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "temp-fail")
    await town.open_sender(rules=RetryRules(4 * 3600.0, 4 * 3600.0, chance=lambda: 0.5))
    await town.quiet()
    await town.pass_time(DELAY_S_MAX)
    assert len(await town.storage.queues.peek(SINGLE_MAIL_QUEUE)) == 1
    await town.quiet()
    assert (await attempts_of(town, "temp-fail")).count == 1
    await town.live_through(4 * 3600, every_s=600)
    assert (await attempts_of(town, "temp-fail")).count == 2


async def test_who_confirms_or_leaves_while_it_waits_is_not_mailed(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.found_list()
    await sign_up(town, "ada", "bob")
    greylist(town, 30, monkeypatch)
    await town.open_sender()
    await town.quiet()
    guid = (await town.subscriber("ada")).guid
    token = sign(SITE.secret, "confirm", LIST, guid)
    await subscribe.confirm(acting(town.storage, town.clock.now()), SITE.secret, LIST, guid, token)
    await town.leave("bob")
    assert (await town.subscriber("ada")).confirmation is None
    await town.live_through(600, every_s=60)
    assert not town.sink.mails
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_a_refusal_before_the_sign_up_has_ended_queues_nothing_more(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy sender takes the item before the sign-up notes that it was put."""
    await town.found_list()
    role = await town.open_sender()
    put = town.storage.queues.put

    async def put_and_send(queue: str, *bodies: str, delay_s: float = 0.0) -> None:
        await put(queue, *bodies, delay_s=delay_s)
        monkeypatch.setattr(town.storage.queues, "put", put)
        await town.quiet()

    monkeypatch.setattr(town.storage.queues, "put", put_and_send)
    await sign_up(town, "perm-fail")
    await town.quiet()
    assert (await attempts_of(town, "perm-fail")).count == 1
    assert town.sink.attempts[b"perm-fail@contoso.edu"] == 1
    assert role.is_idle


# --- Many at once -------------------------------------------------------------------------------


async def test_many_go_out_over_one_connection_compiled_once(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, compiled = students(250), Counter[str]()

    def counted(parts: MailParts) -> CompiledMail:
        compiled[parts.subject] += 1
        return compile_mail(parts)

    monkeypatch.setattr(render, "compile_mail", counted)
    await town.found_list()
    await sign_up(town, *names)
    await town.open_sender(lanes=4)
    await town.quiet()
    assert town.arrived() == once_each(names)
    assert town.sink.connected == 1
    assert list(compiled.values()) == [1]
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_lists_of_one_slice_each_have_their_sender_and_title(town: Town) -> None:
    await town.found_list()
    await town.found_list("contoso2", "Chemistry news")
    address, now = parse_address(address_of("ada")), town.clock.now()
    await sign_up(town, "ada")
    await subscribe.sign_up(acting(town.storage, now), "contoso2", address, {})
    await town.open_sender()
    await town.quiet()
    subjects = {mail.content.split(b"Subject: ")[1].split(b"\r\n")[0] for mail in town.sink.mails}
    assert subjects == {
        b"Confirm your subscription to History news",
        b"Confirm your subscription to Chemistry news",
    }


async def test_one_refusal_in_a_slice_is_nobody_elses(town: Town) -> None:
    names = students(20)
    await town.found_list()
    await sign_up(town, *names, "perm-fail", "temp-fail-once")
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(names)
    await town.live_through(120, every_s=60)
    assert town.arrived() == once_each([*names, "temp-fail-once"])


async def test_batches_that_keep_every_lane_do_not_keep_a_confirmation(town: Town) -> None:
    await town.mailing("slow")
    role = await town.open_sender(lanes=1)
    assert await role.step()
    await soon(town.sink.is_waiting.wait())  # the only lane hangs at a slow server
    await sign_up(town, "ada")
    await town.pass_time(1)
    await role.step()
    while "ada" not in town.arrived():
        await soon(role.wakeup.wait(5))
    town.sink.release()


async def test_a_server_that_answers_late_gets_no_second_copy(town: Town) -> None:
    names = [*students(20), "slow"]
    await town.found_list()
    await sign_up(town, *names)
    role = await town.open_sender()
    assert await role.step()
    await soon(town.sink.is_waiting.wait())
    other = await town.open_sender(machine="elsewhere")
    for _ in range(12):  # of half a minute: far longer than a claim
        await town.pass_time(CLAIM_S / 4)
        assert not await other.step()
    town.sink.release()
    await town.quiet()
    await town.live_through(4 * CLAIM_S, every_s=CLAIM_S)
    assert town.arrived() == once_each(names)
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_with_a_single_connection_they_take_turns(town: Town) -> None:
    await limit(town, connections=1)
    await town.mailing("ada")
    await sign_up(town, "bob")
    role = await town.open_sender(lanes=4)
    for _look in range(TURNS_MAX):
        if not await role.step() and len(town.sink.mails) == 2:
            break
        await role.wakeup.wait(0.1)
    assert town.arrived() == once_each(["ada", "bob"])
    assert town.sink.carriers_most == 1


# --- Deaths -------------------------------------------------------------------------------------


async def die_with(town: Town, times: int) -> None:
    """Senders that took all items and died, so many in a row."""
    for _ in range(times):
        await town.storage.queues.claim(SINGLE_MAIL_QUEUE, limit=32, lease_s=CLAIM_S)
        town.clock.move(CLAIM_S)


async def test_an_item_that_ends_every_sender_is_given_up_and_told(
    town: Town, log_lines: list[EventDict]
) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    await die_with(town, CLAIMS_MAX)
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    assert (await attempts_of(town, "ada")).state is ConfirmationState.GIVEN_UP
    assert "confirmation_not_sent" in {line["event"] for line in log_lines}
    assert await town.items(SINGLE_MAIL_QUEUE) == 0
    await sign_up(town, "ada")
    await town.quiet()
    assert town.arrived() == once_each(["ada"])


async def test_those_that_were_in_hand_with_it_are_mailed(town: Town) -> None:
    names = students(20)
    await town.found_list()
    await sign_up(town, *names)
    await die_with(town, CLAIMS_MAX - 1)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(names)


async def test_a_death_in_mid_slice_mails_everybody_and_nobody_more_than_twice(
    town: Town,
) -> None:
    names = [*students(20), "slow"]
    await town.found_list()
    await sign_up(town, *names)
    role = await town.open_sender()
    assert await role.step()
    await soon(town.sink.is_waiting.wait())
    await town.close_sender(role, grace_s=0)  # cut off: nothing is written down
    town.sink.options = town.answering_at_once()
    await town.open_sender()
    await town.quiet()
    await town.live_through(2 * CLAIM_S, every_s=CLAIM_S)
    arrived = town.arrived()
    assert arrived.keys() == set(names)
    assert max(arrived.values()) <= 2
    ids: dict[str, set[str]] = {}
    for mail in town.sink.mails:
        ids.setdefault(mail.recipient, set()).add(mail.message_id)
    assert all(len(each) == 1 for each in ids.values())
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_a_planned_stop_gives_back_what_was_not_handed_over(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = students(20)
    await town.found_list()
    await sign_up(town, *names)
    role = await town.open_sender()
    take: Callable[..., None] = town.sink.take
    is_stopping = asyncio.Event()

    def take_and_stop(*arguments: bytes) -> None:
        role.stop_handing_over()
        is_stopping.set()
        take(*arguments)

    monkeypatch.setattr(town.sink, "take", take_and_stop)
    assert await role.step()
    await soon(is_stopping.wait())
    await soon(town.close_sender(role))
    assert 0 < len(town.sink.mails) < len(names)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(names)
