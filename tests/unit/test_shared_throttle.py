"""A throttle of several webs: nobody waits too early, and in the long run nobody gets too much."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.domain.throttle import CALLERS_TOLD_MAX, NO_WAIT, Rate, Telling, Throttle

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ROUND = 5 * SECOND
RATES = {
    "slow": Rate(20, timedelta(hours=1), 20),
    "quick": Rate(10, SECOND, 20),
}


@dataclass
class Webs:
    """Some webs that hear each other, and the truth about one caller of them all."""

    rate: Rate
    number: int
    now: datetime = NOW
    taken: int = 0
    owed_until: datetime = NOW  # in truth
    overshoot: timedelta = NO_WAIT  # the most that was ever owed beyond the credit
    rounds: int = 0
    throttles: list[Throttle] = field(default_factory=list)
    rows: dict[str, Telling] = field(default_factory=dict)
    _told_at: dict[str, datetime] = field(default_factory=dict)
    _unanswered: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        calls, per, burst = self.rate.calls, self.rate.per, self.rate.burst
        for _ in range(self.number):
            self.throttles.append(Throttle(calls, per, burst=burst, callers_max=1000))
        # Rounds are not in step.
        self._round_at = [NOW + ROUND * (n + 1) / self.number for n in range(self.number)]

    def pass_time(self, by: timedelta) -> None:
        """Rounds that fall into it are made; of those without news one is as good as many."""
        end = self.now + by
        while (at := min(self._round_at)) <= end:
            web = self._round_at.index(at)
            self.now = at
            self.make_round(web)
            missed = 0 if self._is_listening(web) else (end - at) // ROUND
            self._round_at[web] = at + ROUND * max(1, missed)
        self.now = end

    def make_round(self, web: int) -> None:
        throttle, name = self.throttles[web], str(web)
        if not self._is_listening(web):
            return
        for other, row in self.rows.items():
            if other != name:
                throttle.hear(other, row, self.now)
        self._unanswered.discard(web)
        if not throttle.has_news:
            return
        self.rounds += 1
        self._unanswered.add(web)
        self.rows[name] = Telling(self.now, self._told_at.get(name), throttle.tell(self.now))
        self._told_at[name] = self.now

    def _is_listening(self, web: int) -> bool:
        """With news, and in the round after it: others may have told at the same time."""
        return self.throttles[web].has_news or web in self._unanswered

    def call(self, web: int) -> bool:
        """Whether it is taken; a refusal must be one in truth, by all that all webs took."""
        wait = self.throttles[web].wait("a", self.now)
        owed_until = max(self.owed_until, self.now) + self.rate.interval
        beyond = owed_until - self.now - self.rate.credit
        if wait > NO_WAIT:
            assert wait <= beyond, "somebody within the limit was refused"
            return False
        self.taken, self.owed_until = self.taken + 1, owed_until
        self.overshoot = max(self.overshoot, beyond)
        return True

    @property
    def overshoot_max(self) -> timedelta:
        """From every other web a burst, a quarter that neither has told, and two rounds."""
        return (self.number - 1) * (self.rate.credit * 1.5 + 2 * ROUND)


@settings(max_examples=300)
# A long pause, in which one call was not worth telling: it pays for nothing that comes after it.
@example("slow", 2, [(0.0, 12, 0.0, 1), (3.9, 2, 0.5, 1), (0.1, 200, 0.5, 1)])
@example("slow", 2, [(0.0, 11, 0.7, 1), (1.0, 30, 0.0, 1), (0.0, 22, 0.3, 1)])
@given(
    kind=st.sampled_from(sorted(RATES)),
    number=st.integers(1, 4),
    gusts=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 1.5, 5.0]),  # pause, in credits
            st.integers(1, 40),  # calls
            st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0, 1.4]),  # intervals between them
            st.integers(1, 12),  # how they are dealt out to the webs
        ),
        max_size=40,
    ),
)
def test_nobody_within_the_limit_waits_and_nobody_gets_more_than_it_and_the_overshoot(
    kind: str, number: int, gusts: list[tuple[float, int, float, int]]
) -> None:
    webs = Webs(RATES[kind], number)
    for pause, calls, spacing, dealt in gusts:
        webs.pass_time(webs.rate.credit * pause)
        for turn in range(calls):
            webs.call(turn * dealt % number)  # asserts that a refusal is right
            webs.pass_time(webs.rate.interval * spacing)
    assert webs.overshoot <= webs.overshoot_max
    assert webs.taken * webs.rate.interval <= (
        webs.now - NOW + webs.rate.credit + webs.overshoot_max
    )


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("share", [0.4, 0.75, 0.99, 3.0])
@pytest.mark.parametrize("number", [2, 3, 5])
def test_in_the_long_run_all_webs_together_take_what_one_would(
    number: int, share: float, kind: str
) -> None:
    """Each web alone sees less than the limit, evenly spaced: nothing that looks like a burst."""
    webs, calls = Webs(RATES[kind], number), 600
    for _ in range(calls):
        for web in range(number):
            webs.call(web)
            webs.pass_time(webs.rate.interval / share / number)
    allowed = (webs.now - NOW) / webs.rate.interval
    wanted = calls * number
    beyond = (webs.rate.credit + webs.overshoot_max) / webs.rate.interval
    assert min(wanted, allowed - webs.rate.burst) <= webs.taken <= allowed + beyond


def test_who_used_up_the_limit_elsewhere_soon_waits_here() -> None:
    webs = Webs(RATES["slow"], 2)
    assert [webs.call(0) for _ in range(21)] == [True] * 20 + [False]
    webs.pass_time(ROUND)
    assert [webs.call(1) for _ in range(5)] == [True] * 5  # worth telling from here on
    webs.pass_time(ROUND)
    assert not webs.call(1)


def test_a_web_started_later_hears_what_was_used_up_before() -> None:
    webs = Webs(RATES["slow"], 2)
    for _ in range(20):
        webs.call(0)
    webs.pass_time(timedelta(minutes=10))
    webs.throttles[1] = Throttle(20, timedelta(hours=1), burst=20, callers_max=10)
    for _ in range(5):
        webs.call(1)
    webs.pass_time(ROUND)
    assert not webs.call(1)


def test_a_telling_heard_twice_counts_once() -> None:
    webs = Webs(RATES["slow"], 2)
    for web in (0, 1):
        for _ in range(5):
            webs.call(web)
    webs.pass_time(2 * ROUND)
    for _ in range(10):
        webs.throttles[0].hear("1", webs.rows["1"], webs.now)
    assert [webs.call(0) for _ in range(11)] == [True] * 10 + [False]


def test_a_telling_that_was_missed_is_made_up_for_by_the_next() -> None:
    webs = Webs(RATES["slow"], 2)
    for web in (0, 1):
        for _ in range(5):
            webs.call(web)
    webs.pass_time(2 * ROUND)
    for _ in range(2):  # the first of the two is never read
        for _ in range(3):
            webs.call(1)
        webs.throttles[1].tell(webs.now)
        webs.pass_time(SECOND)
    for _ in range(3):
        webs.call(1)
    webs.rows["1"] = Telling(webs.now, webs.now - SECOND, webs.throttles[1].tell(webs.now))
    webs.throttles[0].hear("1", webs.rows["1"], webs.now)
    assert [webs.call(0), webs.call(0)] == [True, False]  # twenty in all


def test_who_calls_little_is_no_news() -> None:
    webs = Webs(RATES["slow"], 2)
    for caller in range(500):
        for _ in range(4):
            webs.throttles[0].wait(str(caller), NOW)
    assert not webs.throttles[0].has_news


def test_of_very_many_the_heaviest_are_told_and_there_is_an_end_to_it() -> None:
    throttle = Throttle(20, timedelta(hours=1), burst=20, callers_max=1000)
    for caller in range(CALLERS_TOLD_MAX + 50):
        for _ in range(20 if caller < 100 else 6):
            throttle.wait(str(caller), NOW)
    told = throttle.tell(NOW)
    assert len(told) == CALLERS_TOLD_MAX
    assert {str(caller) for caller in range(100)} <= told.keys()
    assert not throttle.has_news


def test_callers_heard_of_do_not_outgrow_the_memory_agreed() -> None:
    loud = Throttle(20, timedelta(hours=1), burst=20, callers_max=1000)
    small = Throttle(20, timedelta(hours=1), burst=20, callers_max=10)
    for caller in range(50):
        for _ in range(5):
            loud.wait(str(caller), NOW)
    small.hear("loud", Telling(NOW, None, loud.tell(NOW)), NOW)
    assert len(small) == 10
    small.tell(NOW)


def test_a_clock_that_was_set_back_locks_nobody_out_for_long() -> None:
    throttle = Throttle(20, timedelta(hours=1), burst=20, callers_max=9)
    for hour in (9, 8, 7, 0):
        for minute in range(0, 60, 4):
            moment = NOW + timedelta(hours=hour, minutes=minute)
            assert throttle.wait("a", moment) <= RATES["slow"].interval


def test_a_web_with_a_wrong_clock_locks_nobody_out_for_long() -> None:
    wrong, right = (Throttle(20, timedelta(hours=1), burst=20, callers_max=9) for _ in range(2))
    tomorrow = NOW + timedelta(days=1)
    for _ in range(20):
        wrong.wait("a", tomorrow)
    right.hear("wrong", Telling(NOW, None, wrong.tell(tomorrow)), NOW)
    assert right.wait("a", NOW) <= timedelta(hours=4)
