"""What every engine refuses, so that nobody meets a limit first when moving to another engine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from postroom.storage import port
from postroom.storage.port import (
    Blobs,
    Change,
    Delete,
    DeleteRange,
    Insert,
    KeysAcross,
    KeysWithin,
    Queues,
    Tables,
    Upsert,
)

BAD_KEYS = ["a/b", "a\\b", "a#b", "a?b", "tab\t", "line\n", "del\x7f", "ü", "x" * 513]
BAD_VALUES: dict[str, Any] = {
    "too-long": "x" * (port.PROPERTY_CHARS_MAX + 1),
    "too-long-as-utf-16": "🎓" * (port.PROPERTY_CHARS_MAX // 2 + 1),
    "half-a-surrogate-pair": "\ud800",
    "too-large-an-int": port.PROPERTY_INT_MAX + 1,
    "too-small-an-int": -port.PROPERTY_INT_MAX - 2,
    "far-too-large-an-int": 10**30,
    "not-a-number": float("nan"),
    "infinity": float("inf"),
    "none": None,
    "list": [1],
    "bytes": b"x",
    "datetime": datetime(2026, 11, 15, tzinfo=UTC),
}
QUEUE = "azuremailqueue"


@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
async def test_a_key_that_some_engine_cannot_hold_is_refused(tables: Tables, key: str) -> None:
    for place in (("p", key), (key, "k")):
        with pytest.raises(ValueError):
            await tables.get("message", *place)
        with pytest.raises(ValueError):
            await tables.insert("message", *place, {})
        with pytest.raises(ValueError):
            await tables.delete("message", *place)
    for keys in (
        KeysWithin(key),
        KeysWithin("p", key),
        KeysWithin("p", "", key),
        KeysAcross(key),
        KeysAcross("", key),
    ):
        with pytest.raises(ValueError):
            await tables.scan("message", keys)


async def test_the_longest_key_is_taken(tables: Tables) -> None:
    longest = "~" * port.KEY_CHARS_MAX
    etag = await tables.insert("message", longest, longest, {})
    row = await tables.get("message", longest, longest)
    assert row is not None
    assert row.etag == etag


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
async def test_a_value_that_some_engine_cannot_hold_is_refused(tables: Tables, value: Any) -> None:
    with pytest.raises(ValueError):
        await tables.upsert("message", "p", "k", {"fine": 1, "value": value})
    with pytest.raises(ValueError):
        await tables.scan("message", KeysWithin("p"), where={"value": value})
    assert await tables.get("message", "p", "k") is None


@pytest.mark.parametrize(
    "name", ["", "1st", "a-b", "a.b", "a b", "ü", "RowKey", "PartitionKey", "Timestamp", "x" * 256]
)
async def test_a_property_name_that_some_engine_cannot_hold_is_refused(
    tables: Tables, name: str
) -> None:
    with pytest.raises(ValueError):
        await tables.insert("message", "p", "k", {name: 1})
    with pytest.raises(ValueError):
        await tables.scan("message", KeysWithin("p"), where={name: 1})


class Nested(port.FlatRow, frozen=True):
    values: list[str]


class Misnamed(port.FlatRow, frozen=True, rename={"key": "RowKey"}):
    key: str


class Plain(port.FlatRow, frozen=True):
    text: str
    number: int = 0


@pytest.mark.parametrize(
    "row",
    [
        Nested([]),
        Misnamed("k"),
        Plain("\ud800"),
        Plain("", 2**70),
        Plain("x" * (port.PROPERTY_CHARS_MAX + 1)),
        Plain("🎓" * (port.PROPERTY_CHARS_MAX // 2 + 1)),
    ],
    ids=["nested", "misnamed", "surrogate", "number", "long", "long-in-utf-16"],
)
async def test_a_struct_that_some_engine_cannot_hold_is_refused(
    tables: Tables, row: port.FlatRow
) -> None:
    with pytest.raises(ValueError):
        await tables.batch("message", "p", [Insert("fine", Plain("x")), Upsert("k", row)])
    assert (await tables.scan("message", KeysWithin("p"))).rows == []


async def test_a_row_has_so_many_properties_and_no_more(tables: Tables) -> None:
    await tables.insert("message", "p", "k", {f"p{n}": n for n in range(port.PROPERTIES_MAX)})
    with pytest.raises(ValueError):
        await tables.insert("message", "p", "m", {f"p{n}": n for n in range(253)})


async def test_a_row_of_more_than_a_mebibyte_is_refused(tables: Tables) -> None:
    with pytest.raises(ValueError):
        await tables.insert("message", "p", "k", {f"p{n}": "x" * 30_000 for n in range(18)})


async def test_a_batch_of_more_than_four_mebibytes_is_refused(tables: Tables) -> None:
    large = {f"p{n}": "x" * 32_000 for n in range(15)}
    with pytest.raises(ValueError):
        await tables.batch("message", "p", [Insert(f"k{n}", large) for n in range(9)])
    await tables.batch("message", "p", [Insert(f"k{n}", large) for n in range(8)])


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [Insert(f"k{n}", {}) for n in range(101)],
        [Insert("k", {}), Delete("k")],
        [Insert("fine", {}), Insert("not/fine", {})],
        [DeleteRange("k", "l", ())],
        [DeleteRange("k", "l", ("k1", "l"))],
        [DeleteRange("k", "l", ("j", "k1"))],
        [DeleteRange("k", "l", ("k/1",))],
        [DeleteRange("k", "l", ("k1",)), Insert("k1", {})],
        [DeleteRange("k", "l", tuple(f"k{n}" for n in range(100))), Insert("fine", {})],
    ],
    ids=[
        *("none", "too-many", "key-twice", "bad-key"),
        *("empty-range", "after-range", "before-range", "bad-key-of-range", "range-twice"),
        "range-too-long",
    ],
)
async def test_a_batch_that_some_engine_cannot_take_is_refused(
    tables: Tables, changes: list[Change]
) -> None:
    with pytest.raises(ValueError):
        await tables.batch("message", "p", changes)
    assert (await tables.scan("message", KeysWithin("p"))).rows == []


@pytest.mark.parametrize("limit", [0, -1, port.SCAN_ROWS_MAX + 1])
async def test_a_page_has_one_to_a_thousand_rows(tables: Tables, limit: int) -> None:
    with pytest.raises(ValueError):
        await tables.scan("message", KeysWithin("p"), limit=limit)


async def test_a_continuation_of_another_scan_is_refused(tables: Tables) -> None:
    with pytest.raises(ValueError):
        await tables.scan("message", KeysWithin("p"), after="nonsense\x00")


async def test_an_unknown_table_or_queue_is_refused(tables: Tables, queues: Queues) -> None:
    with pytest.raises(ValueError):
        await tables.get("item", "p", "k")
    with pytest.raises(ValueError):
        await tables.upsert("blob", "p", "k", {})
    with pytest.raises(ValueError):
        await tables.scan("nosuch", KeysWithin("p"))
    with pytest.raises(ValueError):
        await queues.put("nosuch", "x")
    with pytest.raises(ValueError):
        await queues.length("nosuch")


async def test_an_item_has_so_many_bytes_and_no_more(queues: Queues) -> None:
    await queues.put(QUEUE, "ü" * (port.ITEM_BYTES_MAX // 2))
    with pytest.raises(ValueError):
        await queues.put(QUEUE, "ü" * (port.ITEM_BYTES_MAX // 2 + 1))
    with pytest.raises(ValueError):
        await queues.put(QUEUE, "\ud800")
    assert await queues.length(QUEUE) == 1


@pytest.mark.parametrize("limit", [0, -1, port.CLAIM_ITEMS_MAX + 1])
async def test_a_call_takes_one_to_thirty_two_items(queues: Queues, limit: int) -> None:
    with pytest.raises(ValueError):
        await queues.claim(QUEUE, limit=limit, lease_s=30)
    with pytest.raises(ValueError):
        await queues.peek(QUEUE, limit=limit)


async def test_delays_and_leases_last_up_to_seven_days(queues: Queues) -> None:
    await queues.put(QUEUE, "x")
    for delay_s in (-1.0, port.ITEM_DELAY_S_MAX + 1, float("nan")):
        with pytest.raises(ValueError):
            await queues.put(QUEUE, "x", delay_s=delay_s)
    for lease_s in (0.0, -1.0, port.ITEM_DELAY_S_MAX + 1, float("nan")):
        with pytest.raises(ValueError):
            await queues.claim(QUEUE, limit=1, lease_s=lease_s)
    [claim] = await queues.claim(QUEUE, limit=1, lease_s=port.ITEM_DELAY_S_MAX)
    with pytest.raises(ValueError):
        await queues.extend(claim, lease_s=0)
    with pytest.raises(ValueError):
        await queues.release(claim, delay_s=-1)
    await queues.complete(claim)


@pytest.mark.parametrize(
    "name", ["", "ü", "a\\b", "ends.", "ends/", "x" * 1025, "tab\t"], ids=ascii
)
async def test_a_blob_name_that_some_engine_cannot_hold_is_refused(blobs: Blobs, name: str) -> None:
    with pytest.raises(ValueError):
        await blobs.put(name, b"x")
    with pytest.raises(ValueError):
        await blobs.get(name)
    with pytest.raises(ValueError):
        await blobs.delete(name)


async def test_a_blob_has_so_many_bytes_and_no_more(blobs: Blobs) -> None:
    with pytest.raises(ValueError):
        await blobs.put("a", bytes(port.BLOB_BYTES_MAX + 1))
    assert await blobs.get("a") is None
