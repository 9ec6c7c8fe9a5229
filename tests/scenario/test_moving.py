"""Moving: another address, another list. The old one is not mailed, the new one misses nothing."""

from __future__ import annotations

import pytest

from postroom.actions import move_subscriber
from postroom.actions.move_subscriber import Destination
from postroom.domain.address import parse_address
from postroom.domain.delivery import State
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.message import Books
from postroom.domain.subscriber import Subscriber
from postroom.flow import subscribe
from postroom.flow.subscribe import UnsubscribeResult
from postroom.records import subscribers
from postroom.storage.port import Conflict
from tests.acting import acting
from tests.scenario.town import LIST, Town, once_each


async def moved(
    town: Town, name: str, to: str, *, to_list: str = LIST, bring_back: bool = False
) -> Subscriber:
    known = await town.subscriber(name)
    found = await subscribers.find(town.storage.tables, LIST, known.key)
    assert found
    destination = Destination(
        list_name=to_list,
        address=parse_address(f"{to}@contoso.edu"),
        verified=known.verified,
        attributes=known.attributes,
        bring_back=bring_back,
    )
    return await move_subscriber.move(
        acting(town.storage, town.clock.now()), LIST, known.key, destination, etag=found[1]
    )


async def test_who_moves_while_queued_is_not_mailed_at_the_old_address(town: Town) -> None:
    ref = await town.mailing("ada", "bob")
    town.clock.move(1)
    await moved(town, "ada", "countess")
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["bob"])
    assert (await town.states(ref))["ada"] is State.SKIPPED
    assert (await town.read(ref)).books == Books(sent=1, skipped=1)


async def test_a_message_queued_right_after_the_move_reaches_the_new_address(town: Town) -> None:
    """Senders look an hour back for who left: the same GUID at another address is not meant."""
    await town.found_list()
    await town.join("ada", "bob")
    await moved(town, "ada", "countess")
    town.clock.move(1)
    await town.compose()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["bob", "countess"])


async def test_who_moved_there_and_back_misses_nothing(town: Town) -> None:
    """Senders still look back over the departure of the address, so every move needs a GUID."""
    await town.found_list()
    await town.join("ada")
    await moved(town, "ada", "countess")
    town.clock.move(1)
    with pytest.raises(AlreadyThere):
        await moved(town, "countess", "ada")
    guid = (await town.subscriber("countess")).guid
    assert (await moved(town, "countess", "ada", bring_back=True)).guid != guid
    assert await subscribers.find_by_guid(town.storage.tables, LIST, guid) is None
    town.clock.move(1)
    await town.compose()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["ada"])


async def test_a_link_in_an_old_mail_takes_the_new_address_off(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    guid = (await town.subscriber("ada")).guid
    assert (await moved(town, "ada", "countess")).guid != guid
    tables, now = town.storage.tables, town.clock.now()
    assert await subscribe.leave(acting(tables, now), LIST, guid) is UnsubscribeResult.NOW
    gone = await town.subscriber("countess")
    assert gone.inactive_reason is not None


async def add_again(town: Town, name: str) -> None:
    tables, address = town.storage.tables, parse_address(f"{name}@contoso.edu")
    now = town.clock.now()
    await subscribe.add(acting(tables, now), LIST, address, {}, verified=True, bring_back=True)


async def unsubscribe(town: Town, guid: str) -> UnsubscribeResult:
    return await subscribe.leave(acting(town.storage, town.clock.now()), LIST, guid)


async def test_a_link_takes_off_whoever_has_its_address_now_and_nobody_else(town: Town) -> None:
    """Jon's address was corrected to john; later somebody signs up as jon."""
    await town.found_list()
    await town.join("jon")
    old = (await town.subscriber("jon")).guid
    await moved(town, "jon", "john")
    await add_again(town, "jon")
    await unsubscribe(town, (await town.subscriber("john")).guid)
    assert (await town.subscriber("john")).inactive_reason
    assert not (await town.subscriber("jon")).inactive_reason
    await unsubscribe(town, old)
    assert (await town.subscriber("jon")).inactive_reason


async def test_a_link_is_followed_over_leaving_joining_again_and_moving(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    first = (await town.subscriber("ada")).guid
    await town.leave("ada")
    await add_again(town, "ada")
    for before, after in (("ada", "ada1"), ("ada1", "ada2"), ("ada2", "ada3")):
        await moved(town, before, after)
    assert await unsubscribe(town, first) is UnsubscribeResult.NOW
    assert (await town.subscriber("ada3")).inactive_reason
    assert await unsubscribe(town, first) is UnsubscribeResult.ALREADY


async def test_the_old_address_is_removed_and_added_again_only_on_request(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    await moved(town, "ada", "countess")
    with pytest.raises(AlreadyThere, match="no longer on contoso1"):
        await subscribe.add(
            acting(town.storage, town.clock.now()),
            LIST,
            parse_address("ada@contoso.edu"),
            {},
            verified=True,
        )


async def test_who_goes_over_to_another_list_is_on_that_one_alone(town: Town) -> None:
    await town.found_list()
    await town.found_list("other")
    await town.join("ada", "bob")
    there = await moved(town, "ada", "ada", to_list="other")
    assert there.list_name == "other"
    await town.compose()
    await town.compose(list_name="other")
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["ada", "bob"])


async def test_who_saw_an_older_row_moves_nobody(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    known = await town.subscriber("ada")
    to = Destination(
        list_name=LIST,
        address=parse_address("countess@contoso.edu"),
        verified=True,
        attributes={},
    )
    tables, now = town.storage.tables, town.clock.now()
    with pytest.raises(Conflict):
        await move_subscriber.move(acting(tables, now), LIST, known.key, to, etag="older")
    await town.leave("ada")
    with pytest.raises(NotFound):
        await move_subscriber.move(acting(tables, now), LIST, known.key, to, etag="older")
    assert await subscribers.find(tables, LIST, to.address.storage_key) is None
