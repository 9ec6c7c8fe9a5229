"""How many senders a machine should run: one pure decision, from the waiting work and its rate.

As many senders as the queues need start at once. The number is reduced only if fewer would have
been enough at every check of the last half minute, so that a noisy queue does not cause flapping.
"""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.texts import Text, _

# The scheduler lets a few dozen batches wait and every sender keeps its lanes full, so a long
# mailing asks for all senders at once.
ITEMS_PER_SENDER = 5
MAILS_PER_ITEM = 99  # of a batch; about as many single emails are as much work
LATE_S = 15.0  # an item that waits longer asks for one more sender
CLEAR_S = 60.0  # what waits should be sent within this time, at the measured rate
SETTLE_S = 10.0  # until a new sender shows in age and rate, they ask for no other one
SHRINK_AFTER_S = 30.0
CHANGES_KEPT = 20  # of each machine, for the page


class QueueSnapshot(msgspec.Struct, frozen=True):
    """What waits in one queue: items that could be claimed now, not claimed or deferred ones."""

    waiting: int = 0
    oldest_s: float = 0.0  # how long the first one has been waiting, as far as was seen


class ScalingSnapshot(msgspec.Struct, frozen=True):
    """Everything the decision is made from."""

    at_s: float  # monotonic
    running: int = 0  # senders
    batches: QueueSnapshot = QueueSnapshot()
    single_mails: QueueSnapshot = QueueSnapshot()
    in_hand: int = 0  # items the senders are working on
    mails_per_s: float = 0.0  # of all senders of this machine together
    is_held_back: bool = False  # all senders wait for the mail server, a rate limit or the disk

    @property
    def items(self) -> int:
        singles = math.ceil(self.single_mails.waiting / MAILS_PER_ITEM)
        return self.batches.waiting + singles + self.in_hand

    @property
    def clear_s(self) -> float:
        """How long what waits will take at the measured rate; 0 if there is no rate yet."""
        mails = self.batches.waiting * MAILS_PER_ITEM + self.single_mails.waiting
        return mails / self.mails_per_s if self.mails_per_s else 0.0

    @property
    def oldest_s(self) -> float:
        return max(self.batches.oldest_s, self.single_mails.oldest_s)


class SenderLimits(msgspec.Struct, frozen=True):
    """How many senders a machine may run."""

    minimum: int
    maximum: int

    def clamp(self, senders: int) -> int:
        """The minimum wins over a smaller maximum."""
        return max(self.minimum, min(senders, self.maximum))


class ScalingMemory(msgspec.Struct, frozen=True):
    """What is remembered from earlier checks."""

    added_at_s: float = -math.inf
    calm_since_s: float | None = None  # since then fewer than were running would have been enough
    calm_need: int = 0  # the most that was needed since then


class ScalingCause(StrEnum):
    LENGTH = "length"
    AGE = "age"
    RATE = "rate"
    QUIET = "quiet"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"


class ScalingReason(msgspec.Struct, frozen=True):
    """Why the number changed, with the figures it was decided from."""

    cause: ScalingCause
    batches: int = 0
    single_mails: int = 0
    seconds: float = 0.0
    mails_per_s: float = 0.0
    limit: int = 0

    @property
    def sentence(self) -> Text:
        match self.cause:
            case ScalingCause.LENGTH:
                return _(
                    "{batches:,} batches and {single_mails:,} single emails were waiting.",
                    batches=self.batches,
                    single_mails=self.single_mails,
                )
            case ScalingCause.AGE:
                return _(
                    "The oldest item had been waiting for {seconds:.0f} s.", seconds=self.seconds
                )
            case ScalingCause.RATE:
                return _(
                    "At {rate:,.1f} emails per second, the waiting emails would have taken "
                    "{seconds:,.0f} s.",
                    rate=self.mails_per_s,
                    seconds=self.seconds,
                )
            case ScalingCause.QUIET:
                return _("Fewer were enough for {seconds:.0f} s.", seconds=self.seconds)
            case ScalingCause.MINIMUM:
                return _("The minimum is {limit}.", limit=self.limit)
            case ScalingCause.MAXIMUM:
                return _("The maximum is {limit}.", limit=self.limit)


class ScalingDecision(msgspec.Struct, frozen=True):
    senders: int
    reason: ScalingReason | None  # None if the number stays
    memory: ScalingMemory


class ScalingChange(msgspec.Struct, frozen=True):
    """One change of the number of senders, as pages show it."""

    at: datetime
    before: int
    after: int
    reason: ScalingReason


def decide(
    snapshot: ScalingSnapshot, limits: SenderLimits, memory: ScalingMemory
) -> ScalingDecision:
    """Decide how many senders should run, with the reason if that is a change."""
    need, reason = _need(snapshot, limits, memory)
    if need > snapshot.running:
        return ScalingDecision(need, reason, ScalingMemory(added_at_s=snapshot.at_s))
    if snapshot.running > limits.clamp(snapshot.running):  # somebody lowered the maximum
        reason = ScalingReason(ScalingCause.MAXIMUM, limit=limits.maximum)
        fewer = ScalingMemory(memory.added_at_s)
        return ScalingDecision(limits.clamp(snapshot.running), reason, fewer)
    if need == snapshot.running:
        return ScalingDecision(need, None, ScalingMemory(memory.added_at_s))
    since_s = snapshot.at_s if memory.calm_since_s is None else memory.calm_since_s
    calm = ScalingMemory(memory.added_at_s, since_s, max(need, memory.calm_need))
    if snapshot.at_s < since_s + SHRINK_AFTER_S:
        return ScalingDecision(snapshot.running, None, calm)
    reason = ScalingReason(ScalingCause.QUIET, seconds=snapshot.at_s - since_s)
    return ScalingDecision(calm.calm_need, reason, ScalingMemory(memory.added_at_s))


def _need(
    snapshot: ScalingSnapshot, limits: SenderLimits, memory: ScalingMemory
) -> tuple[int, ScalingReason]:
    """How many senders this snapshot alone calls for, within the limits."""
    reason = ScalingReason(
        ScalingCause.LENGTH,
        snapshot.batches.waiting,
        snapshot.single_mails.waiting,
        snapshot.oldest_s,
        snapshot.mails_per_s,
    )
    wanted = math.ceil(snapshot.items / ITEMS_PER_SENDER)
    if snapshot.is_held_back:  # more senders would wait, too
        wanted = min(wanted, max(snapshot.running, 1))
    elif snapshot.running and snapshot.at_s >= memory.added_at_s + SETTLE_S:
        by_rate = math.ceil(snapshot.running * snapshot.clear_s / CLEAR_S)
        if by_rate > max(wanted, snapshot.running):
            wanted = by_rate
            reason = msgspec.structs.replace(
                reason, cause=ScalingCause.RATE, seconds=snapshot.clear_s
            )
        elif snapshot.oldest_s > LATE_S and wanted <= snapshot.running:
            wanted = snapshot.running + 1
            reason = msgspec.structs.replace(reason, cause=ScalingCause.AGE)
    if wanted < limits.minimum:
        reason = ScalingReason(ScalingCause.MINIMUM, limit=limits.minimum)
    return limits.clamp(wanted), reason
