"""How many senders run: they follow length, age and rate, at once upwards and calmly downwards."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest

from postroom.domain.scaling import (
    LATE_S,
    SETTLE_S,
    SHRINK_AFTER_S,
    QueueSnapshot,
    ScalingCause,
    ScalingDecision,
    ScalingMemory,
    ScalingSnapshot,
    SenderLimits,
    decide,
)

LIMITS = SenderLimits(0, 4)
FRESH = ScalingMemory()
MINUTES_5 = 300


def batches(waiting: int, oldest_s: float = 0.0) -> QueueSnapshot:
    return QueueSnapshot(waiting, oldest_s)


@pytest.mark.parametrize(
    ("snapshot", "wanted"),
    [
        (ScalingSnapshot(0.0), 0),
        (ScalingSnapshot(0.0, batches=batches(1)), 1),
        (ScalingSnapshot(0.0, batches=batches(6)), 2),
        (ScalingSnapshot(0.0, batches=batches(32)), 4),  # all at once, and never more
        (ScalingSnapshot(0.0, single_mails=QueueSnapshot(1)), 1),  # sign-ups alone
        (ScalingSnapshot(0.0, single_mails=QueueSnapshot(100_000)), 4),
        (ScalingSnapshot(0.0, batches=batches(3), single_mails=QueueSnapshot(300)), 2),
        (ScalingSnapshot(0.0, running=1, batches=batches(0), in_hand=9), 2),
    ],
)
def test_senders_follow_the_length_of_both_queues(snapshot: ScalingSnapshot, wanted: int) -> None:
    decision = decide(snapshot, LIMITS, FRESH)
    assert decision.senders == wanted
    assert (decision.reason is None) == (wanted == snapshot.running)


def test_the_reason_is_a_sentence_with_the_figures() -> None:
    snapshot = ScalingSnapshot(0.0, batches=batches(32), single_mails=QueueSnapshot(7))
    reason = decide(snapshot, LIMITS, FRESH).reason
    assert reason
    assert str(reason.sentence) == "32 batches and 7 single emails were waiting."


def test_the_minimum_runs_without_work_and_says_so() -> None:
    decision = decide(ScalingSnapshot(0.0), SenderLimits(2, 4), FRESH)
    assert decision.senders == 2
    assert decision.reason
    assert str(decision.reason.sentence) == "The minimum is 2."


def test_a_lower_maximum_counts_at_once() -> None:
    snapshot = ScalingSnapshot(0.0, running=4, batches=batches(32))
    decision = decide(snapshot, SenderLimits(0, 2), FRESH)
    assert (decision.senders, str(decision.reason and decision.reason.sentence)) == (
        2,
        "The maximum is 2.",
    )


def test_an_item_that_waits_long_brings_one_more_sender_and_then_time_to_settle() -> None:
    snapshot = ScalingSnapshot(100.0, running=1, batches=batches(2, LATE_S + 1), mails_per_s=50.0)
    first = decide(snapshot, LIMITS, FRESH)
    assert first.senders == 2
    assert first.reason
    assert first.reason.cause is ScalingCause.AGE
    later = msgspec.structs.replace(snapshot, at_s=101.0, running=2)
    assert decide(later, LIMITS, first.memory).senders == 2
    settled = msgspec.structs.replace(snapshot, at_s=100.0 + SETTLE_S, running=2)
    assert decide(settled, LIMITS, first.memory).senders == 3


def test_a_slow_mail_server_brings_as_many_as_would_send_it_within_a_minute() -> None:
    """Four batches are work for one sender, unless each email takes seconds."""
    snapshot = ScalingSnapshot(100.0, running=1, batches=batches(4), mails_per_s=2.0)
    decision = decide(snapshot, SenderLimits(0, 64), FRESH)
    assert decision.senders == 4  # 396 emails, 198 s
    assert decision.reason
    assert decision.reason.cause is ScalingCause.RATE
    fast = msgspec.structs.replace(snapshot, mails_per_s=2_000.0)
    assert decide(fast, SenderLimits(0, 64), FRESH).senders == 1


@pytest.mark.parametrize("oldest_s", [0.0, LATE_S * 10])
def test_senders_that_are_held_back_get_no_company(oldest_s: float) -> None:
    """The mail server is down, or a limit is used up: a second sender would wait, too."""
    snapshot = ScalingSnapshot(
        100.0, running=1, batches=batches(32, oldest_s), mails_per_s=0.1, is_held_back=True
    )
    assert decide(snapshot, LIMITS, FRESH).senders == 1
    assert decide(msgspec.structs.replace(snapshot, running=0), LIMITS, FRESH).senders == 1


def follow(snapshots: list[ScalingSnapshot]) -> list[ScalingDecision]:
    """One decision a second, each obeyed at once."""
    memory = FRESH
    running = 0
    decisions = []
    for second, snapshot in enumerate(snapshots):
        now = msgspec.structs.replace(snapshot, at_s=float(second), running=running)
        decisions.append(decide(now, LIMITS, memory))
        memory = decisions[-1].memory
        running = decisions[-1].senders
    return decisions


def changes(decisions: list[ScalingDecision]) -> list[int]:
    """The numbers one after the other, without repetitions."""
    numbers = [0, *(each.senders for each in decisions)]
    return [after for before, after in pairwise(numbers) if before != after]


def test_a_long_queue_brings_them_all_up_once_and_down_once() -> None:
    busy = [ScalingSnapshot(0.0, batches=batches(32))] * 20
    idle = [ScalingSnapshot(0.0)] * MINUTES_5
    decisions = follow([ScalingSnapshot(0.0), *busy, *idle])
    assert changes(decisions) == [4, 0]
    down = next(at for at, each in enumerate(decisions) if at > 20 and not each.senders)
    assert SHRINK_AFTER_S <= down - 20 <= SHRINK_AFTER_S + 2


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_queue_starts_and_stops_nothing_for_five_minutes(seed: int) -> None:
    """Full one second and empty the next, as a queue that is filled bit by bit snapshots."""
    chance = random.Random(seed)
    snapshots = [
        ScalingSnapshot(
            0.0,
            batches=batches(chance.choice([0, 0, 0, 3, 9, 32])),
            single_mails=QueueSnapshot(chance.choice([0, 0, 40, 900])),
            in_hand=chance.randrange(8),
            mails_per_s=chance.choice([0.0, 800.0, 5000.0]),
        )
        for _second in range(MINUTES_5)
    ]
    numbers = changes(follow(snapshots))
    assert numbers == sorted(numbers)  # never down
    assert numbers[-1] == LIMITS.maximum


def test_a_single_sign_up_now_and_then_keeps_one_sender_up() -> None:
    snapshots = [
        ScalingSnapshot(0.0, single_mails=QueueSnapshot(int(second % 20 == 5)))
        for second in range(300)
    ]
    assert changes(follow(snapshots)) == [1]


def test_scaling_down_keeps_as_many_as_the_busiest_check_needed() -> None:
    snapshots = [ScalingSnapshot(0.0, batches=batches(32))] * 3
    snapshots += [ScalingSnapshot(0.0, batches=batches(second % 7)) for second in range(100)]
    assert changes(follow(snapshots)) == [4, 2]
