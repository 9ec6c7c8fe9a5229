"""How often somebody may call, whichever web answers.

Every web process counts in memory, so that a call costs storage nothing. Those who use up much are
told to the other webs: while a caller has used a quarter of a burst that the others do not know
of, each round reads what they tell and writes one row; the round after that reads once more, for
what others told at the same moment. An idle web makes no storage calls.

Dies half-way: what was not told is lost, less than a round and a quarter of a burst for each
caller. When storage does not answer, each web goes on by what it knows, and tells later.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import Request

from postroom.clock import Clock
from postroom.domain.throttle import Throttle
from postroom.domain.token import new_guid, sign
from postroom.records import throttles
from postroom.storage.port import StorageError, Tables
from postroom.web.context import WebContext, one_per_app

log = structlog.get_logger("web")
ROUND_S = 5.0
HOUR = timedelta(hours=1)
ADDRESS_CALLS_PER_HOUR = 20  # so that nobody's address is tried all day
ADDRESSES_COUNTED_MAX = 100_000  # about 35 MB, for each of the two
NETWORK_CALLS_PER_HOUR = 60  # a class signs up from one address; a robot wants thousands
NETWORKS_COUNTED_MAX = 50_000
_NETWORK_BITS = 64  # of an IPv6 address: what one customer has to themselves
_PURPOSE = "throttle"


class CallLimit(msgspec.Struct, frozen=True):
    """So many calls of each caller in a time on average, and so many at once."""

    name: str  # in storage
    calls: int
    per: timedelta
    burst: int
    callers_max: int


# Addresses, apart: whoever types one into a form uses up nothing of what clients may send.
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
    """All of one process. Callers are known by a hash alone, here and in storage."""

    def __init__(self, tables: Tables, clock: Clock, secret: str) -> None:
        self._tables = tables
        self._clock = clock
        self._secret = secret
        self._web = new_guid()
        self._throttles: dict[str, Throttle] = {}
        self._told_at: datetime | None = None
        self._is_told = True  # what was last to be told has reached storage
        self._is_answered = True  # and what others told at that moment was heard

    def wait(self, limit: CallLimit, caller: str, now: datetime) -> timedelta:
        """No wait, and the call is counted; or how long to wait, and it is not."""
        throttle = self._throttles.get(limit.name)
        if throttle is None:
            throttle = self._throttles[limit.name] = Throttle(
                limit.calls, limit.per, burst=limit.burst, callers_max=limit.callers_max
            )
        return throttle.wait(sign(self._secret, _PURPOSE, limit.name, caller), now)

    async def keep_telling(self) -> None:
        """Round after round, for as long as the server runs."""
        while True:
            await self._clock.sleep(ROUND_S)
            try:
                await self.round()
            except StorageError as error:
                log.warning("throttles_not_told", error=type(error).__name__)
            except Exception:  # limits go on without it, in each web alone
                log.exception("throttles_broken")

    async def round(self) -> bool:
        """Hear the others and tell them, if there is news; whether there was."""
        has_news = any(each.has_news for each in self._throttles.values()) or not self._is_told
        if has_news or not self._is_answered:
            await self._hear()
            self._is_answered = True
        if has_news:
            await self._tell()
        return has_news

    async def _hear(self) -> None:
        found = await throttles.tellings(self._tables, self._web, self._clock.now())
        now = self._clock.now()
        for name, throttle in self._throttles.items():
            throttle.forget_others(found)
            for web, tellings in found.items():
                if name in tellings:
                    throttle.hear(web, tellings[name], now)

    async def _tell(self) -> None:
        """All anew; one that may not have arrived is told again."""
        now, follows = self._clock.now(), self._told_at
        callers = {name: throttle.tell(now) for name, throttle in self._throttles.items()}
        self._told_at, self._is_told, self._is_answered = now, False, False
        await throttles.tell(self._tables, self._web, callers, now, follows)
        self._is_told = True


def throttles_in(app: Starlette) -> Throttles:
    return one_per_app(app, _throttles, app.state.context)


def _throttles(context: WebContext) -> Throttles:
    return Throttles(context.storage.tables, context.clock, context.site.secret)


def throttles_of(request: Request) -> Throttles:
    return throttles_in(request.app)


def network_of(client: str) -> str:
    """Who counts as one caller: an IPv4 address, or a network of IPv6 addresses."""
    address = ip_address(client)
    if not isinstance(address, IPv6Address):
        return client
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return f"{int(address) >> _NETWORK_BITS:x}"
