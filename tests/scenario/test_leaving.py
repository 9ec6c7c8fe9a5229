"""Leaving: who left, was removed or whose list is gone is not mailed, even if already queued."""

from __future__ import annotations

from postroom.domain.address import parse_address
from postroom.domain.delivery import State
from postroom.domain.message import Books
from postroom.flow import subscribe, sweep
from postroom.records import lists
from tests.acting import acting
from tests.clock import soon
from tests.scenario.town import CLAIM_S, LIST, Town, once_each

LEFT = (State.SKIPPED, "unsubscribed before it was sent")


async def test_people_who_unsubscribed_before_are_not_in_the_audience(town: Town) -> None:
    await town.found_list()
    await town.join("ada", "bob")
    await town.leave("ada")
    ref = await town.compose()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["bob"])
    assert (await town.read(ref)).audience == 1


async def test_who_leaves_after_being_queued_is_skipped(town: Town) -> None:
    ref = await town.mailing("ada", "bob")
    town.clock.move(1)
    await town.leave("ada")
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["bob"])
    assert (await town.fates(ref))["ada"] == LEFT
    assert (await town.read(ref)).books == Books(sent=1, skipped=1)
    assert await town.is_archived(ref)


async def test_who_leaves_between_two_slices_is_skipped(town: Town) -> None:
    ref = await town.mailing("slow", "tom", "zoe")
    role = await town.open_sender(slice_size=1)
    await role.step()
    await soon(town.sink.is_waiting.wait())
    town.clock.move(1)
    await town.leave("zoe")
    town.sink.release()
    await town.quiet()
    assert town.arrived() == once_each(["slow", "tom"])
    assert (await town.fates(ref))["zoe"] == LEFT


async def test_who_leaves_while_a_retry_waits_is_skipped(town: Town) -> None:
    ref = await town.mailing("temp-fail-once")
    await town.open_sender()
    await town.quiet()
    await town.pass_time(30)
    await town.leave("temp-fail-once")
    await town.pass_time(30)
    await town.quiet()
    assert not town.sink.mails
    assert (await town.states(ref))["temp-fail-once"] is State.SKIPPED


async def test_people_who_joined_again_do_not_get_the_old_delivery(town: Town) -> None:
    ref = await town.mailing("ada", "bob")
    town.clock.move(1)
    await town.leave("ada")
    await subscribe.add(
        acting(town.storage, town.clock.now()),
        LIST,
        parse_address("ada@contoso.edu"),
        {},
        verified=True,
        bring_back=True,
    )
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["bob"])
    assert (await town.fates(ref))["ada"] == LEFT
    again = await town.compose()
    await town.quiet()
    assert (await town.states(again))["ada"] is State.SENT


async def test_who_was_removed_by_an_administrator_is_skipped(town: Town) -> None:
    ref = await town.mailing("ada", "bob")
    town.clock.move(1)
    address = parse_address("ada@contoso.edu")
    await subscribe.remove(acting(town.storage, town.clock.now()), LIST, address)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["bob"])
    assert (await town.fates(ref))["ada"] == LEFT


async def test_a_sender_that_works_for_hours_learns_of_everybody_who_leaves(town: Town) -> None:
    await town.mailing("ada", "bob", "zoe")
    await town.open_sender()
    await town.quiet()
    for name in ("ada", "bob"):
        await town.pass_time(1)
        ref = await town.compose()
        await town.fan_out()
        await town.pass_time(3600)
        await town.leave(name)
        await town.quiet()
        assert (await town.fates(ref))[name] == LEFT
    assert town.arrived() == {"ada": 1, "bob": 2, "zoe": 3}


async def test_when_the_list_is_deleted_everybody_who_is_queued_is_skipped(town: Town) -> None:
    ref = await town.mailing("ada", "bob", "temp-fail")
    await lists.start_deleting(town.storage.tables, LIST)
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    assert {fate.words for fate in (await town.fates(ref)).values()} == {"the list was deleted"}
    assert (await town.read(ref)).books == Books(skipped=3)


async def test_when_the_list_is_deleted_before_the_fan_out_nobody_is_mailed(town: Town) -> None:
    await town.found_list()
    await town.join("ada", "bob")
    ref = await town.compose()
    await lists.start_deleting(town.storage.tables, LIST)
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    assert (await town.read(ref)).books.sent == 0
    assert await town.is_archived(ref)


async def test_a_new_list_of_the_old_name_does_not_inherit_the_queued(town: Town) -> None:
    """They never joined it, and who had left the old one would be mailed again."""
    ref = await town.mailing("ada", "bob")
    town.clock.move(1)
    await town.leave("ada")
    await lists.start_deleting(town.storage.tables, LIST)
    assert await sweep.delete_rows_of(town.storage.tables, LIST, at_most=100)
    town.clock.move(600)
    await town.found_list()
    await town.open_sender()
    await town.quiet()
    await town.pass_time(CLAIM_S)
    await town.quiet()
    assert not town.sink.mails
    assert (await town.read(ref)).books == Books(skipped=2)
