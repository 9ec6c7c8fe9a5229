"""A limit: everybody still gets their mail, once, only later; stop and pause work meanwhile."""

from __future__ import annotations

import pytest

from postroom.actions import control_message
from postroom.domain.address import parse_address
from postroom.domain.delivery import LIMIT_DEFERRAL_WORDS, State
from postroom.domain.message import Books
from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.flow import subscribe
from postroom.records import rate_limits
from postroom.sender import Sender
from tests.acting import acting
from tests.clock import PATIENCE_S, soon
from tests.scenario.town import LIST, Town, once_each, students

NAMES = students(60)


async def limit(town: Town, mails_per_s: float = 0.0, connections: int = 0) -> None:
    found = RateLimit(TRANSPORT, mails_per_s, connections)
    await rate_limits.set_limit(town.storage.tables, found)


async def limit_contoso(town: Town, mails_per_s: float, connections: int = 0) -> None:
    found = RateLimit("contoso.edu", mails_per_s, connections)
    await rate_limits.set_limit(town.storage.tables, found)


def count_connections(town: Town, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many were open at each mail."""
    seen: list[int] = []
    take = town.sink.take

    def count(*arguments: bytes) -> None:
        seen.append(len(town.sink.connections))
        take(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(town.sink, "take", count)
    return seen


async def test_under_a_limit_everybody_is_mailed_once_and_no_sooner(town: Town) -> None:
    ref = await town.mailing(*NAMES)
    await limit(town, 5.0)
    began_at = town.clock.now()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    assert (town.clock.now() - began_at).total_seconds() >= len(NAMES) / 5.0 - 1.0
    assert (await town.read(ref)).books == Books(sent=60)


async def test_two_senders_share_it_and_mail_nobody_twice(town: Town, pairs: None) -> None:
    ref = await town.mailing(*NAMES)
    await limit(town, 20.0, connections=3)
    await town.open_sender()
    await town.open_sender(machine="elsewhere")
    await town.quiet()
    await town.live_through(60, 5)
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=60)


async def test_connections_of_all_senders_stay_within_the_limit(
    town: Town, pairs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_connections(town, monkeypatch)
    await town.mailing(*NAMES)
    await limit(town, connections=2)
    await town.open_sender(lanes=4)
    await town.open_sender(lanes=4, machine="elsewhere")
    await town.quiet()
    await town.live_through(60, 5)
    assert town.arrived() == once_each(NAMES)
    assert 1 <= max(seen) <= 2


async def test_an_idle_sender_closes_its_connections_and_leaves_its_share(town: Town) -> None:
    await town.mailing(*NAMES)
    await limit(town, connections=2)
    await town.open_sender()
    await town.quiet()
    assert town.sink.connections
    await town.live_through(10, 5)
    rows = await rate_limits.all_limits(town.storage.tables)
    assert rows[TRANSPORT].shares == {}
    await soon(town.sink.is_empty.wait())


async def waiting_sender(town: Town) -> tuple[str, Sender]:
    """A sender with a slice in hand that has no turn for hours."""
    ref = await town.mailing(*NAMES)
    await limit(town, 0.01)
    role = await town.open_sender(lanes=1)
    assert await role.step()
    await town.clock.paused(3)
    return ref, role


async def test_a_planned_stop_does_not_wait_for_turns_and_leaves_no_doubt(town: Town) -> None:
    ref, role = await waiting_sender(town)
    role.stop_handing_over()
    await soon(town.close_sender(role))
    books = (await town.read(ref)).books
    assert books.doubts == books.sending == 0
    assert books.queued >= 50
    [ledger] = await town.ledgers(ref)
    assert ledger.deferred == {}  # untried: nobody lost an attempt
    rows = await rate_limits.all_limits(town.storage.tables)
    assert rows[TRANSPORT].shares == {}


async def test_a_message_paused_while_it_waits_stays_where_it_is(town: Town) -> None:
    ref, _ = await waiting_sender(town)
    await control_message.pause(town.storage.tables, ref)
    await town.quiet()
    paused = (await town.read(ref)).books
    assert paused.sending == 0
    assert paused.queued >= 50
    await rate_limits.clear_limit(town.storage.tables, TRANSPORT)
    await control_message.resume(town.storage.tables, ref)
    await town.live_through(30, 5)
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=60)


async def test_a_limit_set_while_mails_go_out_is_followed(town: Town, pairs: None) -> None:
    await town.mailing(*NAMES)
    role = await town.open_sender(lanes=1)
    assert await role.step()
    await role.wakeup.wait(5)
    await limit(town, 2.0)
    town.clock.move(5.0)
    began_at, before = town.clock.now(), sum(town.arrived().values())
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    seconds = (town.clock.now() - began_at).total_seconds()
    assert (len(NAMES) - before) / 2.0 - 2.0 <= seconds


async def first_slice(town: Town, *names: str) -> str:
    """A message of one batch to a domain that takes one mail a second; its first slice is out."""
    await limit_contoso(town, 1.0)
    ref = await town.mailing(*names)
    role = await town.open_sender(lanes=1, slice_size=99)
    assert await role.step()
    assert await role.wakeup.wait(PATIENCE_S)
    return ref


async def test_emails_to_a_limited_domain_are_deferred_untried_and_sent_later(town: Town) -> None:
    ref = await first_slice(town, *NAMES)
    fates = (await town.fates(ref)).values()
    late = [fate for fate in fates if fate.state is State.QUEUED]
    assert 50 <= len(late) < 60
    assert {fate.words for fate in late} == {LIMIT_DEFERRAL_WORDS}
    [ledger] = await town.ledgers(ref)
    assert {wait.attempts for wait in ledger.deferred.values()} == {0}
    assert ledger.attempts_without_outcome == 0
    await town.live_through(400, 5)
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=60)


async def test_who_was_put_off_and_then_refused_has_the_whole_retry_window(town: Town) -> None:
    ref = await first_slice(town, *students(20), "temp-fail-once-zoe")
    assert (await town.fates(ref))["temp-fail-once-zoe"].words == LIMIT_DEFERRAL_WORDS
    put_off_at = town.clock.now().timestamp()
    await town.live_through(30, 1)
    [ledger] = await town.ledgers(ref)
    [wait] = [wait for wait in ledger.deferred.values() if wait.attempts]
    assert wait.since > put_off_at
    await town.live_through(300, 10)
    assert (await town.read(ref)).books == Books(sent=21)


async def test_others_do_not_wait_for_a_limited_domain(town: Town) -> None:
    await limit_contoso(town, 1.0)
    await town.found_list()
    await town.join(*students(40))
    now = town.clock.now()
    others = [f"reader{number}" for number in range(20)]
    for name in others:
        address = parse_address(f"{name}@example.org")
        await subscribe.add(acting(town.storage, now), LIST, address, {}, verified=True)
    await town.compose()
    await town.fan_out()
    role = await town.open_sender(lanes=1, slice_size=99)
    assert await role.step()
    assert await role.wakeup.wait(PATIENCE_S)
    assert set(others) <= set(town.arrived())
    assert sum(town.arrived().values()) <= 30
    assert (town.clock.now() - now).total_seconds() < 20


async def test_connections_to_a_domain_hold_for_all_senders(town: Town, pairs: None) -> None:
    await limit_contoso(town, 0.0, connections=1)
    ref = await town.mailing(*NAMES)
    await town.open_sender()
    await town.open_sender(machine="elsewhere")
    await town.live_through(300, 5)
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=60)
