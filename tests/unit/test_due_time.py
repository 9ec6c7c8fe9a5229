"""Parsing when a message is due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from postroom.domain.due_time import AmbiguousTime, UnknownZone, in_zone, parse_due_time
from postroom.domain.errors import BadInput

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone", "due_at"),
    [
        ("now", "", NOW),
        ("2026-11-20T09:00+01:00", "", datetime(2026, 11, 20, 8, 0, tzinfo=UTC)),
        ("2026-11-20T09:00:30Z", "", datetime(2026, 11, 20, 9, 0, 30, tzinfo=UTC)),
        ("2026-11-20 09:00", "Europe/Berlin", datetime(2026, 11, 20, 8, 0, tzinfo=UTC)),
        ("2027-07-01 09:00", "Europe/Berlin", datetime(2027, 7, 1, 7, 0, tzinfo=UTC)),
        ("2026-11-15T11:58Z", "", datetime(2026, 11, 15, 11, 58, tzinfo=UTC)),
    ],
)
def test_every_accepted_form_is_one_instant(text: str, zone: str, due_at: datetime) -> None:
    assert parse_due_time(text, zone, NOW) == due_at


@pytest.mark.parametrize(
    ("text", "zone", "complaint"),
    [
        ("tomorrow", "", "Enter now, 2026-11-20T09:00"),
        ("2026-11-20", "", "is not a date and time"),
        ("2026-W47-5", "", "is not a date and time"),
        ("2026-13-20T09:00Z", "", "is not a date and time"),
        ("2026-11-20 09:00", "", "has no time zone"),
        ("2026-11-20T09:00Z", "Europe/Berlin", "Leave out the zone"),
        ("2026-11-20 09:00", "Mars/Olympus", "no time zone"),
        ("now", "Mars/Olympus", "no time zone"),
        ("2026-11-20 09:00", "../../etc/passwd", "no time zone"),
        ("2026-11-20 09:00", "Europe", "no time zone"),
        ("2027-03-28 02:30", "Europe/Berlin", "does not exist"),
        ("2027-10-31 02:30", "Europe/Berlin", "occurs twice"),
        ("2026-11-15T11:00Z", "", "in the past"),
        ("0001-01-01T00:00+14:00", "", "too far in the future"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(text: str, zone: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        parse_due_time(text, zone, NOW)


def test_a_wrong_zone_is_distinguished_from_a_wrong_time() -> None:
    with pytest.raises(UnknownZone):
        parse_due_time("2026-11-20 09:00", "Mars/Olympus", NOW)
    with pytest.raises(BadInput) as wrong:
        parse_due_time("tomorrow", "Europe/Berlin", NOW)
    assert not isinstance(wrong.value, UnknownZone)


def test_an_hour_that_comes_twice_names_both_offsets() -> None:
    with pytest.raises(AmbiguousTime) as twice:
        parse_due_time("2027-10-31 02:30", "Europe/Berlin", NOW)
    assert twice.value.offsets == ("+02:00", "+01:00")


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Europe/Berlin", "2026-11-15T13:00:00+01:00"),
        ("-03:30", "2026-11-15T08:30:00-03:30"),
        ("", "2026-11-15T12:00:00+00:00"),
        ("Mars/Olympus", "2026-11-15T12:00:00+00:00"),
        ("+99:99", "2026-11-15T12:00:00+00:00"),
    ],
)
def test_an_instant_is_shown_in_its_zone_or_in_utc(zone: str, shown: str) -> None:
    assert in_zone(NOW, zone).isoformat() == shown
