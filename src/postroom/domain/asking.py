"""Asking people to confirm their subscription: who may be asked, and how often."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from postroom.domain.subscriber import Subscriber
from postroom.domain.texts import _, ngettext

# Most people read their email once a day, so a second request on the same day is a nuisance.
ASK_ONCE_IN = timedelta(hours=24)
# People who ignored three requests do not want the list, and mailbox providers count more as spam.
ASKS_MAX = 3
ASKS_WITHIN = timedelta(days=30)


class CannotAsk(StrEnum):
    CONFIRMED = "confirmed"
    INACTIVE = "inactive"
    UNSUBSCRIBED_BEFORE = (
        "unsubscribed-before"  # and signed up again, or somebody else entered their address
    )
    LATELY = "lately"
    OFTEN = "often"


CANNOT_ASK_TEXTS = {
    CannotAsk.CONFIRMED: _("They have already confirmed."),
    CannotAsk.INACTIVE: _("They are no longer on this list."),
    CannotAsk.UNSUBSCRIBED_BEFORE: _(
        "They unsubscribed earlier. Only they can request another confirmation email, by signing "
        "up again."
    ),
    CannotAsk.LATELY: ngettext(
        "They were asked in the last {count} hour. Ask again later.",
        "They were asked in the last {count} hours. Ask again later.",
        ASK_ONCE_IN // timedelta(hours=1),
    ),
    CannotAsk.OFTEN: _(
        "They were asked {limit} times in the last {days} days, which is the limit.",
        limit=ASKS_MAX,
        days=ASKS_WITHIN.days,
    ),
}


def cannot_ask(one: Subscriber, now: datetime, *, by_hand: bool = False) -> CannotAsk | None:
    """Why this person cannot be asked now; None if they can.

    An email that was refused or given up on reached nobody, so a person may be asked again by hand
    at once. A run over a whole list would only cause the same refusals again.
    """
    if one.inactive_reason:
        return CannotAsk.INACTIVE
    if one.verified:
        return CannotAsk.CONFIRMED
    if one.inactive_reason_before:
        return CannotAsk.UNSUBSCRIBED_BEFORE
    is_lost = by_hand and one.confirmation is not None and one.confirmation.has_ended
    if one.asked_at and now < one.asked_at + ASK_ONCE_IN and not is_lost:
        return CannotAsk.LATELY
    times = [datetime.fromisoformat(each) for each in (one.asks or "").split()]
    is_often = len(times) >= ASKS_MAX and now < times[-ASKS_MAX] + ASKS_WITHIN
    return CannotAsk.OFTEN if is_often else None


def asked(one: Subscriber, now: datetime) -> Subscriber:
    """The subscriber after an administrator or an import asked them.

    Attempts that ended before are dropped; one that ended since was made by a fast sender.
    """
    times = [*(one.asks or "").split(), now.isoformat()][-ASKS_MAX:]
    attempts = one.confirmation
    if attempts and attempts.has_ended and attempts.last_at <= now:
        attempts = None
    return msgspec.structs.replace(one, asked_at=now, asks=" ".join(times), confirmation=attempts)
