"""One limit, divided: the shares never exceed it, and a bucket never exceeds its share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.errors import BadInput
from postroom.domain.rate_limit import (
    NOTHING,
    Bucket,
    RateLimit,
    ReturnTimes,
    Share,
    ShareRenewals,
    check_domain,
    check_limit,
    domain_of,
    fair_share,
    next_share,
    rate_text,
)
from tests.unit.seconds import most_in_a_second

OWNERS = ["a", "b", "c", "d"]
RATES = st.one_of(st.integers(1, 5000).map(float), st.floats(0.01, 50.0))


@given(RATES, st.integers(0, 12), st.integers(1, 4))
def test_fair_shares_are_the_whole_limit(rate: float, connections: int, number: int) -> None:
    limit = RateLimit("transport", rate, connections)
    shares = [fair_share(limit, owner, OWNERS[:number]) for owner in OWNERS[:number]]
    assert sum(share.mails_per_s for share in shares) == pytest.approx(rate)
    assert sum(share.connections for share in shares) == connections
    whole = [share for share in shares if share.mails_per_s == int(share.mails_per_s)]
    assert len(shares) - len(whole) <= 1  # so that rounding up is done once


def test_who_comes_after_the_last_mail_or_connection_waits() -> None:
    few_mails = [fair_share(RateLimit("x", 2.0), owner, OWNERS) for owner in OWNERS]
    assert few_mails == [Share(1.0), Share(1.0), NOTHING, NOTHING]
    few_lines = [fair_share(RateLimit("x", 100.0, 1), owner, OWNERS) for owner in OWNERS]
    assert few_lines == [Share(100.0, 1), NOTHING, NOTHING, NOTHING]


def test_nobody_takes_what_another_has_not_given_back() -> None:
    shares = {"a": Share(100.0, 4, 7)}
    waiting = next_share(RateLimit("x", 100.0, 4), shares, "b", expired=())
    assert waiting == NOTHING
    shares["b"] = waiting
    lowered = next_share(RateLimit("x", 100.0, 4), shares, "a", expired=())
    assert lowered == Share(50.0, 2, 7)
    shares["a"] = lowered
    assert next_share(RateLimit("x", 100.0, 4), shares, "b", expired=()) == Share(50.0, 2)


def test_the_share_of_the_dead_is_free() -> None:
    shares = {"a": Share(100.0, 4, 7)}
    assert next_share(RateLimit("x", 100.0, 4), shares, "b", expired={"a"}) == Share(100.0, 4)


def test_a_connection_in_use_is_not_given_away() -> None:
    shares = {"a": Share(0.0, 4, 7), "b": Share(0.0, 0, 1)}
    assert next_share(RateLimit("x", 0.0, 4), shares, "a", expired=(), in_use=3).connections == 3
    assert next_share(RateLimit("x", 0.0, 4), shares, "a", expired=(), in_use=1).connections == 2


def test_a_lowered_limit_lowers_every_share_without_waiting_for_the_others() -> None:
    shares = {"a": Share(50.0, 0, 1), "b": Share(50.0, 0, 1)}
    assert next_share(RateLimit("x", 20.0), shares, "a", expired=()).mails_per_s == 10.0


def test_a_sender_is_gone_when_its_renewal_stood_still_for_a_lease_by_our_own_clock() -> None:
    renewals = ShareRenewals()
    assert not renewals.expired("x", {"a": Share(renewal=1)}, now_s=0, lease_s=30)
    assert not renewals.expired("x", {"a": Share(renewal=2)}, now_s=29, lease_s=30)
    assert not renewals.expired("x", {"a": Share(renewal=2)}, now_s=58, lease_s=30)
    assert renewals.expired("x", {"a": Share(renewal=2)}, now_s=59, lease_s=30) == {"a"}
    assert not renewals.expired("x", {"a": Share(renewal=3)}, now_s=60, lease_s=30)


PAUSES = st.lists(st.sampled_from([0.001, 0.01, 0.05, 0.09, 0.3, 2.0]), min_size=5, max_size=200)


@given(RATES, PAUSES)
def test_no_second_has_more_turns_than_the_share(rate: float, pauses: list[float]) -> None:
    bucket, now_s, turns = Bucket(0.0), 0.0, []
    bucket.change_share(rate, rate, now_s)
    for pause_s in pauses:
        now_s += pause_s
        ready = bucket.ready(now_s)
        bucket.take(ready)
        turns += [now_s] * ready
    assert most_in_a_second(turns) <= -(-rate // 1)


@pytest.mark.parametrize("rate", [0.5, 1.0, 5.0, 500.0, 5000.0])
def test_turns_come_within_five_per_cent_of_the_share_though_timers_are_late(rate: float) -> None:
    bucket, now_s, taken = Bucket(0.0), 0.0, 0
    bucket.change_share(rate, rate, now_s)
    while now_s < 100.0:
        now_s += max(0.001, bucket.wait_s(bucket.burst)) + 0.003
        ready = bucket.ready(now_s)
        bucket.take(ready)
        taken += ready
    assert rate * 100 * 0.95 - 1 <= taken <= rate * 100


def test_a_stall_is_made_up_for_and_a_long_one_is_not() -> None:
    bucket = Bucket(0.0)
    bucket.change_share(100.0, 100.0, 0.0)
    bucket.take(bucket.ready(5.0))
    assert bucket.ready(5.08) == 8
    assert bucket.ready(60.0) == 10


def test_a_larger_share_begins_with_nothing_saved_up() -> None:
    bucket = Bucket(0.0)
    bucket.change_share(50.0, 100.0, 0.0)
    assert bucket.ready(10.0) == 5
    bucket.change_share(100.0, 100.0, 10.0)
    assert bucket.ready(10.1) == 0
    assert bucket.ready(10.2) > 0


def test_a_clock_set_back_gives_nothing_and_holds_nobody_up() -> None:
    bucket = Bucket(1000.0)
    bucket.change_share(10.0, 10.0, 1000.0)
    bucket.take(bucket.ready(1005.0))
    assert bucket.ready(900.0) == 0
    assert bucket.ready(901.1) == 1


def test_deferred_mails_come_back_one_slice_after_the_other() -> None:
    times_of = ReturnTimes()
    times = [times_of.reserve(50, 10.0, now_s=100.0, ahead_s_max=12.0) for _ in range(4)]
    assert times == [100.0, 105.0, 110.0, 112.0]  # never further ahead than allowed
    assert times_of.reserve(50, 10.0, now_s=200.0, ahead_s_max=12.0) == 200.0


def test_a_domain_is_known_by_one_spelling() -> None:
    assert check_domain(" Contoso.EDU ") == domain_of("Ada@contoso.edu") == "contoso.edu"
    assert check_domain("bücher.example") == "xn--bcher-kva.example"
    with pytest.raises(BadInput):
        check_domain("contoso")


@pytest.mark.parametrize(
    ("mails", "connections"), [(None, None), (0.0, None), (-1.0, None), (None, 0), (2e6, 3)]
)
def test_a_limit_that_makes_no_sense_is_refused(mails: float, connections: int) -> None:
    with pytest.raises(BadInput):
        check_limit("transport", mails, connections)


@pytest.mark.parametrize(
    ("mails_per_s", "text"),
    [(500.0, "500"), (0.015, "0.015"), (12_345.67, "12,345.67"), (1_000_000.0, "1,000,000")],
)
def test_a_rate_is_shown_with_every_significant_digit(mails_per_s: float, text: str) -> None:
    assert rate_text(mails_per_s) == text
