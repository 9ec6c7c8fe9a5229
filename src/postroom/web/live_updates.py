"""Live pages: one reader for everybody who watches the same thing, and a stream for each of them.

The reader runs while somebody watches, and pauses for at least four times as long as a read took,
so that watching never uses more than a fifth of anything. A stream is server-sent events: what
changed, a comment now and then so that proxies keep the connection open, and an event “done” at the
end, which closes it in the browser. Streams end when the server stops, and at most ten seconds
after their session ends (or once storage responds again).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from postroom.clock import Clock
from postroom.storage.port import StorageError
from postroom.web.context import context_of, one_per_app
from postroom.web.server import stopping_of
from postroom.web.signed_in import SignedIn, find_signed_in

log = structlog.get_logger("web")
T = TypeVar("T")
REST_S = 1.0
REST_PER_READ = 4.0
GLANCE_S = 1.0  # a page may show a reading of this age
HEARTBEAT_S = 15.0
SESSION_CHECKED_EVERY = timedelta(seconds=10)
STREAMS_MAX = 500  # per process
PULSES_KEPT_MAX = 100  # before unwatched ones are dropped
# Browsers open six connections to a host (HTTP/1.1): with more streams a page would never load.
STREAMS_A_SESSION_MAX = 4


class SharedPoll(Generic[T]):
    """The last reading of one thing, kept fresh while somebody watches."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self.latest: T | None = None
        self._read = read
        self._clock = clock
        self._next: asyncio.Future[None] | None = None
        self._watchers = 0
        self._reader: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._watchers += 1
        if self._reader is None:
            self._reader = asyncio.create_task(self._keep_reading())
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._reader.cancel()
                self._reader = None
                self.latest = None

    def beat(self) -> asyncio.Future[None]:
        """A future that is done with the next reading, shared by all viewers."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    async def _keep_reading(self) -> None:
        while True:
            began = asyncio.get_running_loop().time()
            try:
                self.latest = await self._read()
                ready = self._next
                self._next = None
                if ready and not ready.done():
                    ready.set_result(None)
            except StorageError as error:
                log.warning("pulse_missed", error=type(error).__name__)
            except Exception:  # an unreadable row must not end the streams
                log.exception("pulse_broken")
            took_s = asyncio.get_running_loop().time() - began
            await self._clock.sleep(max(REST_S, took_s * REST_PER_READ))


class _CachedRead(NamedTuple):
    at: float  # when it was begun
    reading: asyncio.Future[Any]


class SharedPolls:
    """Everything that is watched in this process, and the number of open streams."""

    def __init__(self) -> None:
        self._polls: dict[str, SharedPoll[Any]] = {}
        self._streams: dict[str, int] = {}  # by session
        self._glances: dict[str, _CachedRead] = {}

    def of(self, name: str, make: Callable[[], SharedPoll[T]]) -> SharedPoll[T]:
        """The shared pulse of this name, made at the first call."""
        if len(self._polls) > PULSES_KEPT_MAX:
            self._polls = {key: each for key, each in self._polls.items() if each.is_watched}
        poll = self._polls.get(name)
        if poll is None:
            poll = self._polls[name] = make()
        return poll

    async def glance(self, name: str, read: Callable[[], Awaitable[T]]) -> T:
        """A reading that is at most a second old or in progress, else a new one."""
        now_s = asyncio.get_running_loop().time()
        self._glances = {
            key: each for key, each in self._glances.items() if now_s < each.at + GLANCE_S
        }
        if name not in self._glances:
            self._glances[name] = _CachedRead(now_s, asyncio.ensure_future(read()))
        reading: asyncio.Future[T] = self._glances[name].reading
        return await asyncio.shield(reading)  # a viewer who leaves cancels it for nobody

    def latest(self, name: str) -> object | None:
        """The last reading, if somebody is watching."""
        poll = self._polls.get(name)
        return poll.latest if poll else None

    def may_open(self, session: str) -> bool:
        is_full = sum(self._streams.values()) >= STREAMS_MAX
        return not is_full and self._streams.get(session, 0) < STREAMS_A_SESSION_MAX

    @contextmanager
    def opened(self, session: str) -> Iterator[None]:
        self._streams[session] = self._streams.get(session, 0) + 1
        try:
            yield
        finally:
            self._streams[session] -= 1
            if not self._streams[session]:
                del self._streams[session]


def polls_of(request: Request) -> SharedPolls:
    return one_per_app(request.app, SharedPolls)


class Update(msgspec.Struct, frozen=True):
    """What to show to a viewer."""

    piece: str = ""  # HTML; empty if nothing changed
    is_last: bool = False  # there is nothing more to watch


Render = Callable[[T, T | None], Update]  # this reading, and the one shown before


def stream(
    request: Request, signed_in: SignedIn, poll: SharedPoll[T], event: str, render: Render[T]
) -> Response:
    """Server-sent events for one viewer."""
    events = _events(request, poll, event, render)
    return _Stream(events, polls_of(request), signed_in.session.id, poll)


class _Stream(StreamingResponse):
    """A stream that counts against the limits while it is open."""

    def __init__(
        self, events: AsyncIterator[str], polls: SharedPolls, session: str, poll: SharedPoll[T]
    ) -> None:
        headers = {"X-Accel-Buffering": "no"}  # or nginx waits for more
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._polls = polls
        self._session = session
        self._poll = poll

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # No await between check and use: others arrive at the same time.
        if not self._polls.may_open(self._session):
            full = Response(status_code=429, headers={"Retry-After": "30"})
            await full(scope, receive, send)
            return
        with self._polls.opened(self._session), self._poll.watched():
            await super().__call__(scope, receive, send)


async def _events(
    request: Request, poll: SharedPoll[T], event: str, render: Render[T]
) -> AsyncIterator[str]:
    """Changes, until there is nothing more to watch or the viewer is signed out."""
    stopping = stopping_of(request)
    watch = _SessionWatch(request, context_of(request).clock.now())
    shown: T | None = None
    yield ": hello\n\n"
    while not stopping.is_set() and await watch.is_signed_in():
        beat = poll.beat()
        seen = poll.latest
        news = render(seen, shown) if seen is not None and seen is not shown else Update()
        shown = seen
        if news.piece:
            yield _written(event, news.piece)
        if news.is_last:
            break
        if not await _is_heard(beat, stopping, min(HEARTBEAT_S, watch.rest_s)):
            yield ": still here\n\n"
    if not stopping.is_set():  # otherwise the browser reconnects, to the next process
        yield _written("done", "done")


class _SessionWatch:
    """Checks now and then whether the viewer of a stream is still signed in."""

    def __init__(self, request: Request, now: datetime) -> None:
        self._request = request
        self._clock = context_of(request).clock
        self._checked_at = now

    @property
    def rest_s(self) -> float:
        """Seconds until the next check."""
        rest = self._checked_at + SESSION_CHECKED_EVERY - self._clock.now()
        return max(0.0, rest.total_seconds())

    async def is_signed_in(self) -> bool:
        now = self._clock.now()
        if now < self._checked_at + SESSION_CHECKED_EVERY:
            return True
        self._checked_at = now
        with suppress(StorageError):  # then the next check decides
            return await find_signed_in(self._request) is not None
        return True


async def _is_heard(beat: asyncio.Future[None], stopping: asyncio.Event, wait_s: float) -> bool:
    """Whether there is a reading or a stop before the time is over."""
    stop = asyncio.ensure_future(stopping.wait())
    try:
        done, _ = await asyncio.wait(
            (beat, stop), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
        )
        return bool(done)
    finally:
        stop.cancel()


def _written(event: str, content: str) -> str:
    lines = "".join(f"data: {line}\n" for line in content.splitlines() or [""])
    return f"event: {event}\n{lines}\n"
