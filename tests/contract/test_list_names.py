"""A list's name is one list's, on every engine: whatever its capitals, whoever comes at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from postroom.domain.errors import AlreadyThere
from postroom.domain.mailing_list import MailingList
from postroom.flow import sweep
from postroom.records import lists
from postroom.storage.port import Conflict, Tables

NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)


def named(name: str) -> MailingList:
    return MailingList(name=name, description="", sender="a@contoso.edu", created_at=NOW)


async def names(tables: Tables) -> list[str]:
    """As the directory shows them, and as they are found by name."""
    shown = [each.name async for each in lists.every_list(tables)]
    for each in shown:
        assert await lists.find(tables, each)
    return shown


async def is_made(tables: Tables, name: str) -> bool:
    try:
        await lists.create(tables, named(name))
    except AlreadyThere:
        return False
    return True


async def deleted(tables: Tables, name: str) -> None:
    await lists.start_deleting(tables, name)
    await sweep.finish_deletions(tables)


@pytest.mark.parametrize("second", ["News", "NEWS", "nEWS"])
async def test_names_that_differ_in_capitals_alone_are_one_name(
    tables: Tables, second: str
) -> None:
    await lists.create(tables, named("news"))
    with pytest.raises(
        AlreadyThere, match=f"already a list news, which differs from {second} only"
    ):
        await lists.create(tables, named(second))
    assert await names(tables) == ["news"]
    assert await lists.find(tables, second) is None


async def test_of_several_that_come_at_once_one_wins(tables: Tables) -> None:
    spellings = ["news", "News", "nEws", "NEWS"]
    made = await asyncio.gather(*(is_made(tables, each) for each in spellings))
    assert made.count(True) == 1
    assert await names(tables) == [spellings[made.index(True)]]
    rows = [await lists.find(tables, each) for each in spellings]
    assert [row is not None for row in rows] == made


async def test_whoever_dies_before_the_list_is_made_leaves_the_name_to_the_same_spelling(
    tables: Tables,
) -> None:
    await tables.insert(lists.TABLE, lists.DIRECTORY, "news", {"Format": 1, "ListName": "News"})
    assert await names(tables) == []
    assert not await is_made(tables, "news")  # the one who seems dead may only be slow
    assert await is_made(tables, "News")
    assert await names(tables) == ["News"]


async def test_a_deleted_name_is_free_for_every_spelling_once_its_rows_are_gone(
    tables: Tables,
) -> None:
    await lists.create(tables, named("News"))
    await lists.start_deleting(tables, "News")
    for name in ("News", "news"):
        with pytest.raises(AlreadyThere, match="still being deleted"):
            await lists.create(tables, named(name))
    await sweep.finish_deletions(tables)
    assert await is_made(tables, "news")
    assert await names(tables) == ["news"]


async def test_a_late_deletion_does_not_touch_the_list_that_has_the_name_now(
    tables: Tables,
) -> None:
    await lists.create(tables, named("News"))
    await deleted(tables, "News")
    await lists.create(tables, named("news"))
    with pytest.raises(Conflict):
        await lists.start_deleting(tables, "News")
    assert not await lists.is_being_deleted(tables, "News")
    await lists.forget(tables, "News")
    assert await names(tables) == ["news"]


async def test_whoever_is_slow_does_not_make_a_second_list_of_the_name(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its two writes others make the list, delete it, and make it in other letters."""
    insert = tables.insert

    async def slow_insert(table: str, partition: str, key: str, properties: object) -> str:
        if partition == "News":
            monkeypatch.setattr(tables, "insert", insert)
            await lists.create(tables, named("News"))
            await deleted(tables, "News")
            await lists.create(tables, named("news"))
        return await insert(table, partition, key, properties)  # type: ignore[arg-type]

    monkeypatch.setattr(tables, "insert", slow_insert)
    assert not await is_made(tables, "News")
    assert await lists.find(tables, "News") is None
    assert await names(tables) == ["news"]


async def test_lists_are_shown_by_name_whatever_their_capitals(tables: Tables) -> None:
    for name in ("beta", "Alpha", "Gamma", "delta"):
        await lists.create(tables, named(name))
    first, after = await lists.page(tables, limit=2)
    assert after is not None
    second, end = await lists.page(tables, limit=2, after=after)
    assert [each.name for each in first + second] == ["Alpha", "beta", "delta", "Gamma"]
    assert end is None
