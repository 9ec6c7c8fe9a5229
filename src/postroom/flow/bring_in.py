"""Beside the path, bring in: many people join a list at once, out of a file, or are kept off it.

Before: somebody has a list and a stream of rows, each a person or a reason why not.
After: whoever was new is a subscriber, as if added one by one; who left stays away; every row is
counted once. On request, people on the list who had not confirmed are confirmed, fields of people
on the list are filled in or overwritten, and unconfirmed people are asked to confirm. Kept out,
whoever was there has left, and whoever was not is marked as gone, so that nobody adds them. Memory
holds a crowd and a few batches, however long the stream.
Dies half-way: whole batches are stored, and nothing else. Run it again with the same rows: those
who are in count as already there, those who are as the file says count as unchanged, and the rest
is done. So it needs no cursor and no state of its own.
Commit point: each batch, all or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import msgspec

from postroom.act import Act
from postroom.actions.ask_to_confirm import ask_together
from postroom.clock import Clock
from postroom.domain.address_typos import domain_meant
from postroom.domain.asking import cannot_ask
from postroom.domain.consent import ConsentSource, Event, SourceKind, Trace
from postroom.domain.csv_people import Person
from postroom.domain.csv_rows import BadRow
from postroom.domain.errors import AlreadyThere, BadInput, NotFound
from postroom.domain.import_job import Existing, attributes_after
from postroom.domain.subscriber import INACTIVE_TEXTS, InactiveReason, Subscriber
from postroom.domain.texts import _
from postroom.records import counts, edits, lists, subscribers
from postroom.records.edits import EDITS_MAX, KnownSubscriber, SubscriberEdit
from postroom.records.stored import Stored
from postroom.storage.port import BATCH_CHANGES_MAX, Conflict, Tables

BATCH_PEOPLE = (BATCH_CHANGES_MAX - 1) // 2  # two rows each, and the change of the counts
AN_IMPORT = ConsentSource(SourceKind.IMPORT)
IN_FLIGHT_MAX = 16  # batches: enough for a group commit to pay, few enough to hold
# People put in order before they are stored, where nobody waits for the first of them. Neighbours
# share pages: a million people in no order then cost a quarter less processor time, and half the
# writing.
CROWD_PEOPLE = 30_000
_TRIES_MAX = 5
_FRONT_BITS = 32  # of a GUID, the same for a whole batch
_RANDOM_BYTES = 12  # of a GUID: nobody guesses a link


@dataclass
class Counts:
    """What became of the rows so far; the names are those of an import (domain/import_job.py)."""

    added: int = 0  # or, kept out, marked as gone
    already: int = 0
    twice: int = 0  # the same address again, within a crowd: its first row counts
    gone: int = 0  # left earlier, and not brought back
    bad: int = 0
    confirmed: int = 0  # of those already there
    updated: int = 0  # of those already there
    asked: int = 0  # of those added, or already there
    mended: int = 0  # addresses with a slip whose meaning is plain
    mistyped: int = 0  # addresses that look so; only a rehearsal counts them

    @property
    def rows(self) -> int:
        return self.added + self.already + self.twice + self.gone + self.bad


class Watch(Protocol):
    """Who looks on."""

    def may_go_on(self) -> bool:
        """Asked before every row and between batches; after a no, those under way are finished."""
        ...

    def refused(self, row: BadRow) -> None:
        """A row that is bad, or of somebody who is gone."""
        ...

    def noted(self, row: BadRow) -> None:
        """A row that is used, but worth a look."""
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
    source: ConsentSource = AN_IMPORT  # which file, and why these people may be mailed
    keep_out: bool = False  # nobody joins: they are marked as gone
    clock: Clock | None = None  # departures carry its time: an import may go on for long
    existing: Existing = Existing.LEAVE  # what happens to fields of people who are there
    asker: Act | None = None  # asks whoever is unverified
    crowd: int = BATCH_PEOPLE  # so many are put in order at a time; a kilobyte of memory each


async def bring_in(intake: Intake, rows: Iterable[Person | BadRow | None], watch: Watch) -> Counts:
    """Read, batch, store; the counts also after being told to stop.

    At every None, whatever else the process has to do gets its turn.
    """
    await lists.read(intake.tables, intake.list_name)
    door = _Door(intake, watch)
    try:
        for row in rows:
            if not watch.may_go_on():
                break
            if row is None:
                await asyncio.sleep(0)
                continue
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
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)  # one batch at a time is paced

    def receive(self, row: Person | BadRow) -> None:
        """Have the person wait, or count a row that storage need not judge."""
        if isinstance(row, BadRow):
            self.counts.bad += 1
            self.watch.refused(row)
        elif row.gone and not self.intake.keep_out:
            self._gone(row, row.gone)
        elif row.address.storage_key in self._waiting:
            self.counts.twice += 1
        else:
            self._waiting[row.address.storage_key] = row
            if row.mended or self.intake.is_rehearsal:
                self._look_at_spelling(row)

    def _look_at_spelling(self, row: Person) -> None:
        if row.mended:
            self.counts.mended += 1
            read = _("read as {address}", address=row.address.typed)
            self.watch.noted(BadRow(row.line, row.mended, str(read)))
        if self.intake.is_rehearsal and (meant := domain_meant(row.address.domain)):
            self.counts.mistyped += 1
            hint = _("Is {domain} meant? Correct it in the file if it is.", domain=meant)
            self.watch.noted(BadRow(row.line, row.address.typed, str(hint)))

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
        if self.intake.asker:
            async with self._asking:
                await self._ask(people, self.intake.asker)

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
        """Those not on the list, now or earlier; the others are changed as wanted, and counted."""
        tables, name = self.intake.tables, self.intake.list_name
        found = [await subscribers.find(tables, name, one.address.storage_key) for one in people]
        changed: list[tuple[Person, SubscriberEdit]] = []
        for person, known in zip(people, found, strict=True):
            if known and self.intake.keep_out:
                await self._see_off(known)
            elif known and (edit := self._known(person, KnownSubscriber(*known))):
                changed.append((person, edit))
        for start in range(0, len(changed), EDITS_MAX):
            await self._change(changed[start : start + EDITS_MAX])
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

    def _known(self, person: Person, known: KnownSubscriber) -> SubscriberEdit | None:
        """What the import changes of somebody on the list; None, and counted, if nothing."""
        if known.one.gone or known.one.gone_before:
            self._gone(person, known.one.gone or "")
            return None
        try:
            edit = self._edit(person, known)
        except BadInput as error:
            self.counts.bad += 1
            self.watch.refused(BadRow(person.line, person.address.typed, str(error)))
            return None
        if edit.after == edit.before or self.intake.is_rehearsal:
            self._count(edit)
            return None
        return edit

    def _edit(self, person: Person, known: KnownSubscriber) -> SubscriberEdit:
        intake, one = self.intake, known.one
        attributes = attributes_after(intake.existing, one.attributes, person.attributes)
        after = msgspec.structs.replace(one, attributes=attributes)
        if one.verified or not (intake.verified and person.verified):
            return SubscriberEdit(one, after, known.etag)
        after = msgspec.structs.replace(after, verified=True, since=intake.now, expires=False)
        trace = Trace(source=intake.source)
        return SubscriberEdit(one, after, known.etag, trace.consent(Event.CONFIRMED, intake.now))

    def _count(self, edit: SubscriberEdit) -> None:
        self.counts.already += 1
        self.counts.confirmed += edit.after.verified and not edit.before.verified
        self.counts.updated += edit.after.attributes != edit.before.attributes

    async def _change(self, changed: Sequence[tuple[Person, SubscriberEdit]]) -> None:
        """All by one write, or each by itself if somebody else changes one of them meanwhile."""
        tables, name, now = self.intake.tables, self.intake.list_name, self.intake.now
        try:
            await edits.replace_together(tables, name, [edit for _, edit in changed], now)
        except Conflict:
            for person, _edit in changed:
                await self._change_alone(person)
            return
        for _person, edit in changed:
            self._count(edit)

    async def _change_alone(self, person: Person) -> None:
        tables, name = self.intake.tables, self.intake.list_name
        for _try in range(_TRIES_MAX):
            found = await subscribers.find(tables, name, person.address.storage_key)
            if found is None:  # a sign-up that expired at this moment
                if await self._add([person]):
                    return
                continue
            edit = self._known(person, KnownSubscriber(*found))
            if edit is None:
                return
            with contextlib.suppress(Conflict):
                await edits.replace_together(tables, name, [edit], self.intake.now)
                self._count(edit)
                return
        raise Conflict("somebody changes too fast: run it again")

    async def _ask(self, people: Sequence[Person], asker: Act) -> None:
        """Newcomers are stored by now, so that they are found whatever happens next."""
        tables, name = self.intake.tables, self.intake.list_name
        found = [await subscribers.find(tables, name, one.address.storage_key) for one in people]
        if self.intake.is_rehearsal:
            now = self.intake.now
            self.counts.asked += sum(not each or cannot_ask(each[0], now) is None for each in found)
        else:
            self.counts.asked += await ask_together(
                asker, [KnownSubscriber(*each) for each in found if each]
            )

    async def _see_off(self, known: Stored[Subscriber]) -> None:
        """Whoever is there leaves; somebody may be changing them at this moment."""
        tables, name, key = self.intake.tables, self.intake.list_name, known[0].key
        trace = Trace(source=self.intake.source)
        consent = trace.consent(Event.REMOVED, self.intake.now)
        found: Stored[Subscriber] | None = known
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
                        tables, *found, why=InactiveReason.REMOVED, consent=consent, left_at=left_at
                    )
                self.counts.added += 1
                return
            found = await subscribers.find(tables, name, key)
        raise Conflict("somebody changes too fast: run it again")

    def _gone(self, person: Person, why: str) -> None:
        """Somebody who is gone or, without a reason, who signed up again and did not confirm."""
        self.counts.gone += 1
        reason = _("left earlier, and has not confirmed since they signed up again")
        if why:
            reason = _(
                "gone ({why}): add them one by one, and only if they ask for it",
                why=INACTIVE_TEXTS[InactiveReason(why)],
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
            gone=InactiveReason.REMOVED if keep_out else None,
            attributes={} if keep_out else person.attributes,
            import_source=self.intake.source,
            imported_at=self.intake.now,
        )
