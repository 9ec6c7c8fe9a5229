"""Deliveries: what an outcome means, what hindsight tells, and how the ledger keeps count."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.delivery import (
    BATCH_DELIVERIES_MAX,
    Deferral,
    DeliveryEnd,
    JournalEvidence,
    Ledger,
    State,
    Verdict,
    announced,
    due_positions,
    ends_of,
    held_for_people,
    judge,
    judge_in_hindsight,
    judge_slice,
    judged,
    revived,
    skipped,
)
from postroom.domain.message import Books, OnDoubt
from postroom.domain.outcome import (
    WORDS_CHARS_MAX,
    Deferred,
    Outcome,
    Rejected,
    Scope,
    Sent,
    Unknown,
    Untried,
)
from postroom.domain.retry import RetryRules
from postroom.records.rows import from_properties, to_properties
from postroom.storage.validation import encode_properties

NOW_S = 1_794_733_200.0
HOUR_S = 3600.0
RULES = RetryRules(chance=lambda: 0.5)
ONCE_REFUSED = Deferral(1, NOW_S, NOW_S - 60, "450 busy")


def ledger(states: str, **fields: object) -> Ledger:
    plain = Ledger(ref="1", batch=0, states=states, first="a", last="z")
    return msgspec.structs.replace(plain, **fields)


def verdict_of(
    outcome: Outcome, before: Deferral | None = None, on_doubt: OnDoubt = OnDoubt.RESEND
) -> Verdict:
    return judge(outcome, before, on_doubt=on_doubt, rules=RULES, now_s=NOW_S)


# What an attempt means.


@pytest.mark.parametrize("before", [None, ONCE_REFUSED])
@pytest.mark.parametrize("on_doubt", OnDoubt)
def test_an_answer_that_is_final_ends_the_delivery(
    before: Deferral | None, on_doubt: OnDoubt
) -> None:
    assert verdict_of(Sent("250 ok"), before, on_doubt) == Verdict(State.SENT, "250 ok")
    assert verdict_of(Rejected("550 no"), before, on_doubt) == Verdict(State.FAILED, "550 no")


@pytest.mark.parametrize("before", [None, ONCE_REFUSED])
@pytest.mark.parametrize(
    "outcome", [Untried("stopping"), Deferred("down", Scope.PROVIDER, reached=False)]
)
def test_what_was_nobodys_fault_leaves_no_trace(outcome: Outcome, before: Deferral | None) -> None:
    assert verdict_of(outcome, before) == Verdict(State.QUEUED, deferral=before)


@pytest.mark.parametrize("scope", [Scope.ADDRESS, Scope.DOMAIN])
def test_a_first_refusal_waits_a_minute(scope: Scope) -> None:
    verdict = verdict_of(Deferred("450 busy", scope))
    assert verdict.state is State.QUEUED
    assert verdict.deferral == Deferral(1, NOW_S + 60, NOW_S, "450 busy")


def test_a_second_refusal_waits_longer_and_remembers_the_first() -> None:
    verdict = verdict_of(Deferred("451 later"), ONCE_REFUSED)
    assert verdict.deferral == Deferral(2, NOW_S + 120, NOW_S - 60, "451 later")


def test_a_refusal_whose_next_try_would_come_too_late_is_the_last() -> None:
    just_in_time = Deferral(9, NOW_S, NOW_S - 23 * HOUR_S, "")
    assert verdict_of(Deferred("450 busy"), just_in_time).state is State.QUEUED
    too_late = Deferral(9, NOW_S, NOW_S - 23 * HOUR_S - 1, "")
    assert verdict_of(Deferred("450 busy"), too_late) == Verdict(State.FAILED, "450 busy")


def test_doubt_is_resent_or_held_as_the_message_says() -> None:
    resent = verdict_of(Unknown("broke"))
    assert (resent.state, resent.doubt) == (State.QUEUED, True)
    assert resent.deferral == Deferral(1, NOW_S + 60, NOW_S, "broke", in_doubt=True)
    held = verdict_of(Unknown("broke"), on_doubt=OnDoubt.HOLD)
    assert (held.state, held.words, held.doubt) == (State.HELD, "broke", True)


# What hindsight tells.


def hindsight(
    book: Ledger,
    ends: dict[int, DeliveryEnd] | None = None,
    memory: JournalEvidence | None = None,
    on_doubt: OnDoubt = OnDoubt.HOLD,
) -> dict[int, Verdict]:
    return judge_in_hindsight(book, ends or {}, memory, on_doubt=on_doubt, rules=RULES, now_s=NOW_S)


def test_only_the_announced_are_judged() -> None:
    assert set(hindsight(ledger("qaashkf"))) == {1, 2}


def test_without_a_journal_everything_announced_is_in_doubt() -> None:
    verdicts = hindsight(ledger("aa"))
    assert [verdict.state for verdict in verdicts.values()] == [State.HELD, State.HELD]
    assert all(verdict.doubt for verdict in verdicts.values())


def test_the_archive_knows_best() -> None:
    ended = DeliveryEnd(State.FAILED, "550 no", datetime(2026, 11, 15, tzinfo=UTC))
    memory = JournalEvidence(frozenset({0}), {0: Sent("250 ok")}, whole=True)
    assert hindsight(ledger("a"), {0: ended}, memory) == {0: Verdict(State.FAILED, "550 no")}


def test_a_whole_journal_leaves_only_the_unanswered_in_doubt() -> None:
    memory = JournalEvidence(frozenset({0, 1}), {0: Sent("250 ok")}, whole=True)
    verdicts = hindsight(ledger("aaa"), memory=memory)
    assert verdicts[0] == Verdict(State.SENT, "250 ok")
    assert verdicts[1].state is State.HELD
    assert verdicts[2] == Verdict(State.QUEUED)  # never handed over: nothing happened


def test_a_journal_with_gaps_proves_only_what_is_in_it() -> None:
    memory = JournalEvidence(frozenset(), {0: Sent("250 ok")}, whole=False)
    verdicts = hindsight(ledger("aa"), memory=memory)
    assert verdicts[0].state is State.SENT
    assert verdicts[1].state is State.HELD


def test_a_dead_senders_doubt_is_resent_without_waiting() -> None:
    [verdict] = hindsight(ledger("a"), on_doubt=OnDoubt.RESEND).values()
    assert verdict.deferral is not None
    assert verdict.deferral.retry_at == NOW_S
    assert verdict.deferral.attempts == 1


def test_a_refusal_the_journal_knows_waits_as_long_as_any() -> None:
    memory = JournalEvidence(frozenset({0}), {0: Deferred("450 busy")}, whole=True)
    [verdict] = hindsight(ledger("a"), memory=memory).values()
    assert verdict.deferral == Deferral(1, NOW_S + 60, NOW_S, "450 busy")


# The ledger.


def test_the_due_are_the_queued_whose_time_has_come_in_order() -> None:
    waits = {at: Deferral(1, NOW_S + late, NOW_S, "") for at, late in enumerate((0, 1, -1))}
    assert due_positions(ledger("qqqqas", deferred=waits), NOW_S, RULES) == [0, 2, 3]
    assert due_positions(ledger("qqqqas", deferred=waits), NOW_S + 1, RULES) == [0, 1, 2, 3]


def test_the_next_retry_is_the_earliest_of_the_queued() -> None:
    waits = {at: Deferral(1, NOW_S + at, NOW_S, "") for at in range(3)}
    assert ledger("aqq", deferred=waits).next_retry_at() == NOW_S + 1
    assert ledger("aqqq", deferred=waits).next_retry_at() == 0.0  # somebody can go at once
    assert ledger("sss").next_retry_at() == 0.0


def test_an_announcement_names_the_slice_and_its_sender() -> None:
    book = announced(ledger("qqqs"), [0, 2], owner="sender.1", now_s=NOW_S)
    assert (book.states, book.owner, book.attempts_without_outcome) == ("aqas", "sender.1", 1)
    assert book.touched_at == NOW_S


def test_verdicts_become_letters_waits_and_doubts() -> None:
    wait = Deferral(1, NOW_S + 60, NOW_S, "450 busy")
    book = ledger("aaaa", deferred={0: wait}, attempts_without_outcome=3, doubts=1)
    verdicts = {
        0: Verdict(State.SENT),
        1: Verdict(State.QUEUED, "450 busy", wait),
        2: Verdict(State.HELD, doubt=True),
        3: Verdict(State.FAILED),
    }
    after = judged(book, verdicts, now_s=NOW_S)
    assert after.states == "sqhf"
    assert after.deferred == {1: wait}
    assert after.doubts == 2
    assert after.attempts_without_outcome == 0
    assert judged(book, verdicts, now_s=NOW_S, has_outcome=False).attempts_without_outcome == 3


OUTCOMES: list[Outcome] = [
    Sent("250 ok"),
    Sent(""),
    Rejected("550 no"),
    Deferred("450 busy"),
    Deferred("down", Scope.PROVIDER, reached=False),
    Unknown("broke"),
    Untried("stopping"),
]
waits = st.builds(
    Deferral,
    st.integers(0, 9),
    st.just(NOW_S),
    st.floats(NOW_S - 30 * HOUR_S, NOW_S),
    st.just("451 later"),
    st.booleans(),
)


@given(
    st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6)
    | st.lists(st.sampled_from(OUTCOMES[:2]), min_size=1, max_size=6),
    st.dictionaries(st.integers(0, 7), waits, max_size=4),
    st.sampled_from(OnDoubt),
)
def test_a_slice_is_judged_as_each_of_its_deliveries(
    found: list[Outcome], waiting: dict[int, Deferral], on_doubt: OnDoubt
) -> None:
    """Also one that is accepted as a whole, for which no verdicts are made."""
    before = ledger(
        "a" * len(found) + "q" * (8 - len(found)), deferred=waiting, attempts_without_outcome=2
    )
    outcomes = dict(enumerate(found))
    now = datetime.fromtimestamp(NOW_S, UTC)
    after, ends = judge_slice(before, outcomes, on_doubt=on_doubt, rules=RULES, now=now)
    verdicts = {
        at: verdict_of(outcome, waiting.get(at), on_doubt) for at, outcome in outcomes.items()
    }
    assert after == judged(before, verdicts, now_s=NOW_S)
    assert ends == ends_of(verdicts, now)


def test_who_is_skipped_waits_no_longer() -> None:
    waits = {0: ONCE_REFUSED, 1: ONCE_REFUSED}
    book = skipped(ledger("qqs", deferred=waits), [0], now_s=NOW_S)
    assert book.states == "kqs"
    assert set(book.deferred) == {1}


def test_a_dead_letter_holds_whoever_is_open() -> None:
    waits = {0: ONCE_REFUSED}
    stuck = ledger("qasfhk", owner="sender.1", attempts_without_outcome=5, deferred=waits)
    book = held_for_people(stuck, "rows are missing", now_s=NOW_S)
    assert book.states == "hhsfhk"
    assert (book.owner, book.attempts_without_outcome) == ("", 0)
    why = Deferral(0, NOW_S, NOW_S, "rows are missing")
    assert book.deferred == {0: why, 1: msgspec.structs.replace(why, in_doubt=True)}


def test_what_is_held_says_why_and_since_when() -> None:
    held = verdict_of(Unknown("handed over, then 421"), on_doubt=OnDoubt.HOLD)
    book = judged(ledger("a"), {0: held}, now_s=NOW_S)
    assert book.states == "h"
    assert (book.deferred[0].since, book.deferred[0].words) == (NOW_S, "handed over, then 421")


IN_DOUBT = Deferral(1, NOW_S, NOW_S - 60, "broke", in_doubt=True)


@pytest.mark.parametrize("outcome", [Rejected("550 no"), Deferred("450 no")])
def test_who_fails_after_a_doubt_may_have_got_it_and_the_words_say_so(outcome: Outcome) -> None:
    late = msgspec.structs.replace(IN_DOUBT, attempts=9, since=NOW_S - 24 * HOUR_S)
    verdict = verdict_of(outcome, late)
    assert verdict.state is State.FAILED
    assert verdict.words.endswith("no; an earlier attempt may have been delivered")


def test_a_doubt_is_remembered_when_people_have_it_sent_again() -> None:
    book = revived(ledger("h", deferred={0: IN_DOUBT}), [0], now_s=NOW_S)
    assert due_positions(book, NOW_S, RULES) == [0]
    verdict = verdict_of(Rejected("550 no"), book.deferred[0])
    assert verdict.words == "550 no; an earlier attempt may have been delivered"


def test_a_doubt_is_remembered_through_later_refusals() -> None:
    verdict = verdict_of(Deferred("450 busy"), IN_DOUBT)
    assert verdict.deferral
    assert verdict.deferral.in_doubt


def test_the_revived_start_afresh_and_old_archive_rows_no_longer_count() -> None:
    book = ledger("fshf", deferred={0: ONCE_REFUSED}, attempts_without_outcome=2, revived=1)
    after = revived(book, [0, 3], now_s=NOW_S)
    assert after.states == "qshq"
    assert (after.revived, after.attempts_without_outcome, after.deferred) == (2, 0, {})


@pytest.mark.parametrize(
    ("states", "is_open", "is_final"),
    [("q", True, False), ("sa", True, False), ("sh", False, False), ("sfk", False, True)],
)
def test_a_ledger_is_open_held_or_final(states: str, is_open: bool, is_final: bool) -> None:
    assert (ledger(states).is_open, ledger(states).is_final) == (is_open, is_final)


@given(st.text("qasfhk", max_size=99))
def test_the_books_of_a_ledger_count_everybody_once(states: str) -> None:
    books = ledger(states, doubts=4).books()
    assert books.total == len(states)
    assert books.doubts == 4


def test_books_add_up() -> None:
    assert Books(1, 2, 3, 4, 5, 6, 7) + Books(1, 1, 1, 1, 1, 1, 1) == Books(2, 3, 4, 5, 6, 7, 8)


def test_a_ledger_survives_being_stored() -> None:
    book = ledger("qaq", deferred={0: ONCE_REFUSED, 2: ONCE_REFUSED}, owner="x", doubts=2)
    assert from_properties(to_properties(book), Ledger) == book


@pytest.mark.parametrize("letter", ['"', "\\", "é", "𝄞"])
def test_a_whole_batch_of_the_longest_refusals_fits_into_a_row(letter: str) -> None:
    words = letter * WORDS_CHARS_MAX
    verdict = judge(
        Deferred(words), None, on_doubt=OnDoubt.RESEND, rules=RetryRules(), now_s=NOW_S + 0.123456
    )
    everybody = dict.fromkeys(range(BATCH_DELIVERIES_MAX), verdict)
    book = judged(ledger("a" * BATCH_DELIVERIES_MAX), everybody, now_s=NOW_S)
    assert encode_properties(to_properties(book))
