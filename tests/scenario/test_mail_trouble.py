"""The mail server is in trouble: everybody can see it, what it is, and that it is over."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from postroom.domain.trouble import Trouble, TroubleKind
from postroom.records import leases
from postroom.storage.counting import CountingStorage
from tests.clock import START
from tests.scenario.test_provider_down import Outage
from tests.scenario.town import LEASE_S, Town, students

KINDS = {
    "nothing listens": (TroubleKind.CONNECT, "connection refused"),
    "421 to everybody": (TroubleKind.THROTTLED, "421 4.3.2 The relay takes no mail now"),
    "login refused": (TroubleKind.LOGIN, "535 5.7.8 Authentication credentials invalid"),
}


async def troubles(town: Town) -> list[Trouble]:
    alive = await leases.living(town.storage.tables, town.clock.now())
    return leases.mail_troubles_among(alive)


async def settle(town: Town, seconds: float) -> None:
    """Time passes; then everybody looks once more, as a lane that gets free makes them do."""
    await town.live_through(seconds, every_s=seconds)


@pytest.mark.parametrize("kind", KINDS)
async def test_trouble_is_seen_from_the_first_fault_to_the_next_mail_that_is_sent(
    town: Town, kind: str
) -> None:
    await town.mailing("ada")
    outage = Outage(town, kind)
    await town.open_sender(transport=await outage.begin())
    await town.quiet()
    [trouble] = await troubles(town)
    assert (trouble.kind, trouble.words) == KINDS[kind]
    assert trouble.server == f"127.0.0.1:{town.sink.port}"
    assert trouble.since == START
    assert trouble.faults == 1
    await settle(town, 15)
    [trouble] = await troubles(town)
    assert trouble.faults == 2
    assert trouble.since == START  # of the first one in a row
    assert trouble.next_try_at == town.clock.now() + timedelta(seconds=10)
    await outage.end()
    await settle(town, 15)
    assert town.arrived()["ada"] == 1
    assert await troubles(town) == []


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with capture_logs() as lines:
        yield lines
    structlog.configure(**before)


async def test_the_log_says_what_is_wrong_and_that_it_is_over(
    town: Town, logs: list[MutableMapping[str, Any]]
) -> None:
    await town.mailing("ada")
    outage = Outage(town, "421 to everybody")
    await town.open_sender(transport=await outage.begin())
    await town.quiet()
    await outage.end()
    await settle(town, 15)
    [trouble] = [line for line in logs if line["event"] == "provider_in_trouble"]
    assert trouble["server"] == f"127.0.0.1:{town.sink.port}"
    assert trouble["words"] == "421 4.3.2 The relay takes no mail now"
    assert trouble["kind"] == "throttled"
    [over] = [line for line in logs if line["event"] == "provider_recovered"]
    assert over["since"] == START.isoformat(timespec="seconds")


async def test_only_the_senders_that_are_in_trouble_say_so(town: Town) -> None:
    await town.mailing(*students(2))
    await town.open_sender(machine="there")
    await town.quiet()
    outage = Outage(town, "login refused")
    await town.found_list("contoso2")
    await town.join("ada", list_name="contoso2")
    await town.compose(list_name="contoso2")
    works = town.roles.pop()
    await town.open_sender(machine="here", transport=await outage.begin())
    await town.quiet()
    alive = await leases.living(town.storage.tables, town.clock.now())
    assert leases.senders_among(alive) == 2
    assert [each.kind for each in leases.mail_troubles_among(alive)] == [TroubleKind.LOGIN]
    town.roles.append(works)


async def test_the_trouble_of_a_sender_that_died_is_forgotten_with_its_lease(town: Town) -> None:
    await town.mailing("ada")
    role = await town.open_sender(transport=await Outage(town, "login refused").begin())
    await town.quiet()
    assert await troubles(town)
    assert role._renewing
    role._renewing.cancel()  # as kill -9 leaves it: nobody renews its lease
    town.clock.move(LEASE_S * 3 + 1)
    assert await troubles(town) == []


async def test_a_planned_stop_takes_the_trouble_along(town: Town) -> None:
    await town.mailing("ada")
    role = await town.open_sender(transport=await Outage(town, "login refused").begin())
    await town.quiet()
    await town.close_sender(role)
    assert await troubles(town) == []


async def test_telling_costs_one_write_for_each_try(town: Town) -> None:
    """However many lanes meet the trouble at once, and however long it lasts."""
    await town.mailing(*students(400))
    storage = CountingStorage(town.storage)
    transport = await Outage(town, "login refused").begin()
    role = await town.open_sender(lanes=4, transport=transport, storage=storage)
    writes: list[int] = []
    hold = role.lease._hold

    async def counted(lease_s: float) -> None:
        writes.append(1)
        await hold(lease_s)

    role.lease._hold = counted  # type: ignore[method-assign]
    await town.quiet()
    assert len(writes) <= 2  # a short lease with an item in hand, and the trouble
    faults = role.breaker.faults
    writes.clear()
    await town.live_through(3600, every_s=60)
    tries = role.breaker.faults - faults
    assert len(writes) <= 3 * tries  # the long lease given up, the trouble told, the lease renewed


async def test_no_address_gets_into_the_words(town: Town) -> None:
    await town.mailing("ada")
    greeting = "421 4.7.0 <ada@contoso.edu> sends too much"
    town.sink.options = replace(town.sink.options, greeting=greeting)
    await town.open_sender()
    await town.quiet()
    [trouble] = await troubles(town)
    assert trouble.words == "421 4.7.0 <…> sends too much"


@pytest.mark.parametrize("is_test_mode", [True, False])
async def test_a_message_remembers_whether_its_mails_were_only_kept(
    town: Town, is_test_mode: bool
) -> None:
    town.scheduler.is_test_mode = is_test_mode
    ref = await town.mailing("ada")
    await town.open_sender()
    await town.quiet()
    town.scheduler.is_test_mode = False  # a mail server was set up since
    assert await town.is_archived(ref)
    assert (await town.read(ref)).is_test is is_test_mode
