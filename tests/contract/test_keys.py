"""What every engine promises about keys: whatever characters they have, none is taken for another.

Apostrophes end a literal of a filter, percent and plus signs mean something in a URL, braces in
JSON: on every engine all of them are just characters, in their order.
"""

from __future__ import annotations

import pytest

from postroom.storage.port import Delete, Insert, KeysAcross, KeysWithin, Replace, Tables, Upsert
from tests.contract.engines import KEY_CHARACTERS, all_rows

TABLE = "message"
AWKWARD = [
    *("%", "%25", "%2541", "%41", "%00", "%zz", "100%", "%" * 512),
    *("+", "a+b", "a b", "a%20b", " ", "  ", " a", "a "),
    *("'", "''", "'''", "' or 'a' eq 'a", "')", "(PartitionKey=", "'" * 512),
    *("{}", "{a}", '{"', '"', "&", "a&$top=1", "=", ";", "$batch", "<b>", "[]"),
    *("~", "~~", "-", "--", "--changeset_", "HTTP", "GET", "x" * 512, "A", "a", "_", "^", "`", "|"),
]
MANY = [f"{around}{one}{around}" for one in KEY_CHARACTERS for around in ("", " ", "a", "~")]

each_awkward = pytest.mark.parametrize("key", AWKWARD, ids=lambda key: ascii(key)[:20])


async def test_rows_come_back_under_their_keys_in_order(tables: Tables) -> None:
    keys = sorted({*MANY, *AWKWARD})
    for first in range(0, len(keys), 100):
        batch = [Insert(key, {"key": key}) for key in reversed(keys[first : first + 100])]
        await tables.batch(TABLE, "p", batch)
    rows = await all_rows(tables, TABLE, KeysWithin("p"), limit=70)
    assert [row.key for row in rows] == keys
    assert [row.properties["key"] for row in rows] == keys


async def test_partitions_come_back_under_their_keys_in_order(tables: Tables) -> None:
    keys = sorted({"", *KEY_CHARACTERS, *AWKWARD})
    for key in keys:
        await tables.insert(TABLE, key, "k", {"key": key})
    rows = await all_rows(tables, TABLE, KeysAcross(), limit=70)
    assert [row.partition for row in rows] == keys
    for key in keys:
        assert [row.partition for row in await all_rows(tables, TABLE, KeysWithin(key))] == [key]


async def test_the_empty_partition_comes_in_pages_like_any_other(tables: Tables) -> None:
    await tables.batch(TABLE, "", [Insert(key, {}) for key in ("", "a", "b", "c")])
    for keys in (KeysWithin(""), KeysAcross()):
        rows = await all_rows(tables, TABLE, keys, limit=1)
        assert [row.key for row in rows] == ["", "a", "b", "c"]


@each_awkward
async def test_an_awkward_key_names_one_row_to_every_call(tables: Tables, key: str) -> None:
    await tables.insert(TABLE, key, key, {"n": 1})
    await tables.upsert(TABLE, key, key, {"n": 2})
    row = await tables.get(TABLE, key, key)
    assert row is not None
    assert (row.partition, row.key, row.properties) == (key, key, {"n": 2})
    etag = await tables.replace(TABLE, key, key, {"n": 3}, row.etag)
    [etag] = await tables.batch(TABLE, key, [Replace(key, {"n": 4}, etag)])
    await tables.batch(TABLE, key, [Upsert(f"{key[:500]}-other", {}), Delete(key, etag)])
    assert await tables.get(TABLE, key, key) is None
    await tables.delete(TABLE, key, key)
    assert len(await all_rows(tables, TABLE, KeysAcross())) == 1


@each_awkward
async def test_an_awkward_key_bounds_a_range(tables: Tables, key: str) -> None:
    keys = sorted({*KEY_CHARACTERS, key})
    await tables.batch(TABLE, "p", [Insert(each, {}) for each in keys])
    rows = await all_rows(tables, TABLE, KeysWithin("p", key))
    assert [row.key for row in rows] == [each for each in keys if each >= key]
    rows = await all_rows(tables, TABLE, KeysWithin("p", "", key))
    assert [row.key for row in rows] == [each for each in keys if each < key]
