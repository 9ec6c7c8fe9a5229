"""Beside the path, bring in: many people join a list at once, out of a file, or are kept off it.

Before: somebody has a list and a stream of rows, each a person or a reason why not.
After: whoever was new is a subscriber, as if added one by one; who left stays away; every row is
counted once. Kept out, whoever was there has left, and whoever was not is marked as gone, so that
nobody adds them. Memory holds a crowd and a few batches, however long the stream.
Dies half-way: whole batches are in, and nothing else. Run it again with the same rows: those who
are in count as already there, the rest is added. So it needs no cursor and no state of its own.
Commit point: each batch of newcomers, all or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from postroom.clock import Clock
from postroom.domain.consent import Event, Trace
from postroom.domain.csv_people import Person
from postroom.domain.csv_rows import BadRow
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.subscriber import GONE_TEXTS, Gone, Subscriber
from postroom.domain.texts import _
from postroom.records import counts, lists, subscribers
from postroom.storage.port import BATCH_CHANGES_MAX, Conflict, Tables

BATCH_PEOPLE = (BATCH_CHANGES_MAX - 1) // 2  # two rows each, and the change of the counts
IN_FLIGHT_MAX = 16  # batches: enough for a group commit to pay, few enough to hold
# People put in order before they are stored, where nobody waits for the first of them. Neighbours
# share pages: a million people in no order then cost a quarter less processor time, and half the
# writing.
CROWD_PEOPLE = 30_000
ROWS_AT_A_TIME = 50  # then whatever else the process has to do gets its turn
_TRIES_MAX = 5
_FRONT_BITS = 32  # of a GUID, the same for a whole batch
_RANDOM_BYTES = 12  # of a GUID: nobody guesses a link


@dataclass
class Counts:
    """What became of the rows so far."""

    added: int = 0  # or, kept out, marked as gone
    already: int = 0  # also who stands in the file twice
    gone: int = 0  # left earlier, and not brought back
    bad: int = 0

    @property
    def rows(self) -> int:
        return self.added + self.already + self.gone + self.bad


class Watch(Protocol):
    """Who looks on."""

    def may_go_on(self) -> bool:
        """Asked before every row and between batches; after a no, those under way are finished."""
        ...

    def refused(self, row: BadRow) -> None:
        """A row that is bad, or of somebody who is gone."""
        ...

    def counted(self, counts: Counts) -> None:
        """After every batch."""
        ...


@dataclass(frozen=True)
class Intake:
    """Where people are brought in, and on which terms."""

    tables: Tables
    list_name: str
    verified: bool
    now: datetime
    is_rehearsal: bool = False  # look and count, write nothing
    basis: str = ""  # which import this is, and why these people may be mailed
    keep_out: bool = False  # nobody joins: they are marked as gone
    clock: Clock | None = None  # departures carry its time: an import may go on for long
    crowd: int = BATCH_PEOPLE  # so many are put in order at a time; a kilobyte of memory each


async def bring_in(intake: Intake, rows: Iterable[Person | BadRow], watch: Watch) -> Counts:
    """Read, batch, store; the counts also after being told to stop."""
    await lists.read(intake.tables, intake.list_name)
    door = _Door(intake, watch)
    try:
        for number, row in enumerate(rows):
            if number % ROWS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            if not watch.may_go_on():
                break
            door.receive(row)
            if door.is_crowded:
                await door.let_in()
        await door.let_in()
        await door.finish()
    finally:
        await door.stop()
    if not intake.is_rehearsal:
        with contextlib.suppress(Conflict):  # the scheduler is at it
            await counts.fold(intake.tables, intake.list_name)
    return door.counts


@dataclass
class _Door:
    """People waiting to be let in, and batches of them on their way into storage."""

    intake: Intake
    watch: Watch
    counts: Counts = field(default_factory=Counts)
    _waiting: dict[str, Person] = field(default_factory=dict)  # by key: nobody waits twice
    _busy: set[asyncio.Task[None]] = field(default_factory=set)
    _guids_from: int = field(default_factory=lambda: secrets.randbits(_FRONT_BITS))

    def receive(self, row: Person | BadRow) -> None:
        """Have the person wait, or count a row that storage need not judge."""
        if isinstance(row, BadRow):
            self.counts.bad += 1
            self.watch.refused(row)
        elif row.gone and not self.intake.keep_out:
            self._gone(row, row.gone)
        elif row.address.storage_key in self._waiting:
            self.counts.already += 1
        else:
            self._waiting[row.address.storage_key] = row

    @property
    def is_crowded(self) -> bool:
        return len(self._waiting) >= self.intake.crowd

    async def let_in(self) -> None:
        """Everyone who waits, in order; each batch once there is room among those under way."""
        people = [self._waiting[key] for key in sorted(self._waiting)]
        self._waiting = {}
        for start in range(0, len(people), BATCH_PEOPLE):
            if start and not self.watch.may_go_on():
                return
            if len(self._busy) >= IN_FLIGHT_MAX:
                await self._settle(asyncio.FIRST_COMPLETED)
            batch = people[start : start + BATCH_PEOPLE]
            self._busy.add(asyncio.create_task(self._store(batch)))
            await asyncio.sleep(0)  # one at a time: sixteen together would hold up every page

    async def finish(self) -> None:
        if self._busy:
            await self._settle(asyncio.ALL_COMPLETED)
        self.watch.counted(self.counts)

    async def stop(self) -> None:
        """After a failure: let go of what is under way. Storage has each batch whole or not."""
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _settle(self, until: str) -> None:
        done, self._busy = await asyncio.wait(self._busy, return_when=until)
        failures = [failure for task in done if (failure := task.exception())]
        if failures:  # the first ends the whole; the others have the same cause
            raise failures[0]
        self.watch.counted(self.counts)

    async def _store(self, people: Sequence[Person]) -> None:
        tables, name = self.intake.tables, self.intake.list_name
        if await lists.find(tables, name) is None:
            raise NotFound(
                _("The list {name} was deleted meanwhile: nobody else is added.", name=name)
            )
        if self.intake.is_rehearsal:
            unknown = await self._unknown(people)  # first: other batches count meanwhile
            self.counts.added += len(unknown)
        elif not await self._add(people):
            unknown = await self._unknown(people)
            if unknown and not await self._add(unknown):
                await self._add_one_by_one(unknown)

    async def _add(self, people: Sequence[Person]) -> bool:
        """All of them by one write; False, and nothing happened, if one is known already."""
        newcomers = list(map(self._newcomer, people, self._new_guids(len(people))))
        try:
            await subscribers.join_together(self.intake.tables, newcomers, self.intake.now)
        except Conflict:
            return False
        self.counts.added += len(people)
        return True

    async def _unknown(self, people: Sequence[Person]) -> list[Person]:
        """Those not on the list, now or earlier; the others are counted."""
        tables, name = self.intake.tables, self.intake.list_name
        found = [await subscribers.find(tables, name, one.address.storage_key) for one in people]
        for person, known in zip(people, found, strict=True):
            if known and self.intake.keep_out:
                await self._see_off(known)
            elif known:
                self._known(person, known[0])
        return [person for person, known in zip(people, found, strict=True) if known is None]

    async def _add_one_by_one(self, people: Sequence[Person]) -> None:
        """Somebody else adds some of them at this very moment."""
        for person in people:
            try:
                newcomer = self._newcomer(person, *self._new_guids(1))
                await subscribers.join(self.intake.tables, newcomer)
                self.counts.added += 1
            except AlreadyThere:
                await self._unknown([person])

    def _known(self, person: Person, subscriber: Subscriber) -> None:
        if subscriber.gone:
            self._gone(person, subscriber.gone)
        else:
            self.counts.already += 1

    async def _see_off(self, known: tuple[Subscriber, str]) -> None:
        """Whoever is there leaves; somebody may be changing them at this moment."""
        tables, name, key = self.intake.tables, self.intake.list_name, known[0].key
        trace = Trace(source=self.intake.basis or "import")
        consent = trace.consent(Event.REMOVED, self.intake.now)
        found: tuple[Subscriber, str] | None = known
        for _try in range(_TRIES_MAX):
            if found is None:
                break
            if found[0].gone:
                self.counts.already += 1
                return
            with contextlib.suppress(Conflict):
                if not self.intake.is_rehearsal:
                    clock, now = self.intake.clock, self.intake.now
                    left_at = clock.now() if clock else now
                    await subscribers.leave(
                        tables, *found, why=Gone.REMOVED, consent=consent, left_at=left_at
                    )
                self.counts.added += 1
                return
            found = await subscribers.find(tables, name, key)
        raise Conflict("somebody changes too fast: run it again")

    def _gone(self, person: Person, why: str) -> None:
        self.counts.gone += 1
        reason = _(
            "gone ({why}): add them one by one, and only if they ask for it",
            why=GONE_TEXTS[Gone(why)],
        )
        self.watch.refused(BadRow(person.line, person.address.typed, str(reason)))

    def _new_guids(self, count: int) -> list[str]:
        """Alike at the front and 96 random bits behind.

        So the pointers of a batch stand together in storage and cost a page or two. All random,
        they cost a page each, and a million people take about three times as long.
        """
        self._guids_from = (self._guids_from + 1) % 2**_FRONT_BITS
        front, behind = f"{self._guids_from:08x}", secrets.token_hex(_RANDOM_BYTES * count)
        chars = 2 * _RANDOM_BYTES
        return [front + behind[at : at + chars] for at in range(0, chars * count, chars)]

    def _newcomer(self, person: Person, guid: str) -> Subscriber:
        keep_out = self.intake.keep_out
        return Subscriber(
            list_name=self.intake.list_name,
            address=person.address.typed,
            key=person.address.storage_key,
            guid=guid,
            verified=self.intake.verified and person.verified and not keep_out,
            since=self.intake.now,
            gone=Gone.REMOVED if keep_out else None,
            attributes={} if keep_out else person.attributes,
            basis=self.intake.basis,
            imported_at=self.intake.now,
        )
