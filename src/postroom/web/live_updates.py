"""Live pages: one shared poll for all viewers of the same thing, and a stream for each of them.

A poll runs while it has viewers, and pauses for at least four times as long as a read took, so that
it never uses more than a fifth of anything. A stream is server-sent events: what changed, a comment
now and then so that proxies keep the connection open, and an event “done” at the end, which closes
it in the browser. Streams end when the server stops, and at most ten seconds after their session
ends (or once storage responds again).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Generic, TypeVar

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
PAUSE_S_MIN = 1.0
PAUSE_PER_READ = 4.0
CACHED_S = 1.0  # a page may show a reading of this age
HEARTBEAT_S = 15.0
SESSION_CHECKED_EVERY = timedelta(seconds=10)
STREAMS_MAX = 500  # per process
POLLS_MAX = 100  # before those without viewers are dropped
# Browsers open six connections to a host (HTTP/1.1): with more streams a page would never load.
STREAMS_A_SESSION_MAX = 4


class SharedPoll(Generic[T]):
    """The latest reading of one thing, refreshed while it has viewers."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self.latest: T | None = None
        self._read = read
        self._clock = clock
        self.next_reading = asyncio.get_running_loop().create_future()  # shared by all viewers
        self.viewers = 0
        self._reader: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count a viewer; the poll runs while there are any."""
        self.viewers += 1
        if self._reader is None:
            self._reader = asyncio.create_task(self._keep_reading())
        try:
            yield
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._reader.cancel()
                self._reader = None
                self.latest = None

    async def _keep_reading(self) -> None:
        while True:
            began = asyncio.get_running_loop().time()
            try:
                self.latest = await self._read()
                self.next_reading.set_result(None)
                self.next_reading = asyncio.get_running_loop().create_future()
            except StorageError as error:
                log.warning("poll_failed", error=type(error).__name__)
            except Exception:  # an unreadable row must not end the streams
                log.exception("poll_broken")
            took_s = asyncio.get_running_loop().time() - began
            await self._clock.sleep(max(PAUSE_S_MIN, took_s * PAUSE_PER_READ))


class SharedPolls:
    """All polls of this process, and the number of open streams."""

    def __init__(self) -> None:
        self._polls: dict[str, SharedPoll[Any]] = {}
        self._streams = Counter[str]()  # by session
        self._cached: dict[str, tuple[float, asyncio.Future[Any]]] = {}  # until when

    def of(self, name: str, create: Callable[[], SharedPoll[T]]) -> SharedPoll[T]:
        """The shared poll of this name, created at the first call."""
        if len(self._polls) > POLLS_MAX:
            self._polls = {key: each for key, each in self._polls.items() if each.viewers}
        if name not in self._polls:
            self._polls[name] = create()
        return self._polls[name]

    async def cached_read(self, name: str, read: Callable[[], Awaitable[T]]) -> T:
        """A reading that is at most a second old or in progress, else a new one."""
        now_s = asyncio.get_running_loop().time()
        self._cached = {key: each for key, each in self._cached.items() if now_s < each[0]}
        if name not in self._cached:
            self._cached[name] = now_s + CACHED_S, asyncio.ensure_future(read())
        reading: asyncio.Future[T] = self._cached[name][1]
        return await asyncio.shield(reading)  # a viewer who leaves does not cancel it for others

    def latest(self, name: str) -> object | None:
        """The latest reading, if there are viewers."""
        poll = self._polls.get(name)
        return poll.latest if poll else None

    def may_open(self, session: str) -> bool:
        is_full = self._streams.total() >= STREAMS_MAX
        return not is_full and self._streams[session] < STREAMS_A_SESSION_MAX

    @contextmanager
    def opened(self, session: str) -> Iterator[None]:
        """Count an open stream of this session."""
        self._streams[session] += 1
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
    is_last: bool = False  # nothing will change any more


Render = Callable[[T, T | None], Update]  # of this reading, and the one shown before


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
        # No await between check and count, because others arrive at the same time.
        if not self._polls.may_open(self._session):
            full = Response(status_code=429, headers={"Retry-After": "30"})
            await full(scope, receive, send)
            return
        with self._polls.opened(self._session), self._poll.watched():
            await super().__call__(scope, receive, send)


async def _events(
    request: Request, poll: SharedPoll[T], event: str, render: Render[T]
) -> AsyncIterator[str]:
    """Changes, until there are no more or the viewer is signed out."""
    stopping = stopping_of(request)
    clock = context_of(request).clock
    check_at = clock.now() + SESSION_CHECKED_EVERY
    shown: T | None = None
    yield ": hello\n\n"
    while not stopping.is_set():
        if clock.now() >= check_at:
            check_at = clock.now() + SESSION_CHECKED_EVERY
            if not await _is_signed_in(request):
                break
        next_reading = poll.next_reading
        latest = poll.latest
        update = render(latest, shown) if latest is not None and latest is not shown else Update()
        shown = latest
        if update.piece:
            yield _event(event, update.piece)
        if update.is_last:
            break
        until_check_s = max(0.0, (check_at - clock.now()).total_seconds())
        if not await _wait(next_reading, stopping, min(HEARTBEAT_S, until_check_s)):
            yield ": still here\n\n"
    if not stopping.is_set():  # otherwise the browser reconnects, to the next process
        yield _event("done", "done")


async def _is_signed_in(request: Request) -> bool:
    with suppress(StorageError):  # then the next check decides
        return await find_signed_in(request) is not None
    return True


async def _wait(reading: asyncio.Future[None], stopping: asyncio.Event, wait_s: float) -> bool:
    """Wait for a reading or a stop; False if there is neither in time."""
    stop = asyncio.ensure_future(stopping.wait())
    try:
        done, _ = await asyncio.wait(
            (reading, stop), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
        )
        return bool(done)
    finally:
        stop.cancel()


def _event(name: str, content: str) -> str:
    lines = "".join(f"data: {line}\n" for line in content.splitlines() or [""])
    return f"event: {name}\n{lines}\n"
