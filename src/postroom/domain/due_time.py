"""Parse when a message is due: now, an instant, or a wall-clock time in a zone."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, _

FORMS = _("now, 2026-11-20T09:00+01:00, or “2026-11-20 09:00” with a zone such as Europe/Berlin")
LATE_BY_AT_MOST = timedelta(minutes=5)  # a script's own "now" is slightly in the past
OFFSET = re.compile(r"[+-][0-9]{2}:[0-9]{2}")  # may be used as a zone
_DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*", re.DOTALL)


class UnknownZone(BadInput):
    """There is no such time zone."""


class TimeInThePast(BadInput):
    """The time is in the past."""


class NonexistentTime(BadInput):
    """Clocks in the zone skip this time when they go forward."""


class AmbiguousTime(BadInput):
    """Clocks in the zone show this time twice, so an offset must say which one is meant."""

    def __init__(self, text: Text, offsets: tuple[str, str]) -> None:
        super().__init__(text)
        self.offsets = offsets  # such as +02:00 and +01:00, the earlier time first


def parse_due_time(text: str, zone: str, now: datetime) -> datetime:
    """Return the instant in UTC; BadInput, with the accepted forms, for anything else."""
    text = text.strip()
    if text == "now":
        if zone:
            _zone_info(zone)
        return now
    at = None
    if _DATE_AND_TIME.fullmatch(text):  # fromisoformat accepts week dates and bare days as well
        with suppress(ValueError):
            at = datetime.fromisoformat(text)
    if at is None:
        raise BadInput(_("“{text}” is not a date and time. Enter {forms}.", text=text, forms=FORMS))
    if at.tzinfo is not None and zone:
        raise BadInput(
            _("“{text}” already has an offset. Leave out the zone {zone}.", text=text, zone=zone)
        )
    if at.tzinfo is None and not zone:
        raise BadInput(_("“{text}” has no time zone. Enter {forms}.", text=text, forms=FORMS))
    try:
        due_at = (_in_zone(at, zone, text) if zone else at).astimezone(UTC)
    except OverflowError:
        raise BadInput(
            _("“{text}” is too far in the future. Enter {forms}.", text=text, forms=FORMS)
        ) from None
    if due_at < now - LATE_BY_AT_MOST:
        raise TimeInThePast(_("“{text}” is in the past. Enter a future time, or now.", text=text))
    return due_at


def in_zone(at: datetime, zone: str) -> datetime:
    """The instant in a zone or at an offset; in UTC if there is no such zone."""
    return at.astimezone(_tzinfo(known_zone(zone)))


def known_zone(zone: str) -> str:
    """The zone or offset if this machine knows it, otherwise UTC."""
    try:
        _tzinfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return "UTC"
    return zone


def _tzinfo(zone: str) -> tzinfo | None:
    return datetime.strptime(zone, "%z").tzinfo if OFFSET.fullmatch(zone) else ZoneInfo(zone)


def _in_zone(at: datetime, zone: str, text: str) -> datetime:
    """The instant at which clocks in the zone show this time, if there is exactly one."""
    info = _zone_info(zone)
    first = at.replace(tzinfo=info, fold=0)
    second = at.replace(tzinfo=info, fold=1)
    if first.astimezone(UTC).astimezone(info).replace(tzinfo=None) != at:
        raise NonexistentTime(
            _(
                "“{text}” does not exist in {zone}: the clocks go forward and skip it. Choose "
                "another time.",
                text=text,
                zone=zone,
            )
        )
    if first.utcoffset() != second.utcoffset():
        raise AmbiguousTime(
            _(
                "“{text}” occurs twice in {zone}. Add an offset: {first} or {second}.",
                text=text,
                zone=zone,
                first=first.isoformat(),
                second=second.isoformat(),
            ),
            (first.isoformat()[-len("+00:00") :], second.isoformat()[-len("+00:00") :]),
        )
    return first


def _zone_info(zone: str) -> ZoneInfo:
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UnknownZone(
            _("There is no time zone “{zone}”. Enter one such as Europe/Berlin.", zone=zone)
        ) from None
