"""Action, send test mail: mail a message to one user, who checks it before it is sent.

Before: a user asked for it, and an item is on the subscribe queue.
After: the user has the email, with “[Test]” before its subject and a link that changes nothing; a
row has its outcome for the message's page. A user whose address is suppressed for all email gets
none, and the row has the reason.
Dies half-way: the item reappears; at worst the same email, with the same Message-ID, is sent twice.
Commit point: the completion of the item.
"""

from __future__ import annotations

from typing import Protocol, assert_never

from postroom.act import Act
from postroom.clock import Clock
from postroom.domain.address import Address, parse_address
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.dead_letter import Reason
from postroom.domain.errors import PostroomError, WrongState
from postroom.domain.message import Message
from postroom.domain.outcome import (
    Deferred,
    Outcome,
    Rejected,
    Scope,
    Sent,
    Unknown,
    Untried,
    clip,
)
from postroom.domain.retry import RetryRules, retry_after_s
from postroom.domain.suppression import REASON_TEXTS
from postroom.domain.texts import _
from postroom.domain.trial import Trial, TrialState, state_after
from postroom.domain.work_item import BadItem, TrialItem, parse_trial_item
from postroom.records import messages, trials, users
from postroom.records.dead_letters import bury
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.records.rows import Unreadable
from postroom.records.single_mail_items import (
    CLAIMS_MAX,
    FAULT_DELAY_S,
    complete,
    release,
    start_over,
)
from postroom.records.suppression_filter import SuppressionFilter
from postroom.storage.port import Claim, Queues, Storage
from postroom.transport.port import Lane, OutgoingMail, Permit

RULES = RetryRules(first_s=15.0, longest_s=300.0)  # somebody is waiting for it


class TrialWriter(Protocol):
    async def trial(self, message: Message, address: Address, nonce: str) -> OutgoingMail: ...


async def ask_for_test(act: Act, ref: str, user_key: str, nonce: str) -> None:
    """Queue the test email for a sender; NotFound if there is no such message."""
    await messages.read(act.tables, ref)
    async with act.audited(AuditKind.MESSAGE, ref, AuditAction.TEST):
        await trials.ask(act.tables, Trial(ref=ref, user=user_key, nonce=nonce, asked_at=act.now))
        await act.storage.queues.put(SINGLE_MAIL_QUEUE, TrialItem(ref, nonce, user_key).body())
    act.wake_senders()


async def mail_test(
    storage: Storage,
    writer: TrialWriter,
    clock: Clock,
    claim: Claim,
    lane: Lane,
    permit: Permit,
    suppressions: SuppressionFilter | None = None,
) -> Outcome | None:
    """Process one item; return the outcome, or None if nothing was mailed."""
    try:
        item = parse_trial_item(claim.body)
    except BadItem:
        await bury(storage.queues, claim, Reason.MALFORMED, clock.now())
        return None
    if claim.taken > CLAIMS_MAX:  # every sender that claimed it died
        await trials.note(storage.tables, item, TrialState.GIVEN_UP, "", clock.now())
        await bury(storage.queues, claim, Reason.TEST_NOT_SENT, clock.now())
        return None
    try:
        message = await messages.read(storage.tables, item.ref)
        user, _etag = await users.read(storage.tables, item.user)
        await _check_not_suppressed(suppressions, user.key)
        mail = await writer.trial(message, parse_address(user.address), item.nonce)
    except (PostroomError, Unreadable) as error:
        await trials.note(
            storage.tables, item, TrialState.UNWRITABLE, clip(str(error)), clock.now()
        )
        await complete(storage.queues, claim)
        return None
    if late := await permit.waits_s([mail.recipient]):
        await start_over(storage.queues, [claim], late[0])
        return None
    [outcome] = await lane.send([mail], permit)
    if state := state_after(outcome, is_last=claim.taken >= CLAIMS_MAX):
        await trials.note(storage.tables, item, state, outcome.words, clock.now())
    await _conclude(storage.queues, claim, outcome, clock)
    return outcome


async def _check_not_suppressed(suppressions: SuppressionFilter | None, key: str) -> None:
    """Refuse an address that is suppressed for all email: mailing it harms our reputation."""
    if suppressions is None:
        return
    if entry := (await suppressions.suppressed_entirely([key])).get(key):
        raise WrongState(
            _(
                "your address is suppressed for all email ({reason}). An owner can remove it from "
                "the suppression list.",
                reason=REASON_TEXTS[entry.reason],
            )
        )


async def _conclude(queues: Queues, claim: Claim, outcome: Outcome, clock: Clock) -> None:
    match outcome:
        case Sent() | Rejected() | Untried(too_large=True):
            await complete(queues, claim)
        case Deferred(scope=Scope.PROVIDER) | Untried():
            await start_over(queues, [claim], FAULT_DELAY_S)
        case Deferred() | Unknown() if claim.taken >= CLAIMS_MAX:
            await bury(queues, claim, Reason.TEST_NOT_SENT, clock.now())
        case Deferred() | Unknown():
            await release(queues, claim, retry_after_s(claim.taken, RULES))
        case _:
            assert_never(outcome)
