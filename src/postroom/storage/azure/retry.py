"""Retries of calls to Azure; some calls are never retried.

A request that was refused before anything was done (throttled, not even connected) is always
retried. A request in doubt (connection lost, no answer in time, internal error) is retried only if
it reads: a write that took effect and is repeated would come back as a false Conflict, put an item
twice, or overwrite a newer value. Its caller gets Unavailable and checks for itself.
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

TIMEOUT_S = 60.0  # for a call with all its attempts, unless a person is waiting
TRIES_MAX = 50
PAUSE_FIRST_S = 0.1
PAUSE_LONGEST_S = 8.0  # the service reviews the load of a partition every few seconds
READ_TRIES = 3  # the first attempt of a read gets a third of the timeout

THROTTLED = 429
SERVER_BUSY = "ServerBusy"
# Internal errors and gateways: the request may have taken effect.
_IN_DOUBT = frozenset({408, 500, 502, 503, 504})

log = structlog.get_logger("storage.azure")
T = TypeVar("T")


class RequestNotApplied(Exception):
    """The request was refused or never sent: nothing changed."""

    def __init__(self, why: str, *, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.pause_s = pause_s  # requested by the service


class RequestInDoubt(Exception):
    """There is no clear answer: something may have changed."""


class UnexpectedAnswer(Unavailable):
    """The service refuses the request itself, with a code such as `PopReceiptMismatch`."""

    def __init__(self, status: int | None, code: str) -> None:
        super().__init__(f"Azure Storage: unexpected answer ({status} {code}).")
        self.code = code


class ConnectionBroke(aiohttp.ClientError):
    """The connection ended without an answer."""


class RetryPolicy:
    """Shared by the three services of an account; `timeout_s` limits a call with all attempts."""

    def __init__(
        self, clock: Clock, timeout_s: float, *, chance: random.Random | None = None
    ) -> None:
        self.troubles = Troubles()
        self._clock = clock
        self._timeout_s = timeout_s
        self._chance = chance or random.Random()

    async def call(self, attempt: Callable[[], Awaitable[T]], *, reads: bool) -> T:
        """Retry `attempt` while it was not applied or, for reads, is in doubt; then Unavailable."""
        until_s = self._clock.monotonic() + self._timeout_s
        for tried in range(TRIES_MAX):
            left_s = until_s - self._clock.monotonic()
            try:
                async with asyncio.timeout(left_s / READ_TRIES if reads and not tried else left_s):
                    return await attempt()
            except RequestNotApplied as trouble:
                self._note(refused=self.troubles.refused + 1)
                why = str(trouble)
                pause_s = max(self._pause_s(tried), trouble.pause_s)
            except (RequestInDoubt, TimeoutError) as trouble:
                self._note(in_doubt=self.troubles.in_doubt + 1)
                why = str(trouble) or "no answer in time"
                pause_s = self._pause_s(tried)
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

    def _pause_s(self, tried: int) -> float:
        """Doubles each time, with jitter so that callers do not retry together."""
        longest = min(PAUSE_LONGEST_S, PAUSE_FIRST_S * 2**tried)
        return self._chance.uniform(longest / 2, longest)


def check_answer(status: int, code: str, retry_after: str | None = None) -> None:
    """Raise if the answer means that the request was not, or maybe not, carried out."""
    if status == THROTTLED or (status == 503 and code == SERVER_BUSY):
        pause_s = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
        raise RequestNotApplied(f"too busy ({status} {code})", pause_s=pause_s)
    if status in _IN_DOUBT:
        raise RequestInDoubt(f"an internal error ({status} {code})")
    if status in (401, 403):
        raise Unavailable(f"Azure Storage refuses our credentials or network ({code or status}).")


def as_trouble(error: BaseException) -> RequestNotApplied | RequestInDoubt:
    """Classify an error of the HTTP client: the request was not sent, or it is in doubt."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return RequestNotApplied("cannot be reached")
    return RequestInDoubt("the connection was lost")


async def send_once(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    """Middleware that keeps aiohttp from repeating PUT and DELETE on its own."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionBroke(str(error)) from error
