"""How often somebody may be signed up, whether by the web service or on a page of ours."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv6Address, ip_address

from starlette.requests import Request

from postroom.domain.throttle import Throttle

HOUR = timedelta(hours=1)
ADDRESS_CALLS_PER_HOUR = 20  # so that nobody's address is tried all day
ADDRESSES_COUNTED_MAX = 100_000  # about 30 MB, for each of the two
NETWORK_CALLS_PER_HOUR = 60  # a class signs up from one address; a robot wants thousands
NETWORKS_COUNTED_MAX = 50_000
_NETWORK_BITS = 64  # of an IPv6 address: what one customer has to themselves


class SignUps:
    """What one process remembers of them."""

    def __init__(self) -> None:
        # Addresses, apart: whoever types one into a form uses up nothing of what clients may send.
        self.called = _of_addresses()
        self.typed = _of_addresses()
        self.networks = Throttle(
            NETWORK_CALLS_PER_HOUR,
            HOUR,
            burst=NETWORK_CALLS_PER_HOUR,
            callers_max=NETWORKS_COUNTED_MAX,
        )


def _of_addresses() -> Throttle:
    return Throttle(
        ADDRESS_CALLS_PER_HOUR,
        HOUR,
        burst=ADDRESS_CALLS_PER_HOUR,
        callers_max=ADDRESSES_COUNTED_MAX,
    )


def sign_ups_of(request: Request) -> SignUps:
    """Those of this application, made at its first call."""
    state = request.app.state
    if not hasattr(state, "sign_ups"):
        state.sign_ups = SignUps()
    sign_ups: SignUps = state.sign_ups
    return sign_ups


def network_of(client: str) -> str:
    """Who counts as one caller: an IPv4 address, or a network of IPv6 addresses."""
    address = ip_address(client)
    if not isinstance(address, IPv6Address):
        return client
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return f"{int(address) >> _NETWORK_BITS:x}"
