"""Rate limits for callers of this web process.

Why not simpler: without a limit one client can fill the queue of confirmation emails.
Why not exact: with N web processes a caller gets at most N times the limit, and a restart forgets
the calls so far. In exchange, a call needs no storage call, which is what callers would abuse.
Password attempts are counted exactly, in storage (`records/throttles.py`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from ipaddress import IPv6Address

import msgspec
from starlette.requests import Request

from postroom.domain.throttle import Rate, Throttle
from postroom.domain.token import sign
from postroom.web.context import context_of, one_per_app, parse_ip

ADDRESS_CALLS_PER_HOUR = 20  # so that one address cannot be signed up all day
ADDRESSES_COUNTED_MAX = 100_000  # about 20 MB, for each of the two limits
NETWORK_CALLS_PER_HOUR = 60  # enough for a class behind one IP address, too few for a bot
NETWORKS_COUNTED_MAX = 50_000
_NETWORK_BITS = 64  # of an IPv6 address, usually one customer


class CallLimit(msgspec.Struct, frozen=True):
    """The calls allowed to each caller: an average, and a number at once."""

    name: str
    calls: int
    per: timedelta
    burst: int
    callers_max: int


def _hourly(name: str, calls: int, callers_max: int) -> CallLimit:
    return CallLimit(name, calls, timedelta(hours=1), calls, callers_max)


# Two limits by address, so that the public form does not use up the limit of API clients.
ADDRESSES_CALLED = _hourly("called", ADDRESS_CALLS_PER_HOUR, ADDRESSES_COUNTED_MAX)
ADDRESSES_TYPED = _hourly("typed", ADDRESS_CALLS_PER_HOUR, ADDRESSES_COUNTED_MAX)
NETWORKS = _hourly("networks", NETWORK_CALLS_PER_HOUR, NETWORKS_COUNTED_MAX)


class Throttles:
    """All throttles of one process. Callers are stored as hashes, never as addresses."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._throttles: dict[str, Throttle] = {}

    def wait(self, limit: CallLimit, caller: str, now: datetime) -> timedelta:
        """Count the call and return no wait; or return how long to wait, without counting it."""
        if limit.name not in self._throttles:
            rate = Rate(limit.calls, limit.per, limit.burst)
            self._throttles[limit.name] = Throttle(rate, callers_max=limit.callers_max)
        hashed = sign(self._secret, "throttle", limit.name, caller)
        return self._throttles[limit.name].wait(hashed, now)


def throttles_of(request: Request) -> Throttles:
    return one_per_app(request.app, Throttles, context_of(request).site.secret)


def network_of(client: str) -> str:
    """What counts as one caller: an IPv4 address or an IPv6 network; empty without an address."""
    address = parse_ip(client)
    if isinstance(address, IPv6Address):
        return f"{int(address) >> _NETWORK_BITS:x}"
    return str(address or "")
