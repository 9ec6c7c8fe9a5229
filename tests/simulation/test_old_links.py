"""Leave, join again, open the link of an old mail: killed at every single I/O, it still holds."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.flow import subscribe
from postroom.flow.subscribe import UnsubscribeResult
from postroom.records import lists, recipients
from tests.acting import acting
from tests.simulation.post import SENDER
from tests.simulation.world import START, Crash, Faults, World, instantly

T = TypeVar("T")
LIST = "contoso1"
ADA = parse_address("ada@contoso.edu")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """To its end, or to its death."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result


async def join(world: World, *, bring_back: bool = False) -> str:
    tables = world.disk.tables
    added = await subscribe.add(
        acting(tables, START), LIST, ADA, {}, verified=True, bring_back=bring_back
    )
    return added.guid


def world_with_ada_back(crash_at: int | None) -> tuple[World, str]:
    """Ada left and is on the list again; gives the GUID in her oldest mail."""
    world = World(0, Faults(crash_at=crash_at))
    news = MailingList(name=LIST, description="News", sender=SENDER, created_at=START)
    instantly(lists.create(world.disk.tables, news))
    old = instantly(join(world))
    instantly(subscribe.leave(acting(world.disk, START), LIST, old))
    assert instantly(join(world, bring_back=True)) != old
    return world, old


def is_in_the_audience(world: World) -> bool:
    people, _ = instantly(recipients.verified_after(world.disk.tables, LIST, "", limit=10))
    return bool(people)


def test_killed_anywhere_the_next_click_finishes_it() -> None:
    for crash_at in count(1):
        world, old = world_with_ada_back(crash_at)
        leave = subscribe.leave(acting(world.storage(), START), LIST, old)
        try:
            assert run(leave) is UnsubscribeResult.NOW
        except Crash:
            again = instantly(subscribe.leave(acting(world.disk, START), LIST, old))
            assert again in (UnsubscribeResult.NOW, UnsubscribeResult.ALREADY)
        else:
            assert crash_at > 5, "it was never killed"
            return
        finally:
            assert not is_in_the_audience(world)


def test_she_may_come_back_again_and_every_link_works() -> None:
    world, old = world_with_ada_back(None)
    links = [old]
    for _ in range(3):
        for link in links:
            assert is_in_the_audience(world)
            instantly(subscribe.leave(acting(world.disk, START), LIST, link))
            assert not is_in_the_audience(world)
            new = instantly(join(world, bring_back=True))
        links.append(new)
