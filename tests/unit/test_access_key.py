"""Access keys: unguessable, stored as a hash, limited to lists, revoked for good."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from postroom.clock import WallClock
from postroom.domain.access_key import (
    LISTS_MAX,
    AccessKey,
    Right,
    check_key_lists,
    check_key_name,
    check_key_rights,
    is_key,
    key_hash,
    new_key,
)
from postroom.domain.errors import BadInput, NotFound
from postroom.records import keys
from postroom.records.names import STORAGE_NAMES, TABLES
from postroom.records.rows import Unreadable
from postroom.storage.memory import MemoryStorage, MemoryTables
from postroom.storage.port import Content, KeysAcross, Tables
from postroom.web.api import auth as gate_module
from postroom.web.api.auth import KeyCache

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


@pytest.fixture
def tables() -> Tables:
    return MemoryStorage(WallClock(), STORAGE_NAMES).tables


async def every_key(tables: Tables) -> list[AccessKey]:
    return [each async for each in keys.every_key(tables)]


def test_a_key_is_a_prefix_and_forty_random_characters() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(is_key(key) and len(key) == 44 for key in made)


@pytest.mark.parametrize(
    "text", ["", "prk_", "prk_" + "a" * 39, "prk_" + "a" * 40 + "\n", "prk_" + "é" * 40, "a" * 44]
)
def test_a_malformed_key_is_recognized_without_a_lookup(text: str) -> None:
    assert not is_key(text)


@pytest.mark.parametrize("name", ["", "  ", "x" * 61, "two\nlines"])
def test_a_key_has_a_name_of_one_line(name: str) -> None:
    with pytest.raises(BadInput, match="says who uses it"):
        check_key_name(name)


def test_a_list_named_twice_counts_once_and_too_many_are_refused() -> None:
    assert check_key_lists(["b", "a", "b"]) == ("b", "a")
    with pytest.raises(BadInput, match="at most 100"):
        check_key_lists(f"list{number}" for number in range(LISTS_MAX + 1))


def test_a_key_without_lists_is_for_every_list() -> None:
    key = AccessKey(id="0" * 8, name="portal", created_at=NOW)
    assert key.is_for("contoso1")


def test_a_key_with_lists_is_only_for_these() -> None:
    key = AccessKey(id="0" * 8, name="portal", created_at=NOW, lists=("contoso1",))
    assert key.is_for("contoso1")
    assert not key.is_for("contoso")


@pytest.mark.parametrize(
    ("rights", "allowed"),
    [
        ((), ["subscribe"]),
        ((Right.SUBSCRIBE,), ["subscribe"]),
        ((Right.READ,), ["read"]),
        ((Right.WRITE,), ["read", "write"]),
        ((Right.WRITE, Right.SUBSCRIBE, Right.WRITE), ["subscribe", "read", "write"]),
    ],
)
async def test_a_key_may_do_what_it_was_made_for_and_writing_includes_reading(
    tables: Tables, rights: tuple[Right, ...], allowed: list[str]
) -> None:
    key, _ = await keys.create(tables, "portal", (), NOW, check_key_rights(rights))
    found = await keys.find(tables, key)
    assert found is not None
    assert [right.value for right in Right if found.has(right)] == allowed


async def test_a_key_without_given_rights_can_only_sign_people_up(
    tables: Tables,
) -> None:
    _, made = await keys.create(tables, "portal", (), NOW)
    assert made.rights == (Right.SUBSCRIBE,)


@pytest.mark.parametrize("spoilt", ["Lists", "Rights"])
async def test_a_row_that_does_not_say_what_its_key_may_do_is_no_key(
    tables: Tables, spoilt: str
) -> None:
    key, _ = await keys.create(tables, "portal", ("contoso1",), NOW)
    [row] = (await tables.scan("service", KeysAcross())).rows
    less = {name: value for name, value in row.properties.items() if name != spoilt}
    await tables.upsert("service", row.partition, row.key, less)
    with pytest.raises(Unreadable):
        await keys.find(tables, key)
    await tables.upsert("service", row.partition, row.key, less | {"lists": "", "rights": "rule"})
    with pytest.raises(Unreadable):
        await keys.find(tables, key)


async def test_a_key_is_found_as_it_was_made(tables: Tables) -> None:
    key, made = await keys.create(tables, "portal", ("contoso1", "contoso2"), NOW)
    assert await keys.find(tables, key) == made
    assert await every_key(tables) == [made]
    assert made.id == key_hash(key)[:8]


async def test_storage_holds_the_hash_and_never_the_key(tables: Tables) -> None:
    key, _ = await keys.create(tables, "portal", (), NOW)
    [row] = (await tables.scan("service", KeysAcross())).rows
    assert row.key == hashlib.sha256(key.encode()).hexdigest()
    assert key.removeprefix("prk_") not in repr(row)


async def test_another_key_is_not_found(tables: Tables) -> None:
    await keys.create(tables, "portal", (), NOW)
    assert await keys.find(tables, new_key()) is None
    assert await keys.find(tables, "no/key?") is None


async def test_only_the_key_named_is_revoked(tables: Tables) -> None:
    key, made = await keys.create(tables, "portal", (), NOW)
    _, other = await keys.create(tables, "shop", (), NOW)
    assert await keys.revoke(tables, made.id) == made
    assert await keys.find(tables, key) is None
    assert await every_key(tables) == [other]


@pytest.mark.parametrize("id_", ["", "0", "zzzzzzzz", "a/b?c#d\0", "0" * 64])
async def test_revoking_what_is_no_id_revokes_nothing(tables: Tables, id_: str) -> None:
    _, made = await keys.create(tables, "portal", (), NOW)
    with pytest.raises(NotFound, match="no access key"):
        await keys.revoke(tables, id_)
    assert await every_key(tables) == [made]


async def test_a_use_is_noted_once_an_hour(tables: Tables) -> None:
    key, _ = await keys.create(tables, "portal", ("contoso1",), NOW)
    used = []
    for minutes in (0, 59, 60):
        await keys.note_use(tables, key, NOW + timedelta(minutes=minutes))
        [known] = await every_key(tables)
        used.append(known.last_used_at)
    assert used == [NOW, NOW, NOW + timedelta(hours=1)]
    assert known.lists == ("contoso1",)


class RevokedMeanwhile(MemoryTables):
    """Between reading a key and writing it, somebody revokes it."""

    async def replace(
        self, table: str, partition: str, key: str, properties: Content, etag: str
    ) -> str:
        await self.delete(table, partition, key)
        return await super().replace(table, partition, key, properties, etag)


async def test_noting_a_use_does_not_bring_a_revoked_key_back() -> None:
    tables = RevokedMeanwhile(TABLES)
    key, _ = await keys.create(tables, "portal", (), NOW)
    await keys.note_use(tables, key, NOW)
    assert await keys.find(tables, key) is None


# --- What the gate of the web service remembers -------------------------------------------------


async def test_the_gate_notes_the_use_of_a_key(tables: Tables) -> None:
    key, _ = await keys.create(tables, "portal", (), NOW)
    await KeyCache().find_key(tables, key, NOW)
    [known] = await every_key(tables)
    assert known.last_used_at == NOW


async def test_a_key_is_looked_up_once_in_five_seconds(tables: Tables) -> None:
    gate = KeyCache()
    key, made = await keys.create(tables, "portal", (), NOW)
    await gate.find_key(tables, key, NOW)
    await keys.revoke(tables, made.id)
    assert await gate.find_key(tables, key, NOW + timedelta(seconds=4.9)) == made
    assert await gate.find_key(tables, key, NOW + timedelta(seconds=5)) is None


async def test_the_gate_remembers_no_more_keys_than_agreed(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "KEYS_CACHED_MAX", 2)
    gate = KeyCache()
    made = [await keys.create(tables, "portal", (), NOW) for _ in range(3)]
    for key, _ in made:
        await gate.find_key(tables, key, NOW)
    for _, kept in made:
        await keys.revoke(tables, kept.id)
    found = [await gate.find_key(tables, key, NOW) is not None for key, _ in made]
    assert found == [False, True, True]
