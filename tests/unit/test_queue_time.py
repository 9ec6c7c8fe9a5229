"""The time of the queues follows the wall clock, but never back."""

from __future__ import annotations

from postroom.storage.queue_time import SECOND_US, Clocks, QueueTime, queue_time

HOUR_US = 3600 * SECOND_US
MORNING = 1_794_733_200 * SECOND_US
BOOT = "first"


def at(passed_us: int, *, ahead_us: int = 0, boot: str = BOOT) -> Clocks:
    return Clocks(boot, MORNING + passed_us + ahead_us, passed_us)


def stored_at(passed_us: int) -> QueueTime:
    return queue_time(None, at(passed_us))[1]


def test_it_begins_with_the_wall_clock() -> None:
    assert queue_time(None, at(5)) == (MORNING + 5, QueueTime(BOOT, MORNING, MORNING + 5))


def test_it_is_not_written_again_while_nothing_happens() -> None:
    stored = stored_at(0)
    assert queue_time(stored, at(30 * SECOND_US)) == (MORNING + 30 * SECOND_US, stored)


def test_now_and_then_it_notes_how_far_it_is() -> None:
    now_us, wanted = queue_time(stored_at(0), at(61 * SECOND_US))
    assert wanted.seen_us == now_us == MORNING + 61 * SECOND_US


def test_it_does_not_go_back() -> None:
    stored = stored_at(0)
    now_us, wanted = queue_time(stored, at(10, ahead_us=-3 * HOUR_US))
    assert (now_us, wanted) == (MORNING + 10, stored)


def test_it_goes_forward_and_stays_there() -> None:
    now_us, wanted = queue_time(stored_at(0), at(10, ahead_us=HOUR_US))
    assert now_us == MORNING + HOUR_US + 10
    assert queue_time(wanted, at(20))[0] == MORNING + HOUR_US + 20


def test_after_a_restart_it_continues_where_it_was_if_the_clock_is_behind() -> None:
    stored = stored_at(HOUR_US)
    now_us, wanted = queue_time(stored, at(5, ahead_us=-HOUR_US, boot="second"))
    assert now_us == stored.seen_us
    assert queue_time(wanted, at(6, ahead_us=-HOUR_US, boot="second"))[0] == stored.seen_us + 1


def test_after_a_restart_it_follows_a_clock_that_is_right() -> None:
    later = Clocks("second", MORNING + 9 * HOUR_US, 5)
    assert queue_time(stored_at(HOUR_US), later)[0] == MORNING + 9 * HOUR_US
