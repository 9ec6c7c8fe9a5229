"""Counts equal a scan after any sequence of changes and folds, whatever dies when."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from postroom.act import Act
from postroom.actions import ask_to_confirm, move_subscriber
from postroom.domain.address import Address, parse_address
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.mailing_list import MailingList
from postroom.domain.token import sign
from postroom.flow import subscribe, sweep
from postroom.importing import import_people
from postroom.importing.csv_people import People
from postroom.records import counts, lists, subscribers
from postroom.records.counts import ListCounts
from postroom.records.rows import first_rows
from postroom.storage.port import Conflict, Storage, Tables, Unavailable
from tests.acting import acting
from tests.clock import MovableClock
from tests.contract.engines import ENGINES, FILES

LIST = "contoso1"
SECRET = "a secret"
NAMES = "abcd"
UNCONFIRMED_DAYS = 2

names = st.sampled_from(NAMES)


def address_of(name: str) -> Address:
    return parse_address(f"{name}@contoso.edu")


async def found_list(tables: Tables, now: datetime) -> None:
    await lists.create(
        tables, MailingList(name=LIST, description="", sender="a@contoso.edu", created_at=now)
    )


async def scanned(tables: Tables) -> ListCounts:
    """What a scan of everybody says."""
    everyone = [one async for one in subscribers.everyone(tables, LIST)]
    there = [one for one in everyone if not one.inactive_reason]
    verified = sum(one.verified for one in there)
    return ListCounts(verified, len(there) - verified, len(everyone) - len(there))


class DyingTables:
    """Answers so many calls; the next one is the last, done or not done."""

    def __init__(self, tables: Tables, calls: int, *, done: bool) -> None:
        self._tables = tables
        self._calls = calls
        self._done = done

    async def get(self, *place: str) -> Any:
        return await self._last(self._tables.get(*place))

    async def scan(self, *range_: Any, **options: Any) -> Any:
        return await self._last(self._tables.scan(*range_, **options))

    async def batch(self, *changes: Any) -> Any:
        return await self._last(self._tables.batch(*changes))

    async def _last(self, call: Coroutine[Any, Any, Any]) -> Any:
        self._calls -= 1
        if self._calls < 0:
            if self._done:
                await call
            call.close()
            raise Unavailable("no answer")
        return await call


class CountsAreRight(RuleBasedStateMachine):
    engine = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.opened = AsyncExitStack()
        self.folder = TemporaryDirectory(dir=FILES)
        self.clock = MovableClock(short_s=math.inf)
        self.changes_max = counts.FOLD_CHANGES_MAX
        counts.FOLD_CHANGES_MAX = 4  # so that a handful of deltas needs several writes

    @initialize()
    def open(self) -> None:
        opening = ENGINES[self.engine](self.clock, Path(self.folder.name))
        self.storage: Storage = self.run(self.opened.enter_async_context(opening))
        self.tables = self.storage.tables
        self.run(found_list(self.tables, self.clock.now()))

    def teardown(self) -> None:
        counts.FOLD_CHANGES_MAX = self.changes_max
        self.run(self.opened.aclose())
        self.loop.close()
        self.folder.cleanup()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(call)

    @rule(name=names, verified=st.booleans(), bring_back=st.booleans())
    def add(self, name: str, verified: bool, bring_back: bool) -> None:
        with suppress(AlreadyThere):
            self.run(
                subscribe.add(
                    acting(self.tables, self.clock.now()),
                    LIST,
                    address_of(name),
                    {},
                    verified=verified,
                    bring_back=bring_back,
                )
            )

    @rule(name=names)
    def sign_up(self, name: str) -> None:
        now = self.clock.now()
        self.run(subscribe.sign_up(acting(self.storage, now), LIST, address_of(name), {}))

    @rule(name=names)
    def confirm(self, name: str) -> None:
        found = self.run(subscribers.find(self.tables, LIST, address_of(name).storage_key))
        if found:
            guid, now = found[0].guid, self.clock.now()
            token = sign(SECRET, "confirm", LIST, guid)
            self.run(subscribe.confirm(acting(self.tables, now), SECRET, LIST, guid, token))

    @rule(name=names, verified=st.booleans())
    def edit(self, name: str, verified: bool) -> None:
        found = self.run(subscribers.find(self.tables, LIST, address_of(name).storage_key))
        with suppress(NotFound):
            self.run(
                subscribe.edit(
                    acting(self.tables, self.clock.now()),
                    LIST,
                    address_of(name).storage_key,
                    verified=verified,
                    attributes={"city": "Redmond"},
                    etag=found[1] if found else "",
                )
            )

    @rule(name=names)
    def leave(self, name: str) -> None:
        with suppress(NotFound):
            self.run(
                subscribe.remove(acting(self.tables, self.clock.now()), LIST, address_of(name))
            )

    @rule(name=names, to=names, verified=st.booleans())
    def change_address(self, name: str, to: str, verified: bool) -> None:
        found = self.run(subscribers.find(self.tables, LIST, address_of(name).storage_key))
        new = move_subscriber.Destination(
            list_name=LIST,
            address=address_of(to),
            verified=verified,
            attributes={},
            bring_back=True,
        )
        with suppress(NotFound, AlreadyThere):
            self.run(
                move_subscriber.move(
                    acting(self.tables, self.clock.now()),
                    LIST,
                    address_of(name).storage_key,
                    new,
                    etag=found[1] if found else "",
                )
            )

    @rule(
        some=st.lists(names, min_size=1, max_size=4), verified=st.booleans(), keep_out=st.booleans()
    )
    def import_people(self, some: list[str], verified: bool, keep_out: bool) -> None:
        file = io.StringIO("email\n" + "".join(f"{name}@contoso.edu\n" for name in some))
        now = self.clock.now()
        terms = import_people.ImportTerms(
            acting(self.tables, now), LIST, verified, keep_out=keep_out
        )
        self.run(
            import_people.import_people(
                terms, People(iter(file), {}), import_people.ImportObserver()
            )
        )

    @rule(name=names)
    def ask(self, name: str) -> None:
        act = Act(self.storage, self.clock, self.clock.now())
        self.run(ask_to_confirm.ask_one(act, LIST, address_of(name).storage_key))

    @rule(hours=st.sampled_from([1, 60]))
    def time_passes(self, hours: int) -> None:
        self.clock.move(hours * 3600)

    @rule()
    def expire(self) -> None:
        now = self.clock.now()
        self.run(sweep.expire_sign_ups(self.tables, now, keep_days=UNCONFIRMED_DAYS))

    @rule()
    def fold(self) -> None:
        self.run(counts.fold(self.tables, LIST))

    @rule(calls=st.integers(0, 12), done=st.booleans())
    def fold_and_die(self, calls: int, done: bool) -> None:
        dying: Any = DyingTables(self.tables, calls, done=done)
        with suppress(Unavailable):
            self.run(counts.fold(dying, LIST))

    @invariant()
    def counts_equal_a_scan(self) -> None:
        if hasattr(self, "tables"):
            assert self.run(counts.read(self.tables, LIST)) == self.run(scanned(self.tables))

    @rule()
    def growth_adds_up_to_who_is_mailed(self) -> None:
        self.run(counts.fold(self.tables, LIST))
        days = self.run(counts.growth(self.tables, LIST, self.clock.now(), days=400))
        assert len(days) == 400
        mailed = self.run(scanned(self.tables)).verified
        assert sum(joined - left for _, joined, left in days) == mailed


class CountsWithShortPages(CountsAreRight):
    engine = "memory-short-pages"


class CountsOnSqlite(CountsAreRight):
    engine = "sqlite"


FEW = settings(
    max_examples=40,
    stateful_step_count=30,
)
TestCountsAreRight = pytest.mark.slow(CountsAreRight.TestCase)
TestCountsAreRight.settings = FEW
TestCountsWithShortPages = pytest.mark.slow(CountsWithShortPages.TestCase)
TestCountsWithShortPages.settings = FEW
TestCountsOnSqlite = pytest.mark.slow(CountsOnSqlite.TestCase)
TestCountsOnSqlite.settings = FEW


# --- One by one -------------------------------------------------------------------------------

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


async def join(tables: Tables, name: str, now: datetime = NOW) -> None:
    await subscribe.add(acting(tables, now), LIST, address_of(name), {}, verified=True)


async def deltas(tables: Tables) -> int:
    page = await tables.scan(counts.TABLE, counts._deltas_of(LIST), limit=1000)
    return len(page.rows)


async def test_a_list_without_anybody_has_counts_of_zero(tables: Tables) -> None:
    await found_list(tables, NOW)
    assert await counts.read(tables, LIST) == ListCounts()
    assert await counts.fold(tables, LIST) == 0


async def test_deltas_of_many_days_are_folded_by_writes_that_fit(tables: Tables) -> None:
    await found_list(tables, NOW)
    for ago in range(130):  # each in a batch with its own day: not a hundred of them in one write
        await join(tables, f"student{ago}", NOW - timedelta(days=ago))
    assert await counts.fold(tables, LIST) == 130
    assert await counts.read(tables, LIST) == ListCounts(verified=130)
    assert await counts.growth(tables, LIST, NOW, days=2) == [
        (NOW.date() - timedelta(days=1), 1, 0),
        (NOW.date(), 1, 0),
    ]


async def test_a_fold_is_bounded_and_the_next_one_continues(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "DELTAS_A_FOLD", 1000)
    await found_list(tables, NOW)
    people = [f"student{number}@contoso.edu" for number in range(1200)]
    for address in people:
        await subscribe.add(acting(tables, NOW), LIST, parse_address(address), {}, verified=True)
    assert await counts.fold(tables, LIST) == 1000
    assert await counts.read(tables, LIST) == ListCounts(verified=1200)
    assert await counts.fold(tables, LIST) == 200
    assert await counts.read(tables, LIST) == ListCounts(verified=1200)


@pytest.mark.parametrize("folded_before", [False, True], ids=["first", "later"])
async def test_of_two_that_fold_at_once_one_counts(tables: Tables, folded_before: bool) -> None:
    await found_list(tables, NOW)
    await join(tables, "zoe")
    if folded_before:
        await counts.fold(tables, LIST)
    for name in "ab":
        await join(tables, name)
    stored = await counts._read_count(tables, LIST)
    tallies = [counts._FoldedCounts(tables, LIST, stored) for _ in range(2)]
    rows, _more = await first_rows(tables, counts.TABLE, counts._deltas_of(LIST), limit=10)
    deltas = [counts._read_delta(row) for row in rows]
    await tallies[0].fold(deltas[:1])
    with pytest.raises(Conflict):
        await tallies[1].fold(deltas[1:])  # not even other deltas, because the count changed
    assert await counts.read(tables, LIST) == ListCounts(verified=3)


async def test_a_read_that_a_fold_comes_between_looks_again(tables: Tables) -> None:
    await found_list(tables, NOW)
    await join(tables, "ada")

    class FoldsMeanwhile(DyingTables):
        folds = 1

        async def scan(self, *range_: Any, **options: Any) -> Any:
            if self.folds:
                self.folds -= 1
                await counts.fold(tables, LIST)
                await join(tables, "bob")
            return await super().scan(*range_, **options)

    between: Any = FoldsMeanwhile(tables, 100, done=True)
    assert await counts.read(between, LIST) == ListCounts(verified=2)


async def test_a_page_adds_up_no_more_than_so_many_deltas(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "DELTAS_READ_MAX", 3)
    await found_list(tables, NOW)
    for name in "abcde":
        await join(tables, name)
    assert await counts.read(tables, LIST) == ListCounts(verified=3)  # a little late
    await counts.fold(tables, LIST)
    assert await counts.read(tables, LIST) == ListCounts(verified=5)


async def test_an_inactive_person_counts_as_inactive_until_they_come_back(tables: Tables) -> None:
    await found_list(tables, NOW)
    await join(tables, "ada")
    await subscribe.remove(acting(tables, NOW), LIST, address_of("ada"))
    assert await counts.read(tables, LIST) == ListCounts(inactive=1)
    await counts.fold(tables, LIST)
    assert await deltas(tables) == 0
    await subscribe.add(
        acting(tables, NOW), LIST, address_of("ada"), {}, verified=False, bring_back=True
    )
    assert await counts.read(tables, LIST) == ListCounts(unverified=1)
    assert await counts.growth(tables, LIST, NOW, days=1) == [(NOW.date(), 1, 1)]
