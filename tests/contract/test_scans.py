"""What every engine promises about scans. One test, one promise; no engine is named in here."""

from __future__ import annotations

import pytest

from postroom.storage.port import (
    FlatRow,
    Insert,
    Keys,
    KeysAcross,
    KeysWithin,
    Properties,
    Tables,
    TypedRow,
    Unreadable,
    Value,
)
from tests.contract.engines import all_rows

TABLE = "message"
KEYS = [f"k{n:02}" for n in range(20)]


async def fill(tables: Tables, *partitions: str, keys: list[str] = KEYS) -> None:
    for partition in partitions:
        changes = [Insert(key, {"n": n, "even": n % 2 == 0}) for n, key in enumerate(keys)]
        await tables.batch(TABLE, partition, changes)


async def places(
    tables: Tables, keys: Keys, *, where: Properties | None = None, limit: int = 1000
) -> list[tuple[str, str]]:
    rows = await all_rows(tables, TABLE, keys, where=where, limit=limit)
    return [(row.partition, row.key) for row in rows]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 19, 20, 21, 1000])
async def test_pages_of_any_size_give_every_row_once_in_order(tables: Tables, limit: int) -> None:
    await fill(tables, "a", "b", "c")
    assert await places(tables, KeysWithin("b"), limit=limit) == [("b", key) for key in KEYS]


@pytest.mark.parametrize("limit", [1, 7, 20, 1000])
async def test_a_scan_across_goes_by_partition_then_key(tables: Tables, limit: int) -> None:
    await fill(tables, "b", "a", "c")
    expected = [(partition, key) for partition in "abc" for key in KEYS]
    assert await places(tables, KeysAcross(), limit=limit) == expected


async def test_more_rows_than_a_page_holds_come_in_several(tables: Tables) -> None:
    for first in range(0, 1200, 100):
        changes = [Insert(f"{n:04}", {"n": n}) for n in range(first, first + 100)]
        await tables.batch(TABLE, "p", changes)
    rows = await all_rows(tables, TABLE, KeysWithin("p"))
    assert [row.properties["n"] for row in rows] == list(range(1200))


async def test_an_empty_range_gives_nothing(tables: Tables) -> None:
    await fill(tables, "a")
    assert await places(tables, KeysWithin("b")) == []
    assert await places(tables, KeysWithin("a", "l")) == []
    assert await places(tables, KeysWithin("a", "k05", "k05")) == []
    assert await places(tables, KeysAcross("b")) == []


@pytest.mark.parametrize(
    ("start", "stop", "first", "last"),
    [
        ("k05", "k08", "k05", "k07"),
        ("k05", "", "k05", "k19"),
        ("", "k03", "k00", "k02"),
        ("k049", "k0500", "k05", "k05"),
    ],
)
async def test_the_start_belongs_to_the_range_and_the_stop_does_not(
    tables: Tables, start: str, stop: str, first: str, last: str
) -> None:
    await fill(tables, "a", "b")
    found = await places(tables, KeysWithin("a", start, stop), limit=2)
    assert found == [("a", key) for key in KEYS if first <= key <= last]


async def test_partitions_have_the_same_bounds_when_scanning_across(tables: Tables) -> None:
    await fill(tables, "2026-11-14", "2026-11-15", "2026-11-16", "2026-11-17", keys=["x", "y"])
    found = await places(tables, KeysAcross("2026-11-15", "2026-11-17"), limit=3)
    assert found == [(day, key) for day in ("2026-11-15", "2026-11-16") for key in "xy"]
    assert await places(tables, KeysAcross("2026-11-17")) == [("2026-11-17", key) for key in "xy"]
    assert await places(tables, KeysAcross("", "2026-11-15")) == [
        ("2026-11-14", key) for key in "xy"
    ]


async def test_keys_are_ordered_by_their_characters(tables: Tables) -> None:
    keys = ["", " ", "!", '"', "'", "-", "0", "10", "9", "A", "Z", "_", "a", "aa", "b", "~"]
    await fill(tables, "p", keys=keys[::-1])
    assert await places(tables, KeysWithin("p"), limit=3) == [("p", key) for key in keys]
    assert await places(tables, KeysAcross("p"), limit=3) == [("p", key) for key in keys]


async def test_a_partition_whose_name_begins_alike_is_another(tables: Tables) -> None:
    await fill(tables, "p", "p ", "p-1", "pp", keys=["k"])
    assert await places(tables, KeysWithin("p")) == [("p", "k")]
    assert await places(tables, KeysAcross("p", "p-2"), limit=1) == [
        ("p", "k"),
        ("p ", "k"),
        ("p-1", "k"),
    ]


# --- Filters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_a_filter_gives_every_match_and_nothing_else(tables: Tables, limit: int) -> None:
    await fill(tables, "a", "b")
    found = await places(tables, KeysWithin("a"), where={"even": True}, limit=limit)
    assert found == [("a", key) for key in KEYS[::2]]


async def test_a_filter_works_across_partitions(tables: Tables) -> None:
    await fill(tables, "a", "b", "c")
    found = await places(tables, KeysAcross("b"), where={"n": 7}, limit=1)
    assert found == [("b", "k07"), ("c", "k07")]


async def test_all_conditions_of_a_filter_must_hold(tables: Tables) -> None:
    await fill(tables, "a")
    assert await places(tables, KeysWithin("a"), where={"n": 4, "even": True}) == [("a", "k04")]
    assert await places(tables, KeysWithin("a"), where={"n": 4, "even": False}) == []


async def test_a_filter_on_a_property_that_rows_lack_gives_nothing(tables: Tables) -> None:
    await fill(tables, "a")
    assert await places(tables, KeysWithin("a"), where={"state": "queued"}) == []


async def test_a_filter_tells_types_apart(tables: Tables) -> None:
    values: dict[str, Value] = {"bool": True, "float": 1.0, "int": 1, "str": "1", "word": "true"}
    await tables.batch(TABLE, "a", [Insert(key, {"x": value}) for key, value in values.items()])
    for key, value in values.items():
        assert await places(tables, KeysWithin("a"), where={"x": value}) == [("a", key)]


async def test_a_filter_finds_text_of_any_kind(tables: Tables) -> None:
    texts = ["", "学生", "it's", 'say "hi"', "a\\b", "line\nbreak", "nul\x00", "%", "_", "€ 🎓"]
    await tables.batch(TABLE, "a", [Insert(f"k{n}", {"x": x}) for n, x in enumerate(texts)])
    for n, text in enumerate(texts):
        assert await places(tables, KeysWithin("a"), where={"x": text}) == [("a", f"k{n}")]


async def test_a_filter_is_not_fooled_by_what_looks_like_it(tables: Tables) -> None:
    """An engine that searches the text of a row finds none of these."""
    lookalikes: dict[str, Properties] = {
        "inside": {"a": '"x":1,', "b": '{"x":1}', "c": ',"x":1,"'},
        "ends": {"a": '"x', "b": 1},
        "longer": {"x": 12, "xx": 1, "y": 1},
        "other": {"x": 1.5},
        "upper": {"X": 1},
        "text": {"x": "1", "y": "x"},
    }
    rows = lookalikes | {"first": {"x": 1, "y": ""}, "last": {"a": "", "x": 1}, "only": {"x": 1}}
    await tables.batch(TABLE, "a", [Insert(key, row) for key, row in rows.items()])
    found = await places(tables, KeysWithin("a"), where={"x": 1})
    assert found == [("a", "first"), ("a", "last"), ("a", "only")]


async def test_an_empty_filter_is_no_filter(tables: Tables) -> None:
    await fill(tables, "a", keys=["x", "y"])
    assert await places(tables, KeysWithin("a"), where={}) == [("a", "x"), ("a", "y")]


# --- Changes between two pages ----------------------------------------------------------------


@pytest.mark.parametrize("where", [None, {"even": True}])
@pytest.mark.parametrize("keys", [KeysWithin("p"), KeysAcross("p", "q")])
async def test_changes_between_pages_neither_repeat_nor_skip_other_rows(
    tables: Tables, keys: Keys, where: Properties | None
) -> None:
    stay = [f"k{n:02}" for n in range(0, 40, 2)]
    await tables.batch(TABLE, "p", [Insert(key, {"even": True}) for key in stay])
    found: list[str] = []
    after = None
    for step in range(100):
        page = await tables.scan(TABLE, keys, where=where, limit=3, after=after)
        found += [row.key for row in page.rows]
        after = page.next
        if after is None:
            break
        await tables.upsert(TABLE, "p", "z-ahead", {"even": True, "step": step})
        if found:
            await tables.delete(TABLE, "p", f"j-behind-{step - 1}")
            await tables.upsert(TABLE, "p", f"j-behind-{step}", {"even": True})
    assert found == [*stay, "z-ahead"]


async def test_a_scan_continues_though_its_last_row_was_deleted(tables: Tables) -> None:
    await fill(tables, "p")
    found: list[str] = []
    after = None
    for _ in range(100):
        page = await tables.scan(TABLE, KeysWithin("p"), limit=3, after=after)
        found += [row.key for row in page.rows]
        for row in page.rows:
            await tables.delete(TABLE, "p", row.key)
        after = page.next
        if after is None:
            break
    assert found == KEYS
    assert await places(tables, KeysWithin("p")) == []


# --- Typed rows -------------------------------------------------------------------------------


class Numbered(FlatRow, frozen=True):
    n: int
    note: str = "none"


async def numbered(
    tables: Tables, keys: Keys, *, where: Properties | None = None, limit: int = 1000
) -> list[TypedRow[Numbered]]:
    typed: list[TypedRow[Numbered]] = []
    after: str | None = None
    for _page in range(100):
        page = await tables.scan_as(Numbered, TABLE, keys, where=where, limit=limit, after=after)
        typed += page.rows
        after = page.next
        if after is None:
            return typed
    raise AssertionError("more pages than rows")


@pytest.mark.parametrize("where", [None, {"even": True}])
@pytest.mark.parametrize("limit", [1, 7, 1000])
async def test_typed_rows_are_the_same_rows_page_by_page(
    tables: Tables, where: Properties | None, limit: int
) -> None:
    await fill(tables, "a", "b")
    typed = await numbered(tables, KeysAcross(), where=where, limit=limit)
    rows = await all_rows(tables, TABLE, KeysAcross(), where=where)
    assert [(row.partition, row.key, row.etag, row.properties) for row in typed] == [
        (row.partition, row.key, row.etag, Numbered(int(row.properties["n"]))) for row in rows
    ]


@pytest.mark.parametrize("content", [{}, {"n": "1"}, {"n": True}, {"n": 1.5}, {"n": 1, "note": 2}])
async def test_a_row_that_does_not_fit_is_unreadable(tables: Tables, content: Properties) -> None:
    await tables.batch(TABLE, "p", [Insert("k1", {"n": 1}), Insert("k2", content)])
    with pytest.raises(Unreadable):
        await numbered(tables, KeysWithin("p"))
    assert len(await all_rows(tables, TABLE, KeysWithin("p"))) == 2
