"""How often a caller may call this web process.

Why not simpler: without a limit one client can fill the queue of confirmation emails.
Why not exact: with N web processes a caller gets at most N times the limit, and a restart forgets
the calls made so far. In exchange, no call costs a storage call, which is what callers would abuse.
Password attempts are counted exactly, in storage (`records/throttles.py`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address

import msgspec
from starlette.requests import Request

from postroom.domain.throttle import Rate, Throttle
from postroom.domain.token import sign
from postroom.web.context import context_of, one_per_app

HOUR = timedelta(hours=1)
ADDRESS_CALLS_PER_HOUR = 20  # so that one address cannot be signed up all day
ADDRESSES_COUNTED_MAX = 100_000  # about 20 MB, for each of the two limits
NETWORK_CALLS_PER_HOUR = 60  # a class signs up from one IP address; a robot wants thousands
NETWORKS_COUNTED_MAX = 50_000
_NETWORK_BITS = 64  # of an IPv6 address: what one customer has to themselves


class CallLimit(msgspec.Struct, frozen=True):
    """The calls allowed to each caller: an average, and a number at once."""

    name: str
    calls: int
    per: timedelta
    burst: int
    callers_max: int


# Two limits by address, so that typing one into a form uses up nothing of what clients may send.
ADDRESSES_CALLED = CallLimit(
    "called", ADDRESS_CALLS_PER_HOUR, HOUR, ADDRESS_CALLS_PER_HOUR, ADDRESSES_COUNTED_MAX
)
ADDRESSES_TYPED = CallLimit(
    "typed", ADDRESS_CALLS_PER_HOUR, HOUR, ADDRESS_CALLS_PER_HOUR, ADDRESSES_COUNTED_MAX
)
NETWORKS = CallLimit(
    "networks", NETWORK_CALLS_PER_HOUR, HOUR, NETWORK_CALLS_PER_HOUR, NETWORKS_COUNTED_MAX
)


class Throttles:
    """All throttles of one process. Callers are kept as hashes, never as addresses."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._throttles: dict[str, Throttle] = {}

    def wait(self, limit: CallLimit, caller: str, now: datetime) -> timedelta:
        """Count the call and return no wait; or return how long to wait, without counting it."""
        throttle = self._throttles.get(limit.name)
        if throttle is None:
            rate = Rate(limit.calls, limit.per, limit.burst)
            throttle = Throttle(rate, callers_max=limit.callers_max)
            self._throttles[limit.name] = throttle
        return throttle.wait(sign(self._secret, "throttle", limit.name, caller), now)


def throttles_of(request: Request) -> Throttles:
    return one_per_app(request.app, Throttles, context_of(request).site.secret)


def network_of(client: str) -> str:
    """What counts as one caller: an IPv4 address, or a network of IPv6 addresses."""
    address = ip_address(client)
    if not isinstance(address, IPv6Address):
        return client
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return f"{int(address) >> _NETWORK_BITS:x}"
