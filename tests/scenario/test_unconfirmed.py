"""Who signs up and never confirms is forgotten after a while, and nobody else is."""

from __future__ import annotations

import pytest

from postroom.domain.address import parse_address
from postroom.domain.subscriber import InactiveReason
from postroom.domain.token import sign
from postroom.flow import subscribe, sweep
from postroom.records import consents, counts, sign_ups, subscribers
from postroom.records.counts import ListCounts
from postroom.records.names import SINGLE_MAIL_QUEUE
from tests.acting import acting
from tests.scenario.town import LIST, SITE, Town, address_of

DAY_S = 24 * 3600
KEPT_DAYS = 30


async def sign_up(town: Town, name: str) -> None:
    address = parse_address(address_of(name))
    await subscribe.sign_up(acting(town.storage, town.clock.now()), LIST, address, {})


async def confirm(town: Town, name: str) -> None:
    guid = (await town.subscriber(name)).guid
    token = sign(SITE.secret, "confirm", LIST, guid)
    tables, now = town.storage.tables, town.clock.now()
    await subscribe.confirm(acting(tables, now), SITE.secret, LIST, guid, token)


async def expire(town: Town) -> int:
    now = town.clock.now()
    return await sweep.expire_sign_ups(town.storage.tables, now, keep_days=KEPT_DAYS)


async def is_known(town: Town, name: str) -> bool:
    key = parse_address(address_of(name)).storage_key
    return await subscribers.find(town.storage.tables, LIST, key) is not None


async def entries(town: Town) -> int:
    now = town.clock.now()
    found = await sign_ups.asked_before(town.storage.tables, LIST, now, limit=1000)
    return len(found)


async def test_a_sign_up_without_a_confirmation_is_forgotten_to_the_last_row(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    guid = (await town.subscriber("ada")).guid
    town.clock.move(KEPT_DAYS * DAY_S)
    assert await expire(town) == 0  # not a moment too early
    town.clock.move(1)
    assert await expire(town) == 1
    assert not await is_known(town, "ada")
    assert await subscribers.find_by_guid(town.storage.tables, LIST, guid) is None
    assert await counts.read(town.storage.tables, LIST) == ListCounts()
    assert await entries(town) == 0
    assert await expire(town) == 0


async def test_the_consent_record_of_a_forgotten_sign_up_stays(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    key = (await town.subscriber("ada")).key
    town.clock.move(KEPT_DAYS * DAY_S + 1)
    await expire(town)
    found = (await consents.history(town.storage.tables, LIST, key)).events
    assert [consent.event for consent in found] == ["asked", "expired"]


async def test_the_scheduler_does_it(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    town.scheduler.unconfirmed_days = 2
    town.clock.move(2 * DAY_S + 1)
    await town.scheduler.step()
    assert not await is_known(town, "ada")


async def test_who_confirmed_stays(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    await confirm(town, "ada")
    town.clock.move(2 * KEPT_DAYS * DAY_S)
    assert await expire(town) == 0
    assert (await town.subscriber("ada")).verified
    assert await entries(town) == 0  # looked at once, not at every sweep


async def test_who_confirmed_once_stays_even_if_an_administrator_takes_it_back(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    await confirm(town, "ada")
    key = (await town.subscriber("ada")).key
    tables = town.storage.tables
    found = await subscribers.find(tables, LIST, key)
    assert found
    await subscribe.edit(
        acting(tables, town.clock.now()), LIST, key, verified=False, attributes={}, etag=found[1]
    )
    town.clock.move(2 * KEPT_DAYS * DAY_S)
    assert await expire(town) == 0
    assert await is_known(town, "ada")


async def test_whom_an_administrator_added_stays_also_after_asking_themselves(town: Town) -> None:
    await town.found_list()
    address, now = parse_address(address_of("ada")), town.clock.now()
    await subscribe.add(acting(town.storage, now), LIST, address, {}, verified=False)
    await sign_up(town, "ada")
    assert await town.items(SINGLE_MAIL_QUEUE) == 1
    town.clock.move(2 * KEPT_DAYS * DAY_S)
    assert await expire(town) == 0
    assert await is_known(town, "ada")


async def test_who_asks_again_has_the_whole_time_again(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    town.clock.move(20 * DAY_S)
    await sign_up(town, "ada")
    town.clock.move(20 * DAY_S)
    assert await expire(town) == 0
    town.clock.move(10 * DAY_S + 1)
    assert await expire(town) == 1
    assert not await is_known(town, "ada")


async def test_a_strangers_sign_up_does_not_undo_an_unsubscription(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    await town.leave("ada")
    town.clock.move(1)
    await sign_up(town, "ada")  # it may be anybody who typed her address
    town.clock.move(KEPT_DAYS * DAY_S + 1)
    assert await expire(town) == 1
    ada = await town.subscriber("ada")
    assert ada.inactive_reason is InactiveReason.UNSUBSCRIBED
    assert await subscribers.find_by_guid(town.storage.tables, LIST, ada.guid) is None
    assert await counts.read(town.storage.tables, LIST) == ListCounts(inactive=1)


async def test_people_who_unsubscribed_before_the_time_stay_unsubscribed(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    await town.leave("ada")
    town.clock.move(2 * KEPT_DAYS * DAY_S)
    assert await expire(town) == 0
    assert (await town.subscriber("ada")).inactive_reason is InactiveReason.UNSUBSCRIBED


async def test_a_sweep_is_bounded_and_the_next_one_continues(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SIGN_UPS_A_SWEEP", 2)
    await town.found_list()
    for name in "abc":
        await sign_up(town, name)
        town.clock.move(1)
    town.clock.move(KEPT_DAYS * DAY_S)
    assert [await expire(town), await expire(town), await expire(town)] == [2, 1, 0]


async def test_who_confirms_at_this_very_moment_is_not_forgotten(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    town.clock.move(KEPT_DAYS * DAY_S + 1)
    find = subscribers.find

    async def find_and_be_late(*arguments: str) -> object:
        found = await find(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(subscribers, "find", find)
        await confirm(town, "ada")
        return found

    monkeypatch.setattr(subscribers, "find", find_and_be_late)
    assert await expire(town) == 0
    assert (await town.subscriber("ada")).verified
    assert await counts.read(town.storage.tables, LIST) == ListCounts(verified=1)
