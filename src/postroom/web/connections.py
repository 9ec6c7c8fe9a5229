"""Limits on open connections: per network, in total, and on the time a request head may take.

A connection is waiting until the whole head of a request has arrived, and again after each
response. When a limit is reached, the connection that has been waiting longest is closed: of the
same network, or of all. So a client that sends its request at once is served even beside thousands
of silent connections from the same address (NAT). If none is waiting, the new connection is closed.

Why not a library: uvicorn has no such limits, and ASGI middleware does not see a connection before
its first request. A reverse proxy can do the same, but not everybody has one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from typing import Any, Protocol

import msgspec
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from postroom.web.context import Networks, is_within, parse_ip
from postroom.web.throttles import network_of

log = structlog.get_logger("web")
CONNECTIONS_WAITING_MAX = 512  # in the listener's queue
FILES_RESERVED = 100  # for storage, uploads, the listener and logs
HEAD_BYTES_MAX = 64 * 1024  # with cookies; the parser itself has no limit
REST_OF_BODY_S = 30.0  # for the rest of a body after an early response, so that it is read
SLOW_READER_S = 60.0  # for the reader of a full buffer, or of the rest of the last answer
LOGGED_EVERY_S = 60.0
HEAD = "head"  # the timer for the head of a request, or the rest of its body
READER = "reader"  # the timer for a client that does not read
_LOGGED_BITS = {4: 24, 6: 48}  # of an address


class ConnectionLimits(msgspec.Struct, frozen=True):
    """How many connections there may be, and how long one may be silent."""

    of_all: int = 2000  # each one costs memory
    of_network: int = 200  # an IPv4 address or an IPv6 /64; enough for an office behind one
    head_s: float = 10.0  # from the connection, or the first byte, to the end of a request head
    keep_alive_s: int = 5  # from a response to the first byte of the next request


def limits_within(files_max: int) -> ConnectionLimits:
    """The limits for a process that may open this many files.

    The loop accepts the whole queue of the listener before we can close a connection, so that
    queue needs room as well.
    """
    room = max(files_max - FILES_RESERVED - CONNECTIONS_WAITING_MAX, files_max // 2)
    usual = ConnectionLimits()
    of_all = min(usual.of_all, room)
    return ConnectionLimits(of_all=of_all, of_network=min(usual.of_network, max(1, of_all // 4)))


def raise_file_limit() -> int:
    """Raise the soft limit of open files (RLIMIT_NOFILE) to the hard one, and return it."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS: the hard limit is "infinite", but may not be set
        hard = soft
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


class Connection(Protocol):
    def close(self) -> None: ...


class OpenConnections:
    """All open connections of one server. Trusted proxies have no limit of their own."""

    def __init__(
        self,
        limits: ConnectionLimits,
        trusted_proxies: Networks = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._trusted_proxies = trusted_proxies
        self._clock = clock
        self._network_of: dict[Connection, str] = {}
        self._open = Counter[str]()  # by network
        self._waiting: dict[Connection, None] = {}  # the one that has been waiting longest first
        self._logged: dict[str, tuple[float, int]] = {}  # by limit: when, number closed since

    def add(self, connection: Connection, host: str) -> bool:
        """Count a new, waiting connection; False if the limits leave no room for it."""
        # Empty for a trusted proxy, or a caller without an address, as on a Unix socket.
        key = "" if is_within(host, self._trusted_proxies) else network_of(host)
        if key and self._open[key] >= self.limits.of_network:
            self._log_reached("network", host, self._open[key])
            same = (each for each in self._waiting if self._network_of[each] == key)
            if not self._close_one_of(same):
                return False
        if len(self._network_of) >= self.limits.of_all:
            self._log_reached("all", host, len(self._network_of))
            if not self._close_one_of(iter(self._waiting)):
                return False
        self._network_of[connection] = key
        self._open[key] += 1
        self.note_waiting(connection)
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection, if it is counted."""
        key = self._network_of.pop(connection, None)
        if key is None:
            return
        self.note_at_work(connection)
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]

    def note_waiting(self, connection: Connection) -> None:
        if connection in self._network_of:
            self._waiting[connection] = None

    def note_at_work(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def _close_one_of(self, waiting: Iterator[Connection]) -> bool:
        """Close the connection that has been waiting longest, if there is one."""
        longest = next(waiting, None)
        if longest is None:
            return False
        self.remove(longest)
        longest.close()
        return True

    def _log_reached(self, limit: str, host: str, connections: int) -> None:
        """Log that a limit was reached, at most once a minute for each limit."""
        now = self._clock()
        at, closed = self._logged.get(limit, (now - LOGGED_EVERY_S, 0))
        if now < at + LOGGED_EVERY_S:
            self._logged[limit] = at, closed + 1
            return
        self._logged[limit] = now, 0
        log.warning(
            "connection_limit_reached",
            limit=limit,
            connections=connections,
            network=_logged_network(host),
            closed=closed + 1,
        )


def _logged_network(host: str) -> str:
    """Enough of an address to find the source of a flood, too little to identify a person."""
    address = parse_ip(host)
    if address is None:
        return "unknown"
    return str(ip_network(f"{address}/{_LOGGED_BITS[address.version]}", strict=False))


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which reports to `OpenConnections` and closes slow connections."""

    def __init__(self, *arguments: Any, connections: OpenConnections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._all = connections
        self._head_bytes = 0
        self._is_body_due = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def close(self) -> None:
        """Close at once; `transport.close` would wait until the client has read the buffer."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._all.add(self, self.client[0] if self.client else ""):
            self._start_timer(HEAD, self._all.limits.head_s)
        else:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer(HEAD)
        self._stop_timer(READER)
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_waiting:
            return
        if self._is_body_due:
            self._start_timer(HEAD, REST_OF_BODY_S)
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.close()
        self._start_timer(HEAD, self._all.limits.head_s)

    def on_headers_complete(self) -> None:
        self._stop_timer(HEAD)
        self._head_bytes = 0
        self._is_body_due = True
        self._all.note_at_work(self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_body_due = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.is_waiting:
            self._all.note_waiting(self)
        if self.transport.is_closing():
            self._start_timer(READER, SLOW_READER_S)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._start_timer(READER, SLOW_READER_S)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer(READER, SLOW_READER_S)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer(READER)

    def _start_timer(self, name: str, seconds: float) -> None:
        """Start it unless it is running, so that a byte now and then gains no time."""
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, self.close)

    def _stop_timer(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()
