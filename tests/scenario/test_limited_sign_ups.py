"""Sign-ups at a limited domain: each is asked once, others do not wait, and a stop is a stop."""

from __future__ import annotations

from postroom.domain.address import parse_address
from postroom.flow import subscribe
from tests.acting import acting
from tests.clock import soon
from tests.scenario.test_rate_limit import limit_contoso
from tests.scenario.town import LEASE_S, LIST, Town, address_of, once_each, students

NAMES = students(8)


async def sign_up(town: Town, *names: str) -> None:
    for name in names:
        address = parse_address(address_of(name))
        await subscribe.sign_up(acting(town.storage, town.clock.now()), LIST, address, {})


async def test_others_do_not_wait_for_sign_ups_at_a_limited_domain(town: Town) -> None:
    await limit_contoso(town, 0.05)
    await town.found_list()
    now = town.clock.now()
    reader = parse_address("reader@example.org")
    await subscribe.add(acting(town.storage, now), LIST, reader, {}, verified=True)
    await sign_up(town, *NAMES)
    role = await town.open_sender(lanes=4)
    while await role.step():
        pass
    await town.compose()
    await town.fan_out()
    while "reader" not in town.arrived():
        if not await role.step():
            await soon(role.wakeup.wait(0.1))
        if not role.lease.is_held():  # short sleeps moved the clock faster than it was renewed
            town.clock.move(LEASE_S / 3)
    assert len(town.sink.mails) < len(NAMES)  # most of those still wait


async def test_nobody_is_asked_twice_for_a_slow_limit(town: Town) -> None:
    await limit_contoso(town, 0.02)
    await town.found_list()
    await sign_up(town, *NAMES)
    await town.open_sender(lanes=4)
    await town.quiet()
    await town.live_through(600, 60)
    assert town.arrived() == once_each(NAMES)


async def test_a_planned_stop_does_not_wait_for_the_turn_of_a_confirmation(town: Town) -> None:
    await limit_contoso(town, 0.01)
    await town.found_list()
    await sign_up(town, *NAMES)
    role = await town.open_sender(lanes=1)
    assert await role.step()
    await town.clock.paused(3)
    stopped_at = town.clock.now()
    role.stop_handing_over()
    await soon(town.close_sender(role))
    assert (town.clock.now() - stopped_at).total_seconds() < 1
