"""A message: which change is possible from which state, and what it resets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from postroom.domain.errors import BadInput, WrongState
from postroom.domain.message import (
    Books,
    Message,
    Revive,
    Status,
    cancelled,
    check_subject,
    paused,
    resumed,
    revived,
    ticks,
)

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
MESSAGE = Message(
    ref="639303300000000000",
    list_name="contoso1",
    list_created_at=NOW,
    subject="News",
    sender="donotreply@contoso.edu",
    status=Status.PROCESSING,
    created_at=NOW,
    queuing_at=NOW,
    cursor="z",
    batches=3,
    audience=250,
    fanned_out=True,
    batches_requeued=3,
    closed_groups="3",
    closed_books=Books(sent=200),
    books=Books(sent=240, failed=10),
)


def message(status: Status, **fields: object) -> Message:
    return msgspec.structs.replace(MESSAGE, status=status, **fields)


def test_a_message_held_before_it_began_begins_when_it_is_resumed() -> None:
    assert resumed(message(Status.PAUSED, queuing_at=None)).status is Status.PENDING


def retried(one: Message) -> Message:
    return revived(one, Revive.FAILED)


def decided(one: Message) -> Message:
    return revived(one, Revive.HELD_AS_SENT)


ALLOWED: dict[Callable[[Message], Message], dict[Status, Status]] = {
    paused: {Status.QUEUING: Status.PAUSED, Status.PROCESSING: Status.PAUSED},
    resumed: {Status.PAUSED: Status.QUEUING},
    retried: {Status.PROCESSING: Status.QUEUING, Status.COMPLETED: Status.QUEUING},
    decided: {Status.PROCESSING: Status.QUEUING, Status.COMPLETED: Status.QUEUING},
    cancelled: {
        Status.PENDING: Status.CANCELLED,
        Status.QUEUING: Status.CANCELLED,
        Status.PROCESSING: Status.CANCELLED,
        Status.PAUSED: Status.CANCELLED,
    },
}


@pytest.mark.parametrize("act", ALLOWED, ids=lambda act: act.__name__)
@pytest.mark.parametrize("status", Status)
def test_a_change_is_possible_from_these_states_and_from_no_other(
    act: Callable[[Message], Message], status: Status
) -> None:
    if status in ALLOWED[act]:
        assert act(message(status)).status is ALLOWED[act][status]
    else:
        with pytest.raises(WrongState, match=MESSAGE.ref):
            act(message(status))


def test_the_held_of_a_cancelled_message_can_be_decided_on_once_its_books_are_closed() -> None:
    closed = message(Status.CANCELLED, completed_at=NOW)
    assert decided(closed).revive is Revive.HELD_AS_SENT
    with pytest.raises(WrongState):
        retried(closed)


@pytest.mark.parametrize("act", [retried, decided])
def test_reviving_requeues_every_batch_with_open_books(
    act: Callable[[Message], Message],
) -> None:
    again = act(message(Status.COMPLETED, completed_at=NOW))
    assert (again.batches_requeued, again.restarts, again.completed_at) == (0, 1, None)
    assert (again.closed_groups, again.closed_books) == ("0", Books())
    assert (again.batches, again.audience, again.cursor) == (3, 250, "z")
    assert again.fanned_out


def test_a_pause_does_not_forget_what_was_to_be_revived() -> None:
    again = resumed(paused(revived(message(Status.COMPLETED), Revive.FAILED)))
    assert again.revive is Revive.FAILED


def test_a_message_paused_in_its_fan_out_continues_with_it() -> None:
    again = resumed(paused(message(Status.QUEUING, fanned_out=False)))
    assert not again.fanned_out
    assert again.cursor == "z"


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("x" * 501, "longer than 500"),
        ("a\nBcc: evil@contoso.edu", "one line"),
        ("a\x00b", "one line"),
    ],
)
def test_a_subject_that_cannot_be_used_is_refused_with_a_sentence(subject: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_subject(subject)


def test_spaces_around_a_subject_are_removed() -> None:
    assert check_subject("  Grüße an {{ first_name }} ") == "Grüße an {{ first_name }}"


def test_refs_count_ticks_since_the_year_one_as_the_sample_does() -> None:
    assert ticks(datetime(1, 1, 1, tzinfo=UTC)) == 0
    assert ticks(datetime(1970, 1, 1, tzinfo=UTC)) == 621_355_968_000_000_000
    assert ticks(NOW + timedelta(microseconds=1)) - ticks(NOW) == 10
