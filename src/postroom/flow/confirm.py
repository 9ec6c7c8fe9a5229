"""Stage 0a, confirm: mail people the link by which they confirm their subscription.

Before: subscribe.py stored each of them unverified and put an item on the subscribe queue.
After: the email was accepted and the consent record shows it; or the subscriber's row has the
reason why not, and the time of the next attempt.
Steps: read the people the items name > drop those who confirmed or unsubscribed > give up on those
who are suppressed for all email > put back what is not due or is over a rate limit > hand the rest
over as one slice > record the outcome of each > complete the items, or put them back until the
next attempt.
Dies half-way: the claimed items reappear when their claims expire, within two minutes.
    before the hand-over             nothing happened
    handed over, not recorded        the same email, with the same Message-ID, is sent again
    recorded, item not completed     accepted or refused: as above, and the record has both.
                                     To be retried: the row has the time, and the item waits for it
    put again, old item still there  two items wait; after the first is accepted, the second is
                                     sent too
The attempts are on the subscriber's row, which is read anyway: an email that is accepted at once
costs no read and no write for them.
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
from postroom.domain.suppression import REASON_TEXTS
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
from postroom.records.suppression_filter import SuppressionFilter
from postroom.storage.port import BATCH_CHANGES_MAX, Claim, Storage
from postroom.transport.port import Lane, OutgoingMail, Permit

log = structlog.get_logger("confirm")
SLICE_MAX = BATCH_CHANGES_MAX  # emails handed over together: their events fit into one write
UNREADABLE_DELAY_S = 60.0  # time for a sender of a newer version to claim it
_BY_MAIL = Trace(source=ConsentSource(SourceKind.CONFIRMATION_EMAIL))
_SENDERS_STOPPED = "its sender stopped while it was sending this email, several times"


class ConfirmationWriter(Protocol):
    def confirmations(
        self, mailing_list: MailingList, people: Sequence[Subscriber]
    ) -> Sequence[OutgoingMail]: ...


class _Request(NamedTuple):
    """A claimed item, and the person to mail."""

    claim: Claim
    mailing_list: MailingList
    person: Subscriber
    etag: str

    @property
    def claims_without_outcome(self) -> int:
        """How many earlier claims of the item ended without an outcome."""
        known = self.person.confirmation
        counted = known.count if known and not known.has_ended else 0
        return self.claim.taken - 1 - counted


class _AttemptResult(NamedTuple):
    request: _Request
    outcome: Outcome
    attempts: ConfirmationAttempts | None  # to be stored


@dataclass(frozen=True)
class Confirmer:
    storage: Storage
    clock: Clock
    writer: ConfirmationWriter
    rules: RetryRules
    suppressions: SuppressionFilter | None = None  # None: nobody is suppressed

    async def mail(self, claims: Sequence[Claim], lane: Lane, permit: Permit) -> list[Outcome]:
        """Take up to SLICE_MAX items through all the steps; return the outcomes of the hand-overs.

        An item that was being sent when its sender died may have caused the crash, so it is sent
        alone and cannot hold up others again.
        """
        requests = await self._without_suppressed(await self._read(claims))
        fresh = [each for each in requests if each.claims_without_outcome <= 0]
        suspects = [each for each in requests if each.claims_without_outcome > 0]
        await start_over(self.storage.queues, [each.claim for each in suspects[1:]], 0.0)
        outcomes = await self._send(fresh, lane, permit)
        return outcomes + await self._send(suspects[:1], lane, permit)

    async def _read(self, claims: Sequence[Claim]) -> list[_Request]:
        """The people to mail, by their current rows; each list is read once."""
        items = [(claim, await self._parse(claim)) for claim in claims]
        pairs = [(claim, item) for claim, item in items if item]
        known = {
            name: await self._find_list(name) for name in {item.list_name for _, item in pairs}
        }
        requests = await together(
            [self._request(claim, item, known[item.list_name]) for claim, item in pairs]
        )
        return [each for each in requests if each]

    async def _parse(self, claim: Claim) -> ConfirmItem | None:
        """The item, with its list if it names a GUID alone; None if it was buried."""
        reason = Reason.NO_SUBSCRIBER
        try:
            item = parse_confirm_item(claim.body)
            if item.list_name:
                return item
            if list_name := await subscribers.find_list_of(self.storage.tables, item.guid):
                return ConfirmItem(item.guid, list_name)
        except BadItem:
            reason = Reason.MALFORMED
        await bury(self.storage.queues, claim, reason, self.clock.now())
        return None

    async def _find_list(self, name: str) -> MailingList | Unreadable | None:
        try:
            return await lists.find(self.storage.tables, name)
        except Unreadable as error:
            return error

    async def _request(
        self, claim: Claim, item: ConfirmItem, mailing_list: MailingList | Unreadable | None
    ) -> _Request | None:
        """None, and the item is settled, if there is nobody to mail now."""
        queues = self.storage.queues
        try:
            if isinstance(mailing_list, Unreadable):
                raise mailing_list
            found = await subscribers.find_by_guid(self.storage.tables, item.list_name, item.guid)
        except Unreadable as error:
            log.error("confirmation_unreadable", list=item.list_name, error=str(error)[:200])
            await start_over(queues, [claim], UNREADABLE_DELAY_S)
            return None
        if mailing_list is None or found is None or found.value.verified:
            await complete(queues, claim)
            return None
        request = _Request(claim, mailing_list, *found)
        if request.claims_without_outcome >= CLAIMS_MAX:
            await self._give_up(request, _SENDERS_STOPPED)
            return None
        return request

    async def _without_suppressed(self, requests: Sequence[_Request]) -> list[_Request]:
        """Give up on people who are suppressed for all email; a complaint stops only messages.

        Costs one read every two seconds, however many confirmations are sent.
        """
        if self.suppressions is None or not requests:
            return list(requests)
        keys = [each.person.key for each in requests]
        found = await self.suppressions.suppressed_entirely(keys)
        await together(
            [
                self._give_up(each, f"suppressed: {REASON_TEXTS[found[each.person.key].reason]}")
                for each in requests
                if each.person.key in found
            ]
        )
        return [each for each in requests if each.person.key not in found]

    async def _send(
        self, requests: Sequence[_Request], lane: Lane, permit: Permit
    ) -> list[Outcome]:
        """Hand over what is due and within the rate limits, and record the outcomes."""
        now = self.clock.now()
        waits_s = [
            each.person.confirmation.wait_s(now, self.rules) if each.person.confirmation else 0.0
            for each in requests
        ]
        pairs = list(zip(requests, waits_s, strict=True))
        await self._put_back([(each, wait_s) for each, wait_s in pairs if wait_s])
        written = await self._write([each for each, wait_s in pairs if not wait_s])
        late = await permit.waits_s([mail.recipient for _, mail in written]) if written else {}
        await self._put_back([(written[place][0], wait_s) for place, wait_s in late.items()])
        ready = [pair for place, pair in enumerate(written) if place not in late]
        if not ready:
            return []
        claims = [request.claim for request, _ in ready]
        async with kept(self.storage.queues, self.clock, claims) as held:
            outcomes = await lane.send([mail for _, mail in ready], permit)
        now = self.clock.now()
        results = [
            _AttemptResult(
                request._replace(claim=held[request.claim.item]),
                outcome,
                after_attempt(outcome, request.person.confirmation, rules=self.rules, now=now),
            )
            for (request, _), outcome in zip(ready, outcomes, strict=True)
        ]
        await self._record(results, retry_s=FAULT_DELAY_S if permit.may_hand_over() else 0.0)
        return outcomes

    async def _put_back(self, waiting: Sequence[tuple[_Request, float]]) -> None:
        queues = self.storage.queues
        await together([start_over(queues, [each.claim], wait_s) for each, wait_s in waiting])

    async def _write(self, requests: Sequence[_Request]) -> list[tuple[_Request, OutgoingMail]]:
        """The requests with their emails; what the emails of a list share is compiled once."""
        written: list[tuple[_Request, OutgoingMail]] = []
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

    async def _record(self, results: Sequence[_AttemptResult], *, retry_s: float) -> None:
        """Record the outcome of each attempt, then complete the items or put them back."""
        tables, queues = self.storage.tables, self.storage.queues
        untried = [each.request.claim for each in results if is_untried(each.outcome)]
        tried = [each for each in results if not is_untried(each.outcome)]
        keys: dict[str, list[str]] = {}
        for request, outcome, _attempts in tried:
            if isinstance(outcome, Sent):
                keys.setdefault(request.mailing_list.name, []).append(request.person.key)
        mailed = _BY_MAIL.consent(Event.MAILED, self.clock.now())
        await together(
            [consents.note_for_all(tables, name, some, mailed) for name, some in keys.items()]
        )
        await together(
            [
                self._note(request, attempts)
                for request, _outcome, attempts in tried
                if attempts != request.person.confirmation
            ]
        )
        await start_over(queues, untried, retry_s)
        ended = [each for each in tried if each.attempts is None or each.attempts.has_ended]
        await complete(queues, *(each.request.claim for each in ended))
        now = self.clock.now()
        await together(
            [
                release(queues, request.claim, max(0.0, (attempts.retry_at - now).total_seconds()))
                for request, _outcome, attempts in tried
                if attempts and attempts.retry_at
            ]
        )

    async def _give_up(self, request: _Request, words: str) -> None:
        attempts = given_up(words, request.person.confirmation, self.clock.now())
        await self._note(request, attempts)
        await complete(self.storage.queues, request.claim)

    async def _note(self, request: _Request, attempts: ConfirmationAttempts | None) -> None:
        """Write the attempts on the row, unless they have confirmed or unsubscribed since."""
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
