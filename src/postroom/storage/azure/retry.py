"""How long a call to Azure goes on trying, and what is never tried twice.

Refused before anything was done (throttled, not even connected): every call is tried again.
In doubt (the line broke, no answer in time, an inner fault): only a call that reads is. A write
that took effect and is written again would come back as a false Conflict, put an item twice or
undo what somebody wrote since; its caller is told Unavailable and looks for itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
import msgspec
import structlog
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from postroom.clock import Clock
from postroom.storage.port import Troubles, Unavailable

TIMEOUT_S = 60.0  # of a call with all its tries, unless a person waits
TRIES_MAX = 50
PAUSE_FIRST_S = 0.1
PAUSE_LONGEST_S = 8.0  # the service looks at a partition's load every few seconds
READ_TRIES = 3  # a read that hangs is asked again after a third of the time there is

THROTTLED = 429
SERVER_BUSY = "ServerBusy"
# Inner faults and gateways: the request may have got through before.
_IN_DOUBT = frozenset({408, 500, 502, 503, 504})

log = structlog.get_logger("storage.azure")
T = TypeVar("T")


class RequestNotApplied(Exception):
    """Refused, or never sent: nothing changed."""

    def __init__(self, why: str, *, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.pause_s = pause_s  # what the service asks for


class RequestInDoubt(Exception):
    """No answer, or one that leaves open whether anything changed."""


class ConnectionBroke(aiohttp.ClientError):
    """The connection ended without an answer."""


class RetryPolicy:
    """One for all three services of an account. `timeout_s` bounds a call with all its tries."""

    def __init__(
        self, clock: Clock, timeout_s: float, *, chance: random.Random | None = None
    ) -> None:
        self.troubles = Troubles()
        self._clock = clock
        self._timeout_s = timeout_s
        self._chance = chance or random.Random()

    async def call(self, attempt: Callable[[], Awaitable[T]], *, reads: bool) -> T:
        """The attempt's answer, or Unavailable. An attempt raises NotDone, InDoubt or an answer."""
        until_s = self._clock.monotonic() + self._timeout_s
        for turn in range(TRIES_MAX):
            left_s = until_s - self._clock.monotonic()
            try:
                async with asyncio.timeout(left_s / READ_TRIES if reads and not turn else left_s):
                    return await attempt()
            except RequestNotApplied as trouble:
                self._note(refused=self.troubles.refused + 1)
                why, pause_s = str(trouble), max(self._pause_s(turn), trouble.pause_s)
            except (RequestInDoubt, TimeoutError) as trouble:
                self._note(in_doubt=self.troubles.in_doubt + 1)
                why, pause_s = str(trouble) or "no answer in time", self._pause_s(turn)
                if not reads:
                    raise Unavailable(f"Azure Storage: {why}; it may have been done.") from trouble
            log.info("azure_again", why=why, pause_s=round(pause_s, 3))
            if self._clock.monotonic() + pause_s >= until_s:
                break
            await self._clock.sleep(pause_s)
        raise Unavailable(f"Azure Storage: {why}, for {self._timeout_s:.0f} seconds.")

    def _note(self, **counts: int) -> None:
        now_s = self._clock.now().timestamp()
        self.troubles = msgspec.structs.replace(self.troubles, last_at=now_s, **counts)

    def _pause_s(self, turn: int) -> float:
        """Doubling, and different for each caller, so that they do not come back together."""
        longest = min(PAUSE_LONGEST_S, PAUSE_FIRST_S * 2**turn)
        return self._chance.uniform(longest / 2, longest)


def check_answer(status: int, code: str, retry_after: str | None = None) -> None:
    """Whatever means that the request was not looked at, or maybe not to its end."""
    if status == THROTTLED or (status == 503 and code == SERVER_BUSY):
        pause_s = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
        raise RequestNotApplied(f"too busy ({status} {code})", pause_s=pause_s)
    if status in _IN_DOUBT:
        raise RequestInDoubt(f"an inner fault ({status} {code})")
    if status in (401, 403):
        raise Unavailable(f"Azure Storage refuses our credentials or network ({code or status}).")


def as_trouble(error: BaseException) -> RequestNotApplied | RequestInDoubt:
    """What an error of the HTTP client says about the request."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return RequestNotApplied("cannot be reached")
    return RequestInDoubt("the line broke")


async def send_once(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    """A middleware that keeps aiohttp from sending PUT and DELETE again by itself."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionBroke(str(error)) from error
