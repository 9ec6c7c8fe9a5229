"""What the status of a provider's reply means, where all providers agree (RFC 9110)."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from postroom.domain.trouble import Fault, TroubleKind, one_line
from postroom.transport.provider.connection import HttpReply
from postroom.transport.provider.lane import (
    AccountFault,
    CallDoubt,
    CallVerdict,
    ThrottleNotice,
    WholeRefusal,
)

WAIT_S = 2.0  # if a busy provider does not say how long
UNREADABLE_WAIT_S = 30.0
BAD_REQUEST, TOO_LARGE, TOO_MANY = 400, 413, 429
OUR_KEY = frozenset({401, 403})
UNAVAILABLE = 503
# From a gateway, which may have passed the request on and lost the reply.
FROM_A_GATEWAY = frozenset({502, 504})


def common_verdict(reply: HttpReply, words: str, wait_s: float, *, is_own: bool) -> CallVerdict:
    """Judge a reply that accepted nothing.

    `is_own`: the reply has the form of the provider's own errors. A 500 of that form comes from
    the service, which says that it did not do what was asked; any other may come from something
    in between that lost the answer.
    """
    answer = words or f"HTTP {reply.status}"
    if reply.status == TOO_MANY:
        return ThrottleNotice(wait_s, answer)
    if reply.status in OUR_KEY:
        return AccountFault(Fault(TroubleKind.KEY, one_line(answer)))
    if reply.status in (BAD_REQUEST, TOO_LARGE):
        return WholeRefusal(answer)
    if reply.status == UNAVAILABLE or (reply.status == 500 and is_own):
        return ThrottleNotice(wait_s, answer, is_error=True)
    if reply.status >= 500 or reply.status < 300:
        return CallDoubt(f"an answer that says nothing about it: {answer}")
    return AccountFault(Fault(TroubleKind.REFUSED, one_line(answer)))


def retry_after_s(reply: HttpReply, now: datetime) -> float:
    """How long the provider asks to wait (RFC 9110 10.2.3): seconds, or a date."""
    value = reply.headers.get("retry-after", "")
    if not value:
        return WAIT_S
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return UNREADABLE_WAIT_S
    moment = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
