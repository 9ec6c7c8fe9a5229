"""A delivery is one message for one subscriber; a batch of them travels together.

Delivery rows are written once and never changed. The state of each is one letter in the ledger of
its batch, so that every step of a whole slice is the write of a single row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import assert_never

import msgspec

from postroom.domain.message import Books, OnDoubt
from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown, Untried
from postroom.domain.retry import RetryRules, retry_after_s, retry_after_s_max

BATCH_DELIVERIES_MAX = 99  # and a header: one all-or-nothing write of 100
GROUP_BATCHES = 100  # ledgers of one partition: a page of the books
ATTEMPTS_WITHOUT_OUTCOME_MAX = 5
LIMIT_DEFERRAL_S_MAX = 300.0  # not longer, because the limit may be raised meanwhile
LIMIT_DEFERRAL_WORDS = "waiting: the rate limit of its domain is reached"
MAYBE_DELIVERED = "an earlier attempt may have been delivered"
DEFERRAL_WORDS_CHARS_MAX = 120  # 99 of them, every character escaped, fit one property (32 Ki)


class State(StrEnum):
    """The letter in the ledger. `SENDING` is written before a hand-over: it makes doubt visible."""

    QUEUED = "q"
    SENDING = "a"
    SENT = "s"
    FAILED = "f"
    HELD = "h"
    SKIPPED = "k"


_STATES = tuple(State)
OPEN = frozenset({State.QUEUED, State.SENDING})
FINAL = frozenset({State.SENT, State.FAILED, State.SKIPPED})


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """Everything needed to send the message to one person."""

    position: int
    key: str  # identity of the address, as a storage key
    address: str
    guid: str
    attributes: dict[str, str] = {}


class DeliveryEnd(msgspec.Struct, frozen=True, gc=False):
    """How a delivery ended, as recorded in its archive row."""

    state: State
    words: str
    ended_at: datetime


class Deferral(msgspec.Struct, frozen=True, array_like=True):
    """Why and until when a queued delivery waits; or why and since when one is held."""

    attempts: int  # 0: deferred by a rate limit of ours, never refused
    retry_at: float  # seconds since the epoch, as all times inside a ledger
    since: float  # the first refusal: the retry window counts from here
    words: str
    in_doubt: bool = False  # an earlier attempt may have been delivered


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The state of every delivery of a batch, and which sender is working on it."""

    ref: str
    batch: int
    states: str
    first: str  # address key of the first delivery, for the work item
    last: str  # and of the last: the next batch begins after it
    owner: str = ""  # the sender that announced; "" when nobody is sending
    write_id: str = ""  # of the last write: tells ours from an equal one of another lane
    revived: int = 0  # how often failed ones were revived: archive rows of before do not count
    decided: int = 0  # the last decision carried out here (message.decision)
    reviving: bool = False  # rows of the failed are being restored: nobody may delete them
    attempts_without_outcome: int = 0  # announced slices since the last outcome
    doubts: int = 0
    touched_at: float = 0.0
    deferred: dict[int, Deferral] = {}

    def positions(self, state: State) -> list[int]:
        if state not in self.states:
            return []
        return [at for at, letter in enumerate(self.states) if letter == state]

    @property
    def is_open(self) -> bool:
        return State.QUEUED in self.states or State.SENDING in self.states

    @property
    def is_final(self) -> bool:
        """Nobody is queued, sending, held or being revived: delivery rows are no longer needed."""
        return not self.is_open and State.HELD not in self.states and not self.reviving

    def books(self) -> Books:
        queued, sending, sent, failed, held, skipped = map(self.states.count, _STATES)
        return Books(queued, sending, sent, failed, held, skipped, self.doubts)

    def next_retry_at(self) -> float:
        """When the earliest queued delivery may be tried; 0.0 means now."""
        waits = [self.deferred.get(at) for at in self.positions(State.QUEUED)]
        return min((wait.retry_at if wait else 0.0 for wait in waits), default=0.0)


def with_states(ledger: Ledger, changed: Mapping[int, State]) -> str:
    letters = list(ledger.states)
    for at, state in changed.items():
        letters[at] = state
    return "".join(letters)


def due_positions(ledger: Ledger, now_s: float, rules: RetryRules) -> list[int]:
    """Queued deliveries whose time has come, in order."""
    deferred = ledger.deferred
    return [
        at
        for at in ledger.positions(State.QUEUED)
        if at not in deferred or _is_due(deferred[at], now_s, rules)
    ]


def _is_due(wait: Deferral, now_s: float, rules: RetryRules) -> bool:
    """Also true if `retry_at` is later than any rule allows: then the clock was set back."""
    left_s = wait.retry_at - now_s
    longest_s = retry_after_s_max(wait.attempts, rules) if wait.attempts else LIMIT_DEFERRAL_S_MAX
    return left_s <= 0 or left_s > max(longest_s, rules.doubt_s)


def announced(ledger: Ledger, slice_: Iterable[int], *, owner: str, now_s: float) -> Ledger:
    """The ledger that is written before a slice is handed over."""
    return msgspec.structs.replace(
        ledger,
        states=with_states(ledger, dict.fromkeys(slice_, State.SENDING)),
        owner=owner,
        attempts_without_outcome=ledger.attempts_without_outcome + 1,
        touched_at=now_s,
    )


def skipped(ledger: Ledger, positions: Iterable[int], *, now_s: float) -> Ledger:
    dropped = set(positions)
    return msgspec.structs.replace(
        ledger,
        states=with_states(ledger, dict.fromkeys(dropped, State.SKIPPED)),
        deferred={at: wait for at, wait in ledger.deferred.items() if at not in dropped},
        touched_at=now_s,
    )


def defer_by_limit(ledger: Ledger, until: Mapping[int, float], *, now_s: float) -> Ledger:
    """Let queued deliveries wait for a rate limit: untried, and no attempt is counted."""
    waits = {
        at: msgspec.structs.replace(
            ledger.deferred.get(at) or Deferral(0, late, now_s, LIMIT_DEFERRAL_WORDS),
            retry_at=late,
        )
        for at, late in until.items()
    }
    return msgspec.structs.replace(ledger, deferred=ledger.deferred | waits, touched_at=now_s)


class Verdict(msgspec.Struct, frozen=True):
    """What one outcome means for its delivery."""

    state: State
    words: str = ""
    deferral: Deferral | None = None
    doubt: bool = False


def judge(
    outcome: Outcome, before: Deferral | None, *, on_doubt: OnDoubt, rules: RetryRules, now_s: float
) -> Verdict:
    """Decide what an attempt means for its delivery; the only place that decides it."""
    match outcome:
        case Sent(words=words):
            return Verdict(State.SENT, words)
        case Rejected(words=words):
            return Verdict(State.FAILED, after_doubt(words, before))
        case Untried():
            return Verdict(State.QUEUED, deferral=before)
        case Deferred(scope=Scope.PROVIDER, reached=False):  # no attempt is counted
            return Verdict(State.QUEUED, deferral=before)
        case Unknown(words=words) if on_doubt is OnDoubt.HOLD:
            attempts = before.attempts + 1 if before else 1
            reply = words[:DEFERRAL_WORDS_CHARS_MAX]
            held = Deferral(attempts, now_s, now_s, reply, in_doubt=True)
            return Verdict(State.HELD, words, held, doubt=True)
        case Unknown(words=words):
            return _wait(words, before, rules, now_s, doubt=True)
        case Deferred(words=words):
            return _wait(words, before, rules, now_s)
        case _:
            assert_never(outcome)


def judge_slice(
    ledger: Ledger,
    outcomes: Mapping[int, Outcome],
    *,
    on_doubt: OnDoubt,
    rules: RetryRules,
    now: datetime,
) -> tuple[Ledger, dict[int, DeliveryEnd]]:
    """The ledger after a slice, and the outcomes to archive before it is written.

    Nearly every slice is accepted as a whole. Then each delivery is sent, whatever came before, as
    `judge` would decide, and no verdicts are needed.
    """
    now_s = now.timestamp()
    if all(type(outcome) is Sent for outcome in outcomes.values()):
        sent = State.SENT
        deferred = ledger.deferred
        after = msgspec.structs.replace(
            ledger,
            states=with_states(ledger, dict.fromkeys(outcomes, sent)),
            deferred=deferred and {at: deferred[at] for at in deferred if at not in outcomes},
            attempts_without_outcome=0,
            touched_at=now_s,
        )
        return after, {at: DeliveryEnd(sent, end.words, now) for at, end in outcomes.items()}
    verdicts = {
        at: judge(outcome, ledger.deferred.get(at), on_doubt=on_doubt, rules=rules, now_s=now_s)
        for at, outcome in outcomes.items()
    }
    return judged(ledger, verdicts, now_s=now_s), ends_of(verdicts, now)


def _wait(
    words: str, before: Deferral | None, rules: RetryRules, now_s: float, doubt: bool = False
) -> Verdict:
    """Queue it again, or give up once its window is over."""
    attempts = before.attempts + 1 if before else 1
    since = before.since if before and before.attempts else now_s
    retry_at = now_s + max(retry_after_s(attempts, rules), rules.doubt_s if doubt else 0.0)
    in_doubt = doubt or (before is not None and before.in_doubt)
    if retry_at > since + rules.window_s:
        words = words if doubt else after_doubt(words, before)
        return Verdict(State.FAILED, words, doubt=doubt)
    wait = Deferral(attempts, retry_at, since, words[:DEFERRAL_WORDS_CHARS_MAX], in_doubt)
    return Verdict(State.QUEUED, words, wait, doubt)


def after_doubt(words: str, before: Deferral | None) -> str:
    """The explanation of a delivery that did not end as sent, though it may have arrived."""
    return f"{words}; {MAYBE_DELIVERED}" if before and before.in_doubt else words


def judged(
    ledger: Ledger, verdicts: Mapping[int, Verdict], *, now_s: float, has_outcome: bool = True
) -> Ledger:
    """The ledger after an attempt: states, waits and doubts."""
    deferred = {at: wait for at, wait in ledger.deferred.items() if at not in verdicts}
    deferred |= {at: v.deferral for at, v in verdicts.items() if v.deferral}
    return msgspec.structs.replace(
        ledger,
        states=with_states(ledger, {at: verdict.state for at, verdict in verdicts.items()}),
        deferred=deferred,
        doubts=ledger.doubts + sum(verdict.doubt for verdict in verdicts.values()),
        attempts_without_outcome=0 if has_outcome else ledger.attempts_without_outcome,
        touched_at=now_s,
    )


def ends_of(verdicts: Mapping[int, Verdict], now: datetime) -> dict[int, DeliveryEnd]:
    """The final outcomes of a slice, which are archived."""
    return {
        at: DeliveryEnd(verdict.state, verdict.words, now)
        for at, verdict in verdicts.items()
        if verdict.state in FINAL
    }


class SenderStillAlive(msgspec.Struct, frozen=True):
    """The sender still holds the lock on its journal: it is running on this machine."""


class JournalEvidence(msgspec.Struct, frozen=True):
    """What a dead sender's ack journal proves about one batch."""

    handed: frozenset[int] = frozenset()
    answered: dict[int, Outcome] = {}
    whole: bool = False  # no hand-over is missing from the journal


def judge_in_hindsight(
    ledger: Ledger,
    ends: Mapping[int, DeliveryEnd],
    memory: JournalEvidence | None,
    *,
    on_doubt: OnDoubt,
    rules: RetryRules,
    now_s: float,
) -> dict[int, Verdict]:
    """Decide on every announced delivery of a dead sender.

    By the archive or the sender's journal; if neither knows it, it is in doubt.
    """
    verdicts: dict[int, Verdict] = {}
    outcome: Outcome
    for at in ledger.positions(State.SENDING):
        if at in ends:
            verdicts[at] = Verdict(ends[at].state, ends[at].words)
            continue
        before = ledger.deferred.get(at)
        if memory and at in memory.answered:
            outcome = memory.answered[at]
        elif memory and memory.whole and at not in memory.handed:
            outcome = Untried("its sender died before the hand-over")
        else:
            outcome = Unknown("its sender died between the hand-over and recording the answer")
        verdict = judge(outcome, before, on_doubt=on_doubt, rules=rules, now_s=now_s)
        if verdict.doubt and verdict.deferral:  # the server refused nothing: no need to wait
            at_once = msgspec.structs.replace(verdict.deferral, retry_at=now_s + rules.doubt_s)
            verdict = msgspec.structs.replace(verdict, deferral=at_once)
        verdicts[at] = verdict
    return verdicts


def held_for_people(ledger: Ledger, words: str, *, now_s: float) -> Ledger:
    """Hold all open deliveries of a dead letter until a person decides."""
    sending = ledger.positions(State.SENDING)
    stuck = ledger.positions(State.QUEUED) + sending
    words = words[:DEFERRAL_WORDS_CHARS_MAX]
    doubted = {*sending, *(at for at, wait in ledger.deferred.items() if wait.in_doubt)}
    whys = {at: Deferral(0, now_s, now_s, words, in_doubt=at in doubted) for at in stuck}
    return msgspec.structs.replace(
        ledger,
        states=with_states(ledger, dict.fromkeys(stuck, State.HELD)),
        owner="",
        deferred=ledger.deferred | whys,
        attempts_without_outcome=0,
        touched_at=now_s,
    )


def awaits(ledger: Ledger, decision: int) -> bool:
    """Whether a decision on failed or held deliveries is still to be carried out here.

    Also true if none is failed or held yet: the decision does not cover later ones.
    """
    is_settled = not ledger.is_open and not {State.FAILED, State.HELD} & set(ledger.states)
    return ledger.decided < decision and not is_settled


def revived(ledger: Ledger, back: Sequence[int], *, now_s: float) -> Ledger:
    """Queue failed or held deliveries again, with a fresh count of attempts; doubt stays."""
    doubted = {
        at: Deferral(0, now_s, now_s, wait.words, in_doubt=True)
        for at, wait in ledger.deferred.items()
        if at in back and wait.in_doubt
    }
    return msgspec.structs.replace(
        ledger,
        states=with_states(ledger, dict.fromkeys(back, State.QUEUED)),
        deferred={at: wait for at, wait in ledger.deferred.items() if at not in back} | doubted,
        revived=ledger.revived + 1,
        reviving=False,
        attempts_without_outcome=0,
        touched_at=now_s,
    )
