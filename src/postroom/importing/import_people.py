"""Import people: add everybody in a stream of rows to a list, or keep them off it.

Before: a list, and a stream of rows, each a person or the reason why a row cannot be used.
After: new people are subscribers, as if added one by one; people who unsubscribed earlier stay
unsubscribed; every row is counted once. Depending on the terms, unconfirmed people on the list are
confirmed or asked to confirm, and attributes of people on the list are filled in or replaced. With
`keep_out`, people on the list are removed and all others are marked as removed, so that nobody can
add them. Memory holds a group of rows and a few batches, however long the stream is.
Dies half-way: some batches are stored, each as a whole. If it is run again with the same rows,
people who were added count as already there, people who match the file count as unchanged, and the
rest is done. The caller may record the position after each group (worker.py) or start from the
beginning (the command line); either way nobody is added, confirmed or asked twice.
Commit point: each batch, all or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from postroom.act import Act
from postroom.actions.ask_to_confirm import ask_together
from postroom.domain.address_typos import domain_meant
from postroom.domain.asking import cannot_ask
from postroom.domain.consent import Event
from postroom.domain.csv_rows import BadRow
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.subscriber import INACTIVE_TEXTS, InactiveReason, Subscriber
from postroom.domain.texts import _
from postroom.importing.csv_people import Person
from postroom.importing.job import BAD_ROWS_SHOWN, ExistingFields, ImportCounts, attributes_after
from postroom.records import counts, edits, lists, subscribers
from postroom.records.edits import EDITS_MAX, SubscriberEdit
from postroom.records.retry import retry_on_conflict
from postroom.records.stored import Stored
from postroom.storage.port import BATCH_CHANGES_MAX, Conflict
from postroom.task_pool import TaskPool

BATCH_PEOPLE = (BATCH_CHANGES_MAX - 1) // 2  # two rows each, and the change of the counts
IN_FLIGHT_MAX = 16  # batches: enough for a group commit to pay, few enough to hold
# Rows sorted by address before they are stored, unless they come through a pipe. Neighbours share
# pages: a million people in random order then cost a quarter less processor time, and half the
# writing.
GROUP_ROWS = 30_000
GROUP_STRETCHES = 1_000  # also ends a group: 8 MiB of a file may hold no rows at all
_FRONT_BITS = 32  # of a GUID, the same for a whole batch
_RANDOM_BYTES = 12  # of a GUID, so that nobody can guess a link
_KEEPS_CHANGING = "a row keeps changing: run the import again"


class ImportObserver:
    """Follows an import row by row, and keeps the first rows for a person to see."""

    def __init__(self) -> None:
        self.first_bad: list[BadRow] = []
        self.first_noted: list[BadRow] = []

    def may_go_on(self) -> bool:
        """Called before every row and between batches; after False, running batches finish."""
        return True

    def refused(self, row: BadRow) -> None:
        """A row is bad, or belongs to somebody who unsubscribed."""
        if len(self.first_bad) < BAD_ROWS_SHOWN:
            self.first_bad.append(row)

    def noted(self, row: BadRow) -> None:
        """A row is used, but a person should check it."""
        if len(self.first_noted) < BAD_ROWS_SHOWN:
            self.first_noted.append(row)

    def counted(self, counts: ImportCounts) -> None:
        """Called after every batch."""


@dataclass(frozen=True)
class ImportTerms:
    """Which list people are added to, and how."""

    act: Act  # its trace says which import this is, and why these people may be mailed
    list_name: str
    verified: bool
    is_rehearsal: bool = False  # a dry run: count, write nothing
    keep_out: bool = False  # nobody is added: they are marked as removed
    existing: ExistingFields = ExistingFields.LEAVE  # for people on the list
    ask: bool = False  # ask everybody who has not confirmed
    group_rows: int = BATCH_PEOPLE  # sorted at a time; a kilobyte of memory each


Record = Callable[[int, ImportCounts], Awaitable[None]]


async def import_people(
    terms: ImportTerms,
    rows: Iterable[Person | BadRow | None],
    observer: ImportObserver,
    *,
    so_far: ImportCounts | None = None,
    pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
    record: Record | None = None,
) -> ImportCounts:
    """Import all rows, or as many as the observer allows; return the counts.

    `pause` is awaited at every None, so that the rest of the process can run. `record` is awaited
    whenever everything up to a line is stored and counted; `so_far` is what it was given last.
    """
    await lists.read(terms.act.tables, terms.list_name)
    # After a failure, batches under way are cancelled: storage has each whole or not at all.
    async with TaskPool(IN_FLIGHT_MAX) as pool:
        buffer = ImportBuffer(terms, observer, so_far or ImportCounts(), pool, record)
        for row in rows:
            if not observer.may_go_on():
                break
            if row is None:
                await pause()
                buffer.stretches += 1
            else:
                buffer.add(row)
            if buffer.is_full:
                await buffer.end_group()
        await buffer.flush()
    observer.counted(buffer.counts)
    if not terms.is_rehearsal:
        with contextlib.suppress(Conflict):  # the scheduler is doing it
            await counts.fold(terms.act.tables, terms.list_name)
    return buffer.counts


@dataclass
class ImportBuffer:
    """Rows of the current group, and batches of people that are being stored."""

    terms: ImportTerms
    observer: ImportObserver
    counts: ImportCounts
    pool: TaskPool
    record: Record | None = None
    stretches: int = 0  # of the file, read for this group
    _rows: int = 0
    _line: int = 0  # of the last row
    _waiting: dict[str, Person] = field(default_factory=dict)  # by key: nobody waits twice
    _guids_from: int = field(default_factory=lambda: secrets.randbits(_FRONT_BITS))
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)  # one batch at a time is paced

    def add(self, row: Person | BadRow) -> None:
        """Add the person to the group, or count a row that needs no storage access."""
        self._rows += 1
        self._line = row.line
        if isinstance(row, BadRow):
            self.counts.bad += 1
            self.observer.refused(row)
            return
        if row.inactive_reason and not self.terms.keep_out:
            self._refuse_unsubscribed(row, row.inactive_reason)
            return
        if row.address.storage_key in self._waiting:
            self.counts.duplicates += 1
            return
        self._waiting[row.address.storage_key] = row
        if row.corrected_from:
            self.counts.corrected += 1
            read = _("read as {address}", address=row.address.typed)
            self.observer.noted(BadRow(row.line, row.corrected_from, str(read)))
        if self.terms.is_rehearsal and (meant := domain_meant(row.address.domain)):
            self.counts.mistyped += 1
            hint = _("Did you mean {domain}? If so, correct it in the file.", domain=meant)
            self.observer.noted(BadRow(row.line, row.address.typed, str(hint)))

    @property
    def is_full(self) -> bool:
        return self._rows >= self.terms.group_rows or self.stretches >= GROUP_STRETCHES

    async def end_group(self) -> None:
        """Store the group; with `record`, wait until it is stored, and record the position."""
        await self.flush()
        if self.record:
            await self.pool.finish()
            await self.record(self._line, self.counts)

    async def flush(self) -> None:
        """Store the group in order, each batch as soon as there is room for it."""
        people = [self._waiting[key] for key in sorted(self._waiting)]
        self._waiting = {}
        self._rows = 0
        self.stretches = 0
        for start in range(0, len(people), BATCH_PEOPLE):
            if start and not self.observer.may_go_on():
                return
            await self.pool.start(self._store(people[start : start + BATCH_PEOPLE]))
            await asyncio.sleep(0)  # one at a time: sixteen together would hold up everything else

    async def _store(self, people: Sequence[Person]) -> None:
        name = self.terms.list_name
        if await lists.find(self.terms.act.tables, name) is None:
            raise NotFound(_("The list {name} was deleted. Nobody else is added.", name=name))
        if self.terms.is_rehearsal:
            unknown = await self._unknown(people)  # first: other batches count meanwhile
            self.counts.added += len(unknown)
        elif not await self._add(people):
            unknown = await self._unknown(people)
            if unknown and not await self._add(unknown):
                await self._add_one_by_one(unknown)
        if self.terms.ask:
            async with self._asking:
                await self._ask(people)
        self.observer.counted(self.counts)

    async def _add(self, people: Sequence[Person]) -> bool:
        """Add all of them by one write; False, and nothing happened, if one is already there."""
        newcomers = list(map(self._newcomer, people, self._new_guids(len(people))))
        try:
            await subscribers.join_together(self.terms.act.tables, newcomers, self.terms.act.now)
        except Conflict:
            return False
        self.counts.added += len(people)
        return True

    async def _add_one_by_one(self, people: Sequence[Person]) -> None:
        """Add people while somebody else is adding some of them."""
        for person in people:
            if not await self._add([person]):
                await self._unknown([person])

    async def _find(self, person: Person) -> Stored[Subscriber] | None:
        key = person.address.storage_key
        return await subscribers.find(self.terms.act.tables, self.terms.list_name, key)

    async def _unknown(self, people: Sequence[Person]) -> list[Person]:
        """People who were never on the list; the others are changed and counted."""
        unknown: list[Person] = []
        changed: list[tuple[Person, SubscriberEdit]] = []
        for person, known in [(person, await self._find(person)) for person in people]:
            if known is None:
                unknown.append(person)
            elif self.terms.keep_out:
                await self._remove(person, known)
            elif edit := self._edit(person, known):
                changed.append((person, edit))
        for start in range(0, len(changed), EDITS_MAX):
            await self._change(changed[start : start + EDITS_MAX])
        return unknown

    def _edit(self, person: Person, known: Stored[Subscriber]) -> SubscriberEdit | None:
        """What the import changes of somebody on the list; None, and counted, if nothing."""
        terms = self.terms
        before = known.value
        if before.inactive_reason or before.inactive_reason_before:
            self._refuse_unsubscribed(person, before.inactive_reason or "")
            return None
        try:
            attributes = attributes_after(terms.existing, before.attributes, person.attributes)
        except BadInput as error:
            self.counts.bad += 1
            self.observer.refused(BadRow(person.line, person.address.typed, str(error)))
            return None
        after = msgspec.structs.replace(before, attributes=attributes)
        edit = SubscriberEdit(before, after, known.etag)
        if terms.verified and person.verified and not before.verified:
            after = msgspec.structs.replace(
                after, verified=True, since=terms.act.now, expires=False
            )
            edit = SubscriberEdit(before, after, known.etag, terms.act.consent(Event.CONFIRMED))
        if after == before or terms.is_rehearsal:
            self._count(edit)
            return None
        return edit

    def _count(self, edit: SubscriberEdit) -> None:
        self.counts.already += 1
        self.counts.confirmed += edit.after.verified and not edit.before.verified
        self.counts.updated += edit.after.attributes != edit.before.attributes

    async def _change(self, changed: Sequence[tuple[Person, SubscriberEdit]]) -> None:
        """Change all in one write, or one by one if somebody else changes one at the same time."""
        act, name = self.terms.act, self.terms.list_name
        try:
            await edits.replace_together(act.tables, name, [edit for _, edit in changed], act.now)
        except Conflict:
            for person, _edit in changed:
                change = partial(self._change_alone, person)
                await retry_on_conflict(change, at_last=Conflict(_KEEPS_CHANGING))
            return
        for _person, edit in changed:
            self._count(edit)

    async def _change_alone(self, person: Person) -> None:
        act, name = self.terms.act, self.terms.list_name
        found = await self._find(person)
        if found is None:  # a sign-up that expired at this moment
            if not await self._add([person]):
                raise Conflict("somebody else is adding them right now")
        elif edit := self._edit(person, found):
            await edits.replace_together(act.tables, name, [edit], act.now)
            self._count(edit)

    async def _ask(self, people: Sequence[Person]) -> None:
        """Ask a batch to confirm; its newcomers are stored by now, so they are found."""
        act = self.terms.act
        found = [await self._find(person) for person in people]
        if self.terms.is_rehearsal:
            self.counts.asked += sum(
                known is None or cannot_ask(known.value, act.now) is None for known in found
            )
        else:
            self.counts.asked += await ask_together(act, [known for known in found if known])

    async def _remove(self, person: Person, known: Stored[Subscriber]) -> None:
        """Remove somebody from the list, even while others are changing their row."""
        act = self.terms.act
        latest: Stored[Subscriber] | None = known

        async def remove() -> None:
            nonlocal latest
            found = latest or await self._find(person)
            latest = None  # after a conflict it is read again
            if found is None:
                raise Conflict("the sign-up has just expired")
            if found.value.inactive_reason:
                self.counts.already += 1
                return
            if not self.terms.is_rehearsal:
                await subscribers.leave(
                    act.tables,
                    *found,
                    why=InactiveReason.REMOVED,
                    consent=act.consent(Event.REMOVED),
                    left_at=act.clock.now(),  # not act.now: an import may take long
                )
            self.counts.added += 1

        await retry_on_conflict(remove, at_last=Conflict(_KEEPS_CHANGING))

    def _refuse_unsubscribed(self, person: Person, why: str) -> None:
        """Count somebody who unsubscribed; no reason means a new sign-up, not yet confirmed."""
        self.counts.unsubscribed += 1
        reason = _("unsubscribed earlier, and has not confirmed since signing up again")
        if why:
            reason = _(
                "no longer subscribed ({why}): add them one at a time, and only if they ask for it",
                why=INACTIVE_TEXTS[InactiveReason(why)],
            )
        self.observer.refused(BadRow(person.line, person.address.typed, str(reason)))

    def _new_guids(self, count: int) -> list[str]:
        """GUIDs with the same first 32 bits, and 96 random bits each.

        So the pointers of a batch are neighbours in storage and cost a page or two. With random
        GUIDs they cost a page each, and a million people take about three times as long.
        """
        self._guids_from = (self._guids_from + 1) % 2**_FRONT_BITS
        front = f"{self._guids_from:08x}"
        random = secrets.token_hex(_RANDOM_BYTES * count)
        chars = 2 * _RANDOM_BYTES
        return [front + random[at : at + chars] for at in range(0, chars * count, chars)]

    def _newcomer(self, person: Person, guid: str) -> Subscriber:
        keep_out = self.terms.keep_out
        return Subscriber(
            list_name=self.terms.list_name,
            address=person.address.typed,
            key=person.address.storage_key,
            guid=guid,
            verified=self.terms.verified and person.verified and not keep_out,
            since=self.terms.act.now,
            inactive_reason=InactiveReason.REMOVED if keep_out else None,
            attributes={} if keep_out else person.attributes,
            import_source=self.terms.act.trace.source,
            imported_at=self.terms.act.now,
        )
