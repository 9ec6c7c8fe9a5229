"""A deleted list: gone to the last row, however often the deletion dies half-way."""

from __future__ import annotations

import pytest

from postroom.domain.address import parse_address
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.flow import subscribe, sweep
from postroom.records import lists
from postroom.records.rows import all_rows
from postroom.storage.port import KeysAcross
from tests.acting import acting
from tests.scenario.town import LIST, Town, students


async def rows_left(town: Town) -> int:
    return len([row async for row in all_rows(town.storage.tables, "mailinglist", KeysAcross())])


async def half_deleted(town: Town) -> None:
    """A deletion that died after its second batch."""
    await town.found_list()
    await town.join(*students(75))  # four rows each: person, pointer, consent, change of counts
    await lists.start_deleting(town.storage.tables, LIST)
    assert await sweep.delete_rows_of(town.storage.tables, LIST, at_most=2) == 200


async def test_the_sweep_continues_with_a_deletion_that_died(town: Town) -> None:
    await half_deleted(town)
    assert await rows_left(town) == 1 + 100
    await town.scheduler.step()
    assert await rows_left(town) == 0


async def test_the_name_is_taken_until_the_old_list_is_gone(town: Town) -> None:
    await half_deleted(town)
    with pytest.raises(AlreadyThere, match="still being deleted"):
        await town.found_list()
    await town.scheduler.step()
    await town.found_list()
    with pytest.raises(AlreadyThere, match="There is already a list contoso1"):
        await town.found_list()


async def test_nobody_joins_a_list_that_is_being_deleted(town: Town) -> None:
    await half_deleted(town)
    with pytest.raises(NotFound, match="There is no list"):
        await town.join("zoe")
    address = parse_address("zoe@contoso.edu")
    with pytest.raises(NotFound, match="There is no list"):
        await subscribe.sign_up(acting(town.storage, town.clock.now()), LIST, address, {})


async def test_a_sweep_deletes_so_many_rows_and_no_more(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "LIST_BATCHES_A_SWEEP", 1)
    await half_deleted(town)
    assert await sweep.finish_deletions(town.storage.tables) == 100
    assert await lists.is_being_deleted(town.storage.tables, LIST)
    assert await sweep.finish_deletions(town.storage.tables) == 0
    assert not await lists.is_being_deleted(town.storage.tables, LIST)


async def test_other_lists_are_left_alone(town: Town) -> None:
    await town.found_list("contoso2")
    await town.join("ada", list_name="contoso2")
    await sweep.fold_counts(town.storage.tables)
    before = await rows_left(town)
    await half_deleted(town)
    await town.scheduler.step()
    assert await rows_left(town) == before
    names = [found.name async for found in lists.every_list(town.storage.tables)]
    assert names == ["contoso2"]
