"""Many messages: a small one does not wait until a big one is fanned out or sent."""

from __future__ import annotations

from postroom.domain.message import Books, Status
from postroom.records import messages
from tests.scenario.town import Town, once_each, students


async def test_a_small_message_is_sent_while_a_big_one_is_fanned_out(
    town: Town, pairs: None
) -> None:
    await town.found_list()
    await town.join(*students(60))
    await town.found_list("contoso2")
    await town.join("ada", list_name="contoso2")
    big = await town.compose()
    for _ in range(3):
        await town.scheduler.step()
    small = await town.compose(list_name="contoso2")
    await town.open_sender()
    for _ in range(6):
        await town.scheduler.step_and_report()
        await town.sender_alone()
    assert town.arrived()["ada"] == 1
    assert await town.is_archived(small)
    unfinished = await messages.read(town.storage.tables, big)
    assert unfinished.status is Status.QUEUING
    assert not unfinished.fanned_out
    await town.quiet()
    assert town.arrived() == once_each(["ada", *students(60)])


async def test_messages_made_in_the_same_moment_have_refs_of_their_own(town: Town) -> None:
    await town.found_list()
    await town.join("ada", "bob")
    refs = [await town.compose() for _ in range(5)]
    await town.open_sender()
    await town.quiet()
    assert len(set(refs)) == 5
    assert town.arrived() == {"ada": 5, "bob": 5}
    for ref in refs:
        assert (await town.read(ref)).books == Books(sent=2)


async def test_a_message_in_trouble_does_not_hold_up_the_others(town: Town) -> None:
    await town.found_list()
    await town.join("ada", "temp-fail")
    stuck = await town.compose()
    await town.storage.blobs.delete(f"{stuck}.htm")
    fine = await town.compose()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["ada"])
    assert (await town.read(stuck)).books == Books(held=2)
    assert (await town.read(fine)).books == Books(queued=1, sent=1)
