"""Stage 0a, confirm: mail people the link by which they confirm their subscription.

Before: subscribe.py stored each of them unverified and put an item on the subscribe queue.
After: the email was accepted and the consent record says so; or the subscriber's row says why not,
and when it is tried again.
Steps: read whom the items name > drop who confirmed or is gone > put back what is not due, or has
no turn under a rate limit > hand the rest over as one slice > write down what became of each >
complete the items, or give them back until the next attempt.
Dies half-way: the items in hand show again when their claims lapse, within two minutes.
    before the hand-over             nothing happened
    handed over, not written down    the same email, with the same Message-ID, is sent again
    written down, item not done      accepted or refused: as above, and the record has both.
                                     Waiting for a retry: the row says when, the item waits for it
    put anew, old item not done      two items wait; once accepted, the second is sent as well
What was tried stands on the subscriber's row, which is read anyway: an email that is accepted at
once costs no read and no write for it.
Commit point: the completion of the item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

import msgspec
import structlog

from postroom.clock import Clock
from postroom.domain.confirmation import (
    ConfirmationAttempts,
    after_attempt,
    given_up,
    is_untried,
    status_of,
)
from postroom.domain.consent import ConsentSource, Event, SourceKind, Trace
from postroom.domain.dead_letter import Reason
from postroom.domain.mailing_list import MailingList
from postroom.domain.outcome import Outcome, Sent
from postroom.domain.retry import RetryRules
from postroom.domain.subscriber import Subscriber
from postroom.domain.work_item import BadItem, ConfirmItem, parse_confirm_item
from postroom.records import consents, lists, subscribers
from postroom.records.dead_letters import bury
from postroom.records.retry import retry_on_conflict
from postroom.records.rows import Unreadable
from postroom.records.single_mail_items import (
    CLAIMS_MAX,
    FAULT_DELAY_S,
    complete,
    kept,
    release,
    start_over,
    together,
)
from postroom.records.stored import Stored
from postroom.storage.port import BATCH_CHANGES_MAX, Claim, Storage
from postroom.transport.port import Lane, Mail, Permit

log = structlog.get_logger("confirm")
SLICE_MAX = BATCH_CHANGES_MAX  # emails handed over together: their events fit into one write
UNREADABLE_DELAY_S = 60.0  # time for a sender of a newer version to take it
_BY_MAIL = Trace(source=ConsentSource(SourceKind.CONFIRMATION_EMAIL))
_SENDERS_STOPPED = "its sender stopped while it was sending this email, several times"


class Writer(Protocol):
    def confirmations(
        self, mailing_list: MailingList, people: Sequence[Subscriber]
    ) -> Sequence[Mail]: ...


class _ListRow(NamedTuple):
    """The list of several items, read once."""

    found: MailingList | None
    error: Unreadable | None = None

    def read(self) -> MailingList | None:
        if self.error:
            raise self.error
        return self.found


class _Request(NamedTuple):
    """A claimed item, and whom it asks to mail."""

    claim: Claim
    mailing_list: MailingList
    person: Subscriber
    etag: str

    @property
    def takes_in_vain(self) -> int:
        """How often it was taken before without any outcome."""
        known = self.person.confirmation
        counted = known.count if known and not known.has_ended else 0
        return self.claim.taken - 1 - counted


class _Result(NamedTuple):
    request: _Request
    outcome: Outcome
    attempts: ConfirmationAttempts | None  # from now on


@dataclass(frozen=True)
class Confirmer:
    storage: Storage
    clock: Clock
    writer: Writer
    rules: RetryRules

    async def mail(self, claims: Sequence[Claim], lane: Lane, permit: Permit) -> list[Outcome]:
        """All the steps of up to SLICE_MAX items; the outcomes of what was handed over.

        An item that was in the hands of a sender when it stopped may be why: each of those goes
        alone, so that it cannot take others along again.
        """
        requests = await self._read(claims)
        fresh = [each for each in requests if each.takes_in_vain <= 0]
        suspects = [each for each in requests if each.takes_in_vain > 0]
        await start_over(self.storage.queues, [each.claim for each in suspects[1:]], 0.0)
        outcomes = await self._send(fresh, lane, permit)
        return outcomes + await self._send(suspects[:1], lane, permit)

    async def _read(self, claims: Sequence[Claim]) -> list[_Request]:
        """Whom to mail, by the rows of this moment."""
        items = [await self._parsed(claim) for claim in claims]
        pairs = [(claim, item) for claim, item in zip(claims, items, strict=True) if item]
        known = {name: await self._list_row(name) for name in {item.list_name for _, item in pairs}}
        requests = await together(
            [self._request(claim, item, known[item.list_name]) for claim, item in pairs]
        )
        return [each for each in requests if each]

    async def _parsed(self, claim: Claim) -> ConfirmItem | None:
        """The item, with its list looked up if it names a GUID alone; None if it was buried."""
        try:
            item = parse_confirm_item(claim.body)
        except BadItem:
            await bury(self.storage.queues, claim, Reason.MALFORMED, self.clock.now())
            return None
        if item.list_name:
            return item
        list_name = await subscribers.find_list_of(self.storage.tables, item.guid)
        if list_name is None:
            await bury(self.storage.queues, claim, Reason.NO_SUBSCRIBER, self.clock.now())
            return None
        return ConfirmItem(item.guid, list_name)

    async def _list_row(self, name: str) -> _ListRow:
        try:
            return _ListRow(await lists.find(self.storage.tables, name))
        except Unreadable as error:
            return _ListRow(None, error)

    async def _request(self, claim: Claim, item: ConfirmItem, row: _ListRow) -> _Request | None:
        """None, and the item is dealt with, if there is nobody to mail now."""
        queues = self.storage.queues
        try:
            mailing_list = row.read()
            found = await subscribers.find_by_guid(self.storage.tables, item.list_name, item.guid)
        except Unreadable as error:
            log.error("confirmation_unreadable", list=item.list_name, error=str(error)[:200])
            await start_over(queues, [claim], UNREADABLE_DELAY_S)
            return None
        if mailing_list is None or found is None or found.value.verified:
            await complete(queues, claim)
            return None
        request = _Request(claim, mailing_list, *found)
        if request.takes_in_vain >= CLAIMS_MAX:
            await self._give_up(request, _SENDERS_STOPPED)
            return None
        return request

    async def _send(
        self, requests: Sequence[_Request], lane: Lane, permit: Permit
    ) -> list[Outcome]:
        written = await self._written(await self._due(requests))
        ready = await self._with_a_turn(written, permit)
        if not ready:
            return []
        claims = [request.claim for request, _ in ready]
        async with kept(self.storage.queues, self.clock, claims) as held:
            outcomes = await lane.send([mail for _, mail in ready], permit)
        now = self.clock.now()
        results = [
            _Result(
                request._replace(claim=held[request.claim.item]),
                outcome,
                after_attempt(outcome, request.person.confirmation, rules=self.rules, now=now),
            )
            for (request, _), outcome in zip(ready, outcomes, strict=True)
        ]
        await self._write_down([each for each in results if not is_untried(each.outcome)])
        await self._conclude(results, retry_s=FAULT_DELAY_S if permit.may_hand_over() else 0.0)
        return outcomes

    async def _due(self, requests: Sequence[_Request]) -> list[_Request]:
        """Without those whose next attempt comes later."""
        now, rules = self.clock.now(), self.rules
        waits_s = [
            each.person.confirmation.wait_s(now, rules) if each.person.confirmation else 0.0
            for each in requests
        ]
        pairs = list(zip(requests, waits_s, strict=True))
        await self._put_back([(each, wait_s) for each, wait_s in pairs if wait_s])
        return [each for each, wait_s in pairs if not wait_s]

    async def _written(self, requests: Sequence[_Request]) -> list[tuple[_Request, Mail]]:
        """With their emails; what is the same in those of a list is made once."""
        written: list[tuple[_Request, Mail]] = []
        by_list = sorted(requests, key=lambda each: each.mailing_list.name)
        for _name, found in groupby(by_list, key=lambda each: each.mailing_list.name):
            group = list(found)
            people = [each.person for each in group]
            try:
                mails = self.writer.confirmations(group[0].mailing_list, people)
            except ValueError as error:  # an administrator has to change it
                words = f"the sender of the list cannot be used: {error}"
                await together([self._give_up(each, words) for each in group])
            else:
                written += zip(group, mails, strict=True)
        return written

    async def _with_a_turn(
        self, written: Sequence[tuple[_Request, Mail]], permit: Permit
    ) -> list[tuple[_Request, Mail]]:
        """Without those whose domain is at its limit."""
        late = await permit.waits_s([mail.recipient for _, mail in written]) if written else {}
        await self._put_back([(written[place][0], wait_s) for place, wait_s in late.items()])
        return [pair for place, pair in enumerate(written) if place not in late]

    async def _put_back(self, waiting: Sequence[tuple[_Request, float]]) -> None:
        queues = self.storage.queues
        await together([start_over(queues, [each.claim], wait_s) for each, wait_s in waiting])

    async def _write_down(self, results: Sequence[_Result]) -> None:
        """Who was mailed into the consent record, who was not onto their row."""
        tables, keys = self.storage.tables, dict[str, list[str]]()
        for request, outcome, _attempts in results:
            if isinstance(outcome, Sent):
                keys.setdefault(request.mailing_list.name, []).append(request.person.key)
        mailed = _BY_MAIL.consent(Event.MAILED, self.clock.now())
        await together(
            [consents.note_for_all(tables, name, some, mailed) for name, some in keys.items()]
        )
        await together(
            [
                self._note(request, attempts)
                for request, _outcome, attempts in results
                if attempts != request.person.confirmation
            ]
        )

    async def _conclude(self, results: Sequence[_Result], *, retry_s: float) -> None:
        """What is done goes, what is to be tried again shows in time."""
        queues, now = self.storage.queues, self.clock.now()
        untried = [each.request.claim for each in results if is_untried(each.outcome)]
        tried = [each for each in results if not is_untried(each.outcome)]
        waiting = [
            (request.claim, (attempts.retry_at - now).total_seconds())
            for request, _outcome, attempts in tried
            if attempts and attempts.retry_at
        ]
        done = [
            request.claim
            for request, _outcome, attempts in tried
            if attempts is None or attempts.has_ended
        ]
        await start_over(queues, untried, retry_s)
        await complete(queues, *done)
        await together([release(queues, claim, max(0.0, wait_s)) for claim, wait_s in waiting])

    async def _give_up(self, request: _Request, words: str) -> None:
        attempts = given_up(words, request.person.confirmation, self.clock.now())
        await self._note(request, attempts)
        await complete(self.storage.queues, request.claim)

    async def _note(self, request: _Request, attempts: ConfirmationAttempts | None) -> None:
        """Write the attempts on the row, unless they confirmed or unsubscribed meanwhile."""
        tables = self.storage.tables
        person = request.person
        if attempts and attempts.has_ended:
            log.warning(
                "confirmation_not_sent",
                state=attempts.state.value,
                list=person.list_name,
                person=person.guid[:8],
                attempts=attempts.count,
                status=status_of(attempts.words),
            )
        known: Stored[Subscriber] | None = Stored(person, request.etag)

        async def note() -> None:
            nonlocal known
            found = known or await subscribers.find_by_guid(tables, person.list_name, person.guid)
            known = None  # after a conflict it is read again
            if found and not found.value.verified:
                noted = msgspec.structs.replace(found.value, confirmation=attempts)
                await subscribers.replace(tables, found.value, noted, found.etag)

        await retry_on_conflict(note)
