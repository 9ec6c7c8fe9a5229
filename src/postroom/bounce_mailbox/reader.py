"""Read the bounce mailbox: a worker of the scheduler role turns mails into feedback events.

Before: servers returned mails, which wait in the mailbox.
After: each report about one of our emails is an event that stage 5 processes, and its mail is filed
with the recorded ones; all other mails are filed separately, for people.
Steps: hold the lease > list a few mails > read each > store their events > put the mails away >
count.
Dies half-way:
    before the events are stored   nothing has changed; the mails are read again
    events stored, mails there     the mails are read again and lead to the same events, by id;
                                   an event that comes twice counts once (flow/feedback.py)
    some mails put away            their events are stored; the others are read again
    before it has counted          the figures on the pages are a little too low
Commit point: the rows of the events. No mail is moved or deleted before that.

One reader at a time holds the lease, which only saves work: two of them would store the same
events, and put away mails whose events are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from postroom.bounce_mailbox.interpretation import (
    UNKNOWN_MAIL,
    Interpretation,
    interpret,
)
from postroom.bounce_mailbox.port import (
    BounceMailbox,
    Filing,
    MailboxUnavailable,
    ReturnedMail,
)
from postroom.clock import Clock
from postroom.domain.feedback import MAILBOX_SOURCE, FeedbackEvent
from postroom.records import feedback, leases, webhooks
from postroom.records.leases import Lease, RenewalTracker
from postroom.records.webhooks import WebhookCounts
from postroom.storage.port import Storage, StorageError

log = structlog.get_logger("bounce_mailbox")
LEASE = "bounce-mailbox"
LEASE_POLLS = 3  # the lease lasts as long, so that one reader keeps it and its connection
MAILS_TOGETHER = 50  # a few milliseconds each
SENDING_POLL_S = 10.0  # while messages are sent: most bounces come within minutes
FAULT_REST_S_MAX = 900.0  # servers lock out clients that log in too often
POSTPONED_S = 3600.0  # before a mail that could not be read or put away is tried again
POSTPONED_MAX = 10_000
COUNTS_EVERY_S = 300.0  # while nothing comes in


@dataclass
class MailboxReader:
    """One iteration is `step`; worker.py has the loop around it."""

    storage: Storage
    clock: Clock
    owner: str
    secret: str
    mailbox: BounceMailbox
    poll_s: float = 60.0
    lease_s: float = 30.0
    wake: Callable[[], None] = lambda: None  # those who deal with the events
    is_sending: Callable[[], bool] = lambda: False
    is_dead: Callable[[str], bool] = lambda owner: False  # knows the processes of this machine
    _lease: Lease | None = None
    _renew_at_s: float = 0.0
    _renewals: RenewalTracker = field(init=False)
    _postponed_until: dict[str, float] = field(default_factory=dict)  # until when, by id
    _faults: int = 0  # in a row
    _fault: str = ""
    _counted_at_s: float | None = None
    _is_stopping: bool = False

    def __post_init__(self) -> None:
        self._renewals = RenewalTracker(self.clock)

    async def step(self) -> bool:
        """Read a few mails; return whether there may be more."""
        if self._is_stopping or not await self._leads():
            return False
        try:
            has_more = await self._read_some()
        except MailboxUnavailable as error:
            await self._note_fault(str(error))
            return False
        except StorageError:
            raise
        except Exception as error:  # the other work of this role must continue
            log.exception("bounce_mailbox_failed")
            await self._note_fault(type(error).__name__)
            return False
        self._faults = 0
        self._fault = ""
        return has_more

    async def rest_s(self) -> float:
        if self._faults:
            return min(FAULT_REST_S_MAX, self.poll_s * 2.0 ** min(self._faults - 1, 10))
        return min(self.poll_s, SENDING_POLL_S) if self.is_sending() else self.poll_s

    def stop(self) -> None:
        """Read no further mail; those that are read are stored and put away."""
        self._is_stopping = True

    async def close(self) -> None:
        """Let another reader continue at once."""
        lease, self._lease = self._lease, None
        if lease:
            await leases.give_up(self.storage.tables, lease)
        await self.mailbox.close()

    # --- The steps ------------------------------------------------------------------------------

    async def _read_some(self) -> bool:
        ids = await self.mailbox.waiting(limit=MAILS_TOGETHER, besides=self._still_postponed())
        mails, trouble = await self._fetch(ids)
        read = {id_: await self._interpret(mail) for id_, mail in mails.items()}
        read = await self._store(read)
        for filing in Filing:
            await self._put_away(
                [id_ for id_, each in read.items() if each.filing is filing], filing
            )
        await self._count(list(read.values()))
        if trouble:
            raise trouble
        return bool(ids) and len(self._postponed_until) < POSTPONED_MAX

    async def _fetch(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, ReturnedMail], MailboxUnavailable | None]:
        """The mails that could be read, and why there are not more of them.

        A mail at which the connection breaks waits: it may be the reason, every time.
        """
        mails: dict[str, ReturnedMail] = {}
        for id_ in ids:
            if self._is_stopping:
                break
            try:
                mail = await self.mailbox.fetch(id_)
            except MailboxUnavailable as error:
                self._postpone(id_)
                return mails, error
            if mail is None:
                self._postpone(id_)
            else:
                mails[id_] = mail
        return mails, None

    async def _interpret(self, mail: ReturnedMail) -> Interpretation:
        """In a thread: a long mail takes a while."""
        try:
            return await asyncio.to_thread(interpret, mail, self.secret, self.clock.now())
        except Exception:  # this one is for people; the others must continue
            log.exception("returned_mail_unreadable", size=len(mail.content))
            return UNKNOWN_MAIL

    async def _store(self, read: dict[str, Interpretation]) -> dict[str, Interpretation]:
        """Store the events together, or each alone if one of them cannot be stored."""
        events = [each.event for each in read.values() if each.event]
        if not events:
            return read
        try:
            await feedback.take_in(self.storage, events)
        except StorageError:
            raise
        except Exception:  # something in one of them breaks a rule of storage
            log.exception("events_refused", count=len(events))
            refused = [event.id for event in events if not await self._is_stored(event)]
            read = {
                id_: UNKNOWN_MAIL if each.event and each.event.id in refused else each
                for id_, each in read.items()
            }
        self.wake()
        return read

    async def _is_stored(self, event: FeedbackEvent) -> bool:
        try:
            await feedback.take_in(self.storage, [event])
        except StorageError:
            raise
        except Exception:  # noqa: BLE001 - logged with the others
            return False
        return True

    async def _put_away(self, ids: Sequence[str], filing: Filing) -> None:
        if not ids:
            return
        for id_ in await self.mailbox.put_away(ids, filing):
            self._postpone(id_)

    # --- Mails that stay ------------------------------------------------------------------------

    def _postpone(self, id_: str) -> None:
        """Do not try this mail again for a while."""
        if len(self._postponed_until) < POSTPONED_MAX:
            self._postponed_until[id_] = self.clock.monotonic() + POSTPONED_S

    def _still_postponed(self) -> set[str]:
        now_s = self.clock.monotonic()
        self._postponed_until = {
            id_: until_s for id_, until_s in self._postponed_until.items() if until_s > now_s
        }
        return set(self._postponed_until)

    # --- What people see ------------------------------------------------------------------------

    async def _count(self, read: Sequence[Interpretation]) -> None:
        """Write the counts when something arrived, after a fault, and at intervals."""
        events = sum(each.event is not None for each in read)
        unknown = sum(each.filing is Filing.UNKNOWN for each in read)
        now_s = self.clock.monotonic()
        is_due = self._counted_at_s is None or now_s >= self._counted_at_s + COUNTS_EVERY_S
        if not (read or is_due or self._faults):
            return
        counts = WebhookCounts(events=events, unknown=unknown, last_at=self.clock.now())
        await webhooks.add_counts(self.storage.tables, MAILBOX_SOURCE, counts)
        self._counted_at_s = now_s
        if unknown:
            log.info("returned_mails_unknown", count=unknown)

    async def _note_fault(self, words: str) -> None:
        """Report the trouble, and let another reader try."""
        self._faults += 1
        if words != self._fault:  # once, not at every poll while it lasts
            self._fault = words
            name = self.mailbox.description
            log.warning("bounce_mailbox_unavailable", mailbox=name, words=words)
        counts = WebhookCounts(refused=1, refused_at=self.clock.now(), refusal=words)
        await webhooks.add_counts(self.storage.tables, MAILBOX_SOURCE, counts)
        await self.close()

    # --- The lease ------------------------------------------------------------------------------

    async def _leads(self) -> bool:
        now_s = self.clock.monotonic()
        if self._lease and now_s < self._renew_at_s:
            return True
        lease_s = max(self.lease_s, LEASE_POLLS * self.poll_s)
        self._lease = await leases.hold(
            self.storage.tables,
            LEASE,
            self.owner,
            now=self.clock.now(),
            lease_s=lease_s,
            kept=self._lease,
            renewals=self._renewals,
            is_dead=self.is_dead,
        )
        self._renew_at_s = now_s + lease_s / LEASE_POLLS
        return self._lease is not None
