"""When a message is due, as people write it: now, an instant, or a wall-clock time in a zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, _

FORMS = _("now, 2026-11-20T09:00+01:00, or “2026-11-20 09:00” with a zone such as Europe/Berlin")
LATE_BY_AT_MOST = timedelta(minutes=5)  # a script's own "now" is a little in the past
OFFSET = re.compile(r"[+-][0-9]{2}:[0-9]{2}")  # stands for a zone, too
_DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*", re.DOTALL)


class UnknownZone(BadInput):
    """It is the zone that is wrong, not the time."""


class TimeInThePast(BadInput):
    """The time is over."""


class NonexistentTime(BadInput):
    """Clocks in the zone are put forward over this time."""


class AmbiguousTime(BadInput):
    """The zone does not tell the instant: an offset does."""

    def __init__(self, text: Text, offsets: tuple[str, str]) -> None:
        super().__init__(text)
        self.offsets = offsets  # such as +02:00 and +01:00, the earlier time first


def parse_due_time(text: str, zone: str, now: datetime) -> datetime:
    """The instant in UTC; BadInput, with the accepted forms, for anything else."""
    text = text.strip()
    if text == "now":
        if zone:
            _place(zone)
        return now
    due_at = _instant(_parsed(text), zone, text)
    if due_at < now - LATE_BY_AT_MOST:
        raise TimeInThePast(
            _("“{text}” is in the past: give a time to come, or say now.", text=text)
        )
    return due_at


def in_zone(at: datetime, zone: str) -> datetime:
    """The instant on the clocks of a zone or with an offset; in UTC if there is no such zone."""
    return at.astimezone(_shown_in(known_zone(zone)))


def known_zone(zone: str) -> str:
    """The zone or offset if this machine knows it, else UTC."""
    try:
        _shown_in(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return "UTC"
    return zone


def _shown_in(zone: str) -> tzinfo | None:
    return datetime.strptime(zone, "%z").tzinfo if OFFSET.fullmatch(zone) else ZoneInfo(zone)


def _parsed(text: str) -> datetime:
    if not _DATE_AND_TIME.fullmatch(text):  # fromisoformat takes week dates and bare days as well
        raise BadInput(_("“{text}” is not a date and time: write {forms}.", text=text, forms=FORMS))
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(
            _("“{text}” is not a date and time: write {forms}.", text=text, forms=FORMS)
        ) from None


def _instant(at: datetime, zone: str, text: str) -> datetime:
    if at.tzinfo is not None and zone:
        raise BadInput(
            _("“{text}” has an offset already: leave the zone {zone} out.", text=text, zone=zone)
        )
    if at.tzinfo is None and not zone:
        raise BadInput(
            _("“{text}” does not say in which zone: write {forms}.", text=text, forms=FORMS)
        )
    try:
        return (_in_zone(at, zone, text) if zone else at).astimezone(UTC)
    except OverflowError:
        raise BadInput(
            _("“{text}” is too far away: write {forms}.", text=text, forms=FORMS)
        ) from None


def _in_zone(at: datetime, zone: str, text: str) -> datetime:
    """The one instant that clocks in the zone show so; twice a year one hour has two, or none."""
    place = _place(zone)
    first, second = at.replace(tzinfo=place, fold=0), at.replace(tzinfo=place, fold=1)
    if first.astimezone(UTC).astimezone(place).replace(tzinfo=None) != at:
        raise NonexistentTime(
            _(
                "“{text}” does not exist in {zone}: clocks are put forward over it.",
                text=text,
                zone=zone,
            )
        )
    if first.utcoffset() != second.utcoffset():
        raise AmbiguousTime(
            _(
                "“{text}” comes twice in {zone}: say which with an offset, {first} or {second}.",
                text=text,
                zone=zone,
                first=first.isoformat(),
                second=second.isoformat(),
            ),
            (first.isoformat()[-len("+00:00") :], second.isoformat()[-len("+00:00") :]),
        )
    return first


def _place(zone: str) -> ZoneInfo:
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UnknownZone(
            _("There is no time zone “{zone}”: write one such as Europe/Berlin.", zone=zone)
        ) from None
