"""What every engine promises about rows. One test, one promise; no engine is named in here."""

from __future__ import annotations

import asyncio
import contextlib
from enum import StrEnum

import pytest

from postroom.storage import port
from postroom.storage.port import (
    Change,
    Conflict,
    Delete,
    DeleteRange,
    Insert,
    KeysWithin,
    Replace,
    Row,
    Tables,
    Upsert,
    Value,
)
from tests.contract.engines import all_rows

TABLE = "mailinglist"
LIST = "contoso1"
ANN = "email:ann@contoso.edu"
BOB = "email:bob@contoso.edu"


async def properties_of(tables: Tables, key: str) -> dict[str, Value] | None:
    row = await tables.get(TABLE, LIST, key)
    return None if row is None else row.properties


# --- One row ----------------------------------------------------------------------------------


async def test_an_inserted_row_can_be_read(tables: Tables) -> None:
    etag = await tables.insert(TABLE, LIST, ANN, {"address": "Ann@contoso.edu"})
    row = await tables.get(TABLE, LIST, ANN)
    assert row == Row(LIST, ANN, {"address": "Ann@contoso.edu"}, etag)


async def test_an_absent_row_is_none(tables: Tables) -> None:
    await tables.insert(TABLE, LIST, ANN, {})
    assert await tables.get(TABLE, LIST, BOB) is None
    assert await tables.get(TABLE, "contoso2", ANN) is None
    assert await tables.get("message", LIST, ANN) is None


async def test_a_second_insertion_conflicts_and_changes_nothing(tables: Tables) -> None:
    etag = await tables.insert(TABLE, LIST, ANN, {"n": 1})
    with pytest.raises(Conflict):
        await tables.insert(TABLE, LIST, ANN, {"n": 2})
    assert await tables.get(TABLE, LIST, ANN) == Row(LIST, ANN, {"n": 1}, etag)


async def test_upsert_writes_whatever_stands_there(tables: Tables) -> None:
    first = await tables.upsert(TABLE, LIST, ANN, {"n": 1})
    second = await tables.upsert(TABLE, LIST, ANN, {"m": 2})
    assert await tables.get(TABLE, LIST, ANN) == Row(LIST, ANN, {"m": 2}, second)
    assert first != second


async def test_replace_takes_the_version_that_was_read(tables: Tables) -> None:
    etag = await tables.insert(TABLE, LIST, ANN, {"n": 1, "gone": True})
    fresh = await tables.replace(TABLE, LIST, ANN, {"n": 2}, etag)
    assert await tables.get(TABLE, LIST, ANN) == Row(LIST, ANN, {"n": 2}, fresh)
    assert fresh != etag


async def test_replace_of_another_version_conflicts_and_changes_nothing(tables: Tables) -> None:
    stale = await tables.insert(TABLE, LIST, ANN, {"n": 1})
    fresh = await tables.replace(TABLE, LIST, ANN, {"n": 2}, stale)
    with pytest.raises(Conflict):
        await tables.replace(TABLE, LIST, ANN, {"n": 3}, stale)
    assert await tables.get(TABLE, LIST, ANN) == Row(LIST, ANN, {"n": 2}, fresh)


async def test_replace_of_an_absent_row_conflicts(tables: Tables) -> None:
    etag = await tables.insert(TABLE, LIST, ANN, {})
    with pytest.raises(Conflict):
        await tables.replace(TABLE, LIST, BOB, {}, etag)
    assert await tables.get(TABLE, LIST, BOB) is None


async def test_replace_with_the_same_properties_makes_a_new_version(tables: Tables) -> None:
    etag = await tables.insert(TABLE, LIST, ANN, {"n": 1})
    assert await tables.replace(TABLE, LIST, ANN, {"n": 1}, etag) != etag


async def test_delete_removes_the_row(tables: Tables) -> None:
    await tables.insert(TABLE, LIST, ANN, {})
    await tables.delete(TABLE, LIST, ANN)
    assert await tables.get(TABLE, LIST, ANN) is None


async def test_delete_of_an_absent_row_is_fine(tables: Tables) -> None:
    await tables.delete(TABLE, LIST, ANN)


async def test_delete_with_the_etag_removes_that_version(tables: Tables) -> None:
    etag = await tables.insert(TABLE, LIST, ANN, {})
    await tables.delete(TABLE, LIST, ANN, etag)
    assert await tables.get(TABLE, LIST, ANN) is None


async def test_delete_of_another_version_conflicts_and_keeps_the_row(tables: Tables) -> None:
    stale = await tables.insert(TABLE, LIST, ANN, {"n": 1})
    await tables.upsert(TABLE, LIST, ANN, {"n": 2})
    with pytest.raises(Conflict):
        await tables.delete(TABLE, LIST, ANN, stale)
    assert await properties_of(tables, ANN) == {"n": 2}


async def test_delete_with_an_etag_of_an_absent_row_conflicts(tables: Tables) -> None:
    etag = await tables.insert(TABLE, LIST, ANN, {})
    await tables.delete(TABLE, LIST, ANN)
    with pytest.raises(Conflict):
        await tables.delete(TABLE, LIST, ANN, etag)


async def test_a_row_deleted_and_inserted_again_is_another_version(tables: Tables) -> None:
    stale = await tables.insert(TABLE, LIST, ANN, {"n": 1})
    await tables.delete(TABLE, LIST, ANN)
    assert await tables.insert(TABLE, LIST, ANN, {"n": 1}) != stale
    with pytest.raises(Conflict):
        await tables.replace(TABLE, LIST, ANN, {"n": 2}, stale)


async def test_of_many_replacing_one_version_exactly_one_wins(tables: Tables) -> None:
    etag = await tables.insert(TABLE, LIST, ANN, {"n": 0})
    outcomes = await asyncio.gather(
        *(tables.replace(TABLE, LIST, ANN, {"n": n}, etag) for n in range(1, 9)),
        return_exceptions=True,
    )
    winners = [n for n, outcome in enumerate(outcomes, 1) if isinstance(outcome, str)]
    assert len(winners) == 1
    assert all(isinstance(outcome, str | Conflict) for outcome in outcomes)
    assert await properties_of(tables, ANN) == {"n": winners[0]}


# --- Values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Zoë Ünïcödé, 学生, студент, 🎓 \U0010ffff",
        "quotes \" ' ` and \\ and </script> and NULL",
        "controls \x00 \x01 \x1f \x7f \u2028 \r\n\t",
        "x" * port.PROPERTY_CHARS_MAX,
        "学" * port.PROPERTY_CHARS_MAX,
        0,
        -1,
        2**53,
        -(2**53),
        port.PROPERTY_INT_MAX,
        -port.PROPERTY_INT_MAX - 1,
        0.0,
        1.0,
        -2.5,
        1e-300,
        1.7976931348623157e308,
        0.1 + 0.2,
        True,
        False,
    ],
    ids=lambda value: ascii(value)[:20],
)
async def test_a_value_is_read_as_it_was_written(tables: Tables, value: Value) -> None:
    await tables.insert(TABLE, LIST, ANN, {"value": value})
    row = await tables.get(TABLE, LIST, ANN)
    [scanned] = await all_rows(tables, TABLE, KeysWithin(LIST))
    assert row is not None
    assert row == scanned
    assert row.properties == {"value": value}
    assert type(row.properties["value"]) is type(value)


async def test_an_enum_is_read_as_its_plain_value(tables: Tables) -> None:
    class State(StrEnum):
        QUEUED = "queued"

    await tables.insert(TABLE, LIST, ANN, {"state": State.QUEUED})
    row = await tables.get(TABLE, LIST, ANN)
    assert row is not None
    assert type(row.properties["state"]) is str
    assert await all_rows(tables, TABLE, KeysWithin(LIST), where={"state": State.QUEUED}) == [row]


class Visit(port.FlatRow, frozen=True, omit_defaults=True, rename="pascal"):
    visitor: str
    number: int
    is_first: bool
    share: float = 0.5
    remarks: str = ""


async def test_a_struct_is_written_as_its_properties(tables: Tables) -> None:
    changes: list[Change] = [
        Upsert(ANN, Visit("Zoë 🎓", 0, True, 1.0, 'a "b"\n\u2028')),
        Insert(BOB, {"n": 1}),
        Insert("email:carl@contoso.edu", Visit("", -(2**63), False)),
    ]
    await tables.batch(TABLE, LIST, changes)
    assert await properties_of(tables, ANN) == {
        "Visitor": "Zoë 🎓",
        "Number": 0,
        "IsFirst": True,
        "Share": 1.0,
        "Remarks": 'a "b"\n\u2028',
    }
    assert await properties_of(tables, BOB) == {"n": 1}
    carl = await properties_of(tables, "email:carl@contoso.edu")
    assert carl == {"Visitor": "", "Number": -(2**63), "IsFirst": False}  # no defaults


async def test_what_the_caller_does_to_its_dict_later_changes_nothing(tables: Tables) -> None:
    mine: dict[str, Value] = {"n": 1}
    await tables.insert(TABLE, LIST, ANN, mine)
    mine["n"] = 2
    row = await tables.get(TABLE, LIST, ANN)
    assert row is not None
    row.properties["n"] = 3
    assert await properties_of(tables, ANN) == {"n": 1}


async def test_a_row_may_have_many_large_properties(tables: Tables) -> None:
    large: dict[str, Value] = {f"part_{n}": "y" * 30_000 for n in range(16)}
    await tables.insert(TABLE, LIST, ANN, large)
    assert await properties_of(tables, ANN) == large


# --- Batches ----------------------------------------------------------------------------------


async def test_a_batch_applies_every_kind_of_change(tables: Tables) -> None:
    old = await tables.insert(TABLE, LIST, "replaced", {"n": 0})
    for key in ("upserted", "deleted", "deleted-by-etag"):
        etag = await tables.insert(TABLE, LIST, key, {"n": 0})
    etags = await tables.batch(
        TABLE,
        LIST,
        [
            Insert("inserted", {"n": 1}),
            Delete("deleted"),
            Upsert("upserted", {"n": 2}),
            Delete("deleted-by-etag", etag),
            Replace("replaced", {"n": 3}, old),
            Upsert("upserted-new", {"n": 4}),
        ],
    )
    assert [etag == "" for etag in etags] == [False, True, False, True, False, False]
    assert await all_rows(tables, TABLE, KeysWithin(LIST)) == [
        Row(LIST, "inserted", {"n": 1}, etags[0]),
        Row(LIST, "replaced", {"n": 3}, etags[4]),
        Row(LIST, "upserted", {"n": 2}, etags[2]),
        Row(LIST, "upserted-new", {"n": 4}, etags[5]),
    ]


FAILING: dict[str, Change] = {
    "insert-of-existing": Insert("present", {"n": 9}),
    "replace-of-absent": Replace("absent", {"n": 9}, "1"),
    "replace-of-another-version": Replace("present", {"n": 9}, "0"),
    "delete-of-absent": Delete("absent"),
    "delete-of-absent-version": Delete("absent", "1"),
    "delete-of-another-version": Delete("present", "0"),
}


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
async def test_a_batch_with_one_failing_change_changes_nothing(
    tables: Tables, failing: Change, place: int
) -> None:
    etag = await tables.insert(TABLE, LIST, "c-replaced", {"n": 0})
    for key in ("b-upserted", "d-deleted", "present"):
        await tables.insert(TABLE, LIST, key, {"n": 0})
    before = await all_rows(tables, TABLE, KeysWithin(LIST))
    changes: list[Change] = [
        Insert("a-inserted", {"n": 1}),
        Upsert("b-upserted", {"n": 1}),
        Replace("c-replaced", {"n": 1}, etag),
        Delete("d-deleted"),
    ]
    changes.insert(place, failing)
    with pytest.raises(Conflict):
        await tables.batch(TABLE, LIST, changes)
    assert await all_rows(tables, TABLE, KeysWithin(LIST)) == before


@pytest.mark.parametrize("place", [0, 50, 99])
async def test_insertions_that_meet_one_existing_row_insert_nothing(
    tables: Tables, place: int
) -> None:
    await tables.insert(TABLE, LIST, f"{place:03}", {"old": True})
    before = await all_rows(tables, TABLE, KeysWithin(LIST))
    with pytest.raises(Conflict):
        await tables.batch(TABLE, LIST, [Insert(f"{n:03}", {}) for n in range(100)])
    assert await all_rows(tables, TABLE, KeysWithin(LIST)) == before


async def test_a_batch_of_a_hundred_is_read_back_in_key_order(tables: Tables) -> None:
    keys = [f"{n * 37 % 100:03}" for n in range(100)]
    etags = await tables.batch(TABLE, LIST, [Insert(key, {"key": key}) for key in keys])
    expected = sorted(zip(keys, etags, strict=True))
    rows = await all_rows(tables, TABLE, KeysWithin(LIST))
    assert [(row.key, row.etag) for row in rows] == expected
    assert all(row.properties == {"key": row.key} for row in rows)


async def test_etags_of_a_batch_are_good_for_the_next_change(tables: Tables) -> None:
    etags = await tables.batch(TABLE, LIST, [Insert(ANN, {}), Insert(BOB, {})])
    await tables.replace(TABLE, LIST, ANN, {"n": 1}, etags[0])
    await tables.batch(TABLE, LIST, [Delete(BOB, etags[1])])
    assert [row.key for row in await all_rows(tables, TABLE, KeysWithin(LIST))] == [ANN]


GUARD = "batch"
TO_KEYS = ("to:ann", "to:bob", "to:carl")


async def guarded_rows(tables: Tables, *others: str) -> str:
    """Rows of a range, with a guard before it and rows right outside of it; the guard's etag."""
    keys = (*TO_KEYS, "to", "to9", "to;", *others)
    etags = await tables.batch(TABLE, LIST, [Insert(key, {}) for key in (GUARD, *keys)])
    await tables.insert(TABLE, "contoso2", TO_KEYS[0], {})
    return etags[0]


async def keys_left(tables: Tables) -> list[str]:
    return [row.key for row in await all_rows(tables, TABLE, KeysWithin(LIST))]


async def test_a_range_is_deleted_as_a_whole_and_nothing_beside_it(tables: Tables) -> None:
    etag = await guarded_rows(tables)
    keys = (TO_KEYS[2], TO_KEYS[0], TO_KEYS[1])  # in any order
    changes: list[Change] = [
        Upsert("new", {}),
        DeleteRange("to:", "to;", keys),
        Replace(GUARD, {"n": 1}, etag),
    ]
    etags = await tables.batch(TABLE, LIST, changes)
    assert [bool(new) for new in etags] == [True, False, True]
    assert await keys_left(tables) == [GUARD, "new", "to", "to9", "to;"]
    assert await tables.get(TABLE, "contoso2", TO_KEYS[0]) is not None
    guard = await tables.get(TABLE, LIST, GUARD)
    assert guard is not None
    assert guard.etag == etags[2]


async def test_a_range_with_an_absent_row_conflicts_and_changes_nothing(tables: Tables) -> None:
    etag = await guarded_rows(tables)
    before = await keys_left(tables)
    wrong: list[list[Change]] = [
        [DeleteRange("to:", "to;", (*TO_KEYS, "to:zoe"))],
        [DeleteRange("to:", "to;", ("to:zoe",))],
        [DeleteRange("to:", "to;", TO_KEYS), Replace(GUARD, {}, "another etag")],
        [DeleteRange("to:", "to;", TO_KEYS), Insert(GUARD, {})],
        [Replace(GUARD, {}, etag), DeleteRange("to:", "to;", TO_KEYS), Delete("absent")],
    ]
    for changes in wrong:
        with pytest.raises(Conflict):
            await tables.batch(TABLE, LIST, changes)
        assert await keys_left(tables) == before


async def test_a_row_of_the_range_that_is_not_named_stays(tables: Tables) -> None:
    await guarded_rows(tables, "to:zoe")
    with contextlib.suppress(Conflict):  # of an engine that sees it
        await tables.batch(TABLE, LIST, [DeleteRange("to:", "to;", TO_KEYS)])
    assert "to:zoe" in await keys_left(tables)


async def test_batches_in_parallel_each_apply_whole(tables: Tables) -> None:
    outcomes = await asyncio.gather(
        *(
            tables.batch(TABLE, LIST, [Insert("same", {"by": n}), Insert(f"of-{n}", {"by": n})])
            for n in range(8)
        ),
        return_exceptions=True,
    )
    [winner] = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, Conflict)]
    rows = await all_rows(tables, TABLE, KeysWithin(LIST))
    assert {row.key: row.properties for row in rows} == {
        "same": {"by": winner},
        f"of-{winner}": {"by": winner},
    }


async def test_batches_are_written_one_after_the_other(tables: Tables) -> None:
    etags = await tables.batches([("message", f"p{n}", [Insert("k", {"n": n})]) for n in range(3)])
    for number in range(3):
        row = await tables.get("message", f"p{number}", "k")
        assert row
        assert row.properties == {"n": number}
        assert etags[number] == [row.etag]


async def test_batches_may_be_of_several_tables(tables: Tables) -> None:
    await tables.insert("message", "p", "old", {})
    etags = await tables.batches(
        [
            ("messagearchive", "p", [Upsert("k", {"n": 1}), Upsert("l", {"n": 2})]),
            ("message", "p", [Insert("k", {"n": 3}), Delete("old")]),
        ]
    )
    archived = await tables.get("messagearchive", "p", "l")
    live = await tables.get("message", "p", "k")
    assert archived
    assert live
    assert archived.properties == {"n": 2}
    assert live.properties == {"n": 3}
    assert (etags[0][1], etags[1]) == (archived.etag, [live.etag, ""])
    assert await tables.get("message", "p", "old") is None


async def test_a_refused_batch_is_left_out_and_all_behind_it(tables: Tables) -> None:
    await tables.insert("message", "p1", "k", {"n": -1})
    batches = [("message", f"p{n}", [Insert("k", {"n": n}), Insert("l", {})]) for n in range(3)]
    with pytest.raises(Conflict):
        await tables.batches(batches)
    assert await tables.get("message", "p0", "k")
    assert await tables.get("message", "p0", "l")
    assert await tables.get("message", "p1", "l") is None
    assert await tables.get("message", "p2", "k") is None


async def test_no_batches_are_fine(tables: Tables) -> None:
    assert await tables.batches([]) == []
