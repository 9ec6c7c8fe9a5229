"""Any sequence of calls gives the same answers as the model in memory, etags compared by role."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from postroom.storage.port import (
    Change,
    Claim,
    ClaimLost,
    Conflict,
    Delete,
    DeleteRange,
    Insert,
    Item,
    Keys,
    KeysAcross,
    KeysWithin,
    Properties,
    Replace,
    Row,
    Storage,
    Upsert,
)
from tests.clock import MovableClock
from tests.contract.engines import ENGINES, FILES, KEY_CHARACTERS, all_rows, memory

TABLE = "message"
QUEUE = "azuremailqueue"
NEVER = "0"  # an etag that no row has

partitions = st.sampled_from(["", "2026-11-15", "h-1", "h-2"])
# Without the comma, of which Azurite makes a mistake (azurite.py); test_keys.py has it.
characters = KEY_CHARACTERS.replace(",", "")
keys = st.one_of(
    st.sampled_from(["", "a", "aa", "b", "to:x", "~"]),
    st.text(characters, max_size=2),
)
bounds = st.one_of(
    st.sampled_from(["", "a", "aa", "b", "h", "to", "~"]),
    st.text(characters, max_size=1),
)
values = st.one_of(
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([1.0, 0.5, -2.0]),
    st.sampled_from(["", "1", "true", "Zoë 🎓", 'quo"te', "nul\x00"]),
)
properties = st.dictionaries(st.sampled_from(["n", "state"]), values, max_size=2)
spans = st.one_of(
    st.builds(KeysWithin, partitions, bounds, bounds), st.builds(KeysAcross, bounds, bounds)
)
changes = st.tuples(st.sampled_from("iurd"), keys, properties, st.sampled_from([None, 0, 1]))

Outcome = tuple[str, Any]


class SameAsMemory(RuleBasedStateMachine):
    """Two storages side by side: `pair[0]` is the model."""

    engine: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.opened = AsyncExitStack()
        self.folder = TemporaryDirectory(dir=FILES)
        self.clock = MovableClock(short_s=math.inf)
        self.claims: list[tuple[Claim, Claim]] = []
        # For every row the versions it ever had, as (model's etag, engine's etag), newest last.
        self.versions: dict[tuple[str, str], list[tuple[str, str]]] = {}

    @initialize()
    def open(self) -> None:
        model = memory(self.clock, Path(self.folder.name))
        engine = ENGINES[self.engine](self.clock, Path(self.folder.name))
        self.pair = (
            self.run(self.opened.enter_async_context(model)),
            self.run(self.opened.enter_async_context(engine)),
        )

    def teardown(self) -> None:
        self.run(self.opened.aclose())
        self.loop.close()
        self.folder.cleanup()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(call)

    def both(self, call: Callable[[Storage, int], Awaitable[Any]]) -> tuple[Outcome, Outcome]:
        model, engine = (self.run(outcome(call(self.pair[side], side))) for side in (0, 1))
        assert model[0] == engine[0]
        return model, engine

    # --- Tables ---

    @rule(partition=partitions, key=keys, content=properties)
    def insert(self, partition: str, key: str, content: Properties) -> None:
        found = self.both(lambda s, _: s.tables.insert(TABLE, partition, key, content))
        self.note(partition, [key], found, single=True)

    @rule(partition=partitions, key=keys, content=properties)
    def upsert(self, partition: str, key: str, content: Properties) -> None:
        found = self.both(lambda s, _: s.tables.upsert(TABLE, partition, key, content))
        self.note(partition, [key], found, single=True)

    @rule(partition=partitions, key=keys, content=properties, age=st.integers(0, 1))
    def replace(self, partition: str, key: str, content: Properties, age: int) -> None:
        etags = self.version(partition, key, age)
        found = self.both(
            lambda s, side: s.tables.replace(TABLE, partition, key, content, etags[side])
        )
        self.note(partition, [key], found, single=True)

    @rule(partition=partitions, key=keys, age=st.sampled_from([None, 0, 1]))
    def delete(self, partition: str, key: str, age: int | None) -> None:
        etags = (None, None) if age is None else self.version(partition, key, age)
        self.both(lambda s, side: s.tables.delete(TABLE, partition, key, etags[side]))

    @rule(
        partition=partitions,
        drawn=st.lists(changes, min_size=1, max_size=6, unique_by=lambda change: change[1]),
    )
    def batch(
        self, partition: str, drawn: list[tuple[str, str, dict[str, Any], int | None]]
    ) -> None:
        batches = [[self.change(partition, one, side) for one in drawn] for side in (0, 1)]
        found = self.both(lambda s, side: s.tables.batch(TABLE, partition, batches[side]))
        self.note(partition, [key for _, key, _, _ in drawn], found)

    @rule(partition=partitions, start=bounds, stop=bounds, other=st.none() | keys)
    def delete_range(self, partition: str, start: str, stop: str, other: str | None) -> None:
        """With the keys that are there, and perhaps one that is not."""
        model: Outcome = self.both(
            lambda s, _: all_rows(s.tables, TABLE, KeysWithin(partition, start, stop))
        )[0]
        named = {row.key for row in model[1]} | ({other} if other is not None else set())
        change = DeleteRange(start, stop, tuple(named))
        self.both(lambda s, _: s.tables.batch(TABLE, partition, [change]))

    @rule(span=spans, where=properties, limit=st.integers(1, 4))
    def scan(self, span: Keys, where: Properties, limit: int) -> None:
        self.same_rows(span, where, limit)

    @invariant()
    def all_rows_are_the_same(self) -> None:
        self.same_rows(KeysAcross(), {}, 100)

    def same_rows(self, span: Keys, where: Properties, limit: int) -> None:
        model, engine = self.both(
            lambda s, _: all_rows(s.tables, TABLE, span, where=where, limit=limit)
        )
        assert [contents(row) for row in model[1]] == [contents(row) for row in engine[1]]
        for ours, theirs in zip(model[1], engine[1], strict=True):
            assert self.version(ours.partition, ours.key, 0) == (ours.etag, theirs.etag)

    def change(
        self, partition: str, drawn: tuple[str, str, dict[str, Any], int | None], side: int
    ) -> Change:
        kind, key, content, age = drawn
        match kind:
            case "i":
                return Insert(key, content)
            case "u":
                return Upsert(key, content)
            case "r":
                return Replace(key, content, self.version(partition, key, age or 0)[side])
            case _:
                return Delete(key, None if age is None else self.version(partition, key, age)[side])

    def version(self, partition: str, key: str, age: int) -> tuple[str, str]:
        versions = self.versions.get((partition, key), [])
        return versions[-1 - age] if age < len(versions) else (NEVER, NEVER)

    def note(
        self, partition: str, keys: list[str], found: tuple[Outcome, Outcome], single: bool = False
    ) -> None:
        """Keep the new etags, and see that they are new."""
        if found[0][0] != "done":
            return
        model, engine = ([one[1]] if single else one[1] for one in found)
        for key, pair in zip(keys, zip(model, engine, strict=True), strict=True):
            assert (pair[0] == "") == (pair[1] == "")
            if pair != ("", ""):
                versions = self.versions.setdefault((partition, key), [])
                assert pair[1] not in [engine_etag for _, engine_etag in versions]
                versions.append(pair)

    # --- Queues ---

    @rule(bodies=st.lists(st.text(max_size=3), max_size=3), delay_s=st.integers(0, 3))
    def put(self, bodies: list[str], delay_s: int) -> None:
        self.both(lambda s, _: s.queues.put(QUEUE, *bodies, delay_s=delay_s))

    @rule(limit=st.integers(1, 3), lease_s=st.integers(1, 5))
    def claim(self, limit: int, lease_s: int) -> None:
        model, engine = self.both(lambda s, _: s.queues.claim(QUEUE, limit=limit, lease_s=lease_s))
        taken = [[(claim.body, claim.taken) for claim in side[1]] for side in (model, engine)]
        assert taken[0] == taken[1]
        self.claims += zip(model[1], engine[1], strict=True)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        pair = self.some_claim(data)
        self.both(lambda s, side: s.queues.complete(pair[side]))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), delay_s=st.integers(0, 3))
    def release(self, data: st.DataObject, delay_s: int) -> None:
        pair = self.some_claim(data)
        self.both(lambda s, side: s.queues.release(pair[side], delay_s=delay_s))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), lease_s=st.integers(1, 5))
    def extend(self, data: st.DataObject, lease_s: int) -> None:
        pair = self.some_claim(data)
        model, engine = self.both(lambda s, side: s.queues.extend(pair[side], lease_s=lease_s))
        if model[0] == "done":
            self.claims.append((model[1], engine[1]))

    @rule(limit=st.integers(1, 3))
    def look(self, limit: int) -> None:
        lengths = self.both(lambda s, _: s.queues.length(QUEUE))
        assert lengths[0] == lengths[1]
        visible = self.both(lambda s, _: bodies_of(s.queues.peek(QUEUE, limit=limit)))
        assert visible[0] == visible[1]

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        self.clock.move(seconds)

    def some_claim(self, data: st.DataObject) -> tuple[Claim, Claim]:
        return self.claims[data.draw(st.integers(0, len(self.claims) - 1))]


async def outcome(call: Awaitable[Any]) -> Outcome:
    """What came of the call: how it ended, and with what."""
    try:
        return "done", await call
    except (Conflict, ClaimLost, ValueError) as refusal:
        return type(refusal).__name__, None


async def bodies_of(peek: Awaitable[list[Item]]) -> list[tuple[str, int]]:
    """What does not depend on the engine: ids are its own."""
    return [(item.body, item.taken) for item in await peek]


def contents(row: Row) -> tuple[str, str, list[tuple[str, type, Any]]]:
    typed = [(name, type(value), value) for name, value in row.properties.items()]
    return row.partition, row.key, typed


class SqliteSameAsMemory(SameAsMemory):
    engine = "sqlite"


class AzureSameAsMemory(SameAsMemory):
    engine = "azure"


TestSqliteSameAsMemory = pytest.mark.slow(SqliteSameAsMemory.TestCase)
TestSqliteSameAsMemory.settings = settings(
    max_examples=60,
    stateful_step_count=30,
)
TestAzureSameAsMemory = AzureSameAsMemory.TestCase
TestAzureSameAsMemory.settings = settings(  # a call of the emulator takes milliseconds
    TestSqliteSameAsMemory.settings, max_examples=30
)
