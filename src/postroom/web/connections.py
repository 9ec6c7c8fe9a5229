"""Limits on open connections: of one network, of all, and on the time a request head may take.

A connection is waiting until the whole head of a request has arrived, and again after each answer.
When a limit is reached, the connection that has been waiting longest is closed: of the same
network, or of all. So a client that sends its request at once is served, also beside thousands of
silent connections from the same address (NAT). If none is waiting, the new connection is closed.

Why not a library: uvicorn has no such limits, and ASGI middleware does not see a connection before
its first request. A reverse proxy in front may do the same, but not everybody has one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, Protocol

import msgspec
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from postroom.web.context import Networks, is_within
from postroom.web.throttles import network_of

log = structlog.get_logger("web")
CONNECTIONS_WAITING_MAX = 512  # in the listener's queue
FILES_RESERVED = 100  # for storage, uploads, the listener and logs
HEAD_BYTES_MAX = 64 * 1024  # cookies and all; the parser itself has no limit
REST_OF_BODY_S = 30.0  # for a body that was answered before its end, so that the answer is read
SLOW_READER_S = 60.0  # for the reader of a full buffer, or of the rest of the last answer
LOGGED_EVERY_S = 60.0
_SHOWN_BITS = {4: 24, 6: 48}  # of an address, in a log


class ConnectionLimits(msgspec.Struct, frozen=True):
    """How many connections there may be, and how long one may be silent."""

    of_all: int = 2000  # each one costs memory
    of_network: int = 200  # an IPv4 address or an IPv6 /64: an office behind one has enough
    head_s: float = 10.0  # from the connection, or the first byte, to the end of a request head
    keep_alive_s: int = 5  # from an answer to the first byte of the next request


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
    """Raise the soft limit of open files (RLIMIT_NOFILE) to the hard one; how many there may be."""
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


class _Network:
    """The connections of one network."""

    def __init__(self) -> None:
        self.open = 0
        self.waiting: OrderedDict[Connection, None] = OrderedDict()


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
        self._networks: dict[str, _Network] = {}
        self._network_of: dict[Connection, str] = {}
        self._waiting: OrderedDict[Connection, None] = OrderedDict()
        self._logged: dict[str, tuple[float, int]] = {}  # by limit: when, and how many closed since

    def add(self, connection: Connection, host: str) -> bool:
        """Count a new, waiting connection; False if the limits leave no room for it."""
        key = "" if is_within(host, self._trusted_proxies) else _network_key(host)
        network = self._networks.get(key)
        if key and network and network.open >= self.limits.of_network:
            self._log_reached("network", host, network.open)
            if not self._close_one_of(network.waiting):
                return False
        if len(self._network_of) >= self.limits.of_all:
            self._log_reached("all", host, len(self._network_of))
            if not self._close_one_of(self._waiting):
                return False
        self._network_of[connection] = key
        self._networks.setdefault(key, _Network()).open += 1
        self.note_waiting(connection)
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection; one that is not counted changes nothing."""
        key = self._network_of.get(connection)
        if key is None:
            return
        self.note_at_work(connection)
        del self._network_of[connection]
        self._networks[key].open -= 1
        if not self._networks[key].open:
            del self._networks[key]

    def note_waiting(self, connection: Connection) -> None:
        key = self._network_of.get(connection)
        if key is not None:
            self._waiting[connection] = None
            self._networks[key].waiting[connection] = None

    def note_at_work(self, connection: Connection) -> None:
        key = self._network_of.get(connection)
        if key is not None:
            self._waiting.pop(connection, None)
            self._networks[key].waiting.pop(connection, None)

    def _close_one_of(self, waiting: OrderedDict[Connection, None]) -> bool:
        """Close the one that has been waiting longest, if there is one."""
        longest = next(iter(waiting), None)
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
            network=_shown_network(host),
            closed=closed + 1,
        )


def _network_key(host: str) -> str:
    """Empty for a caller without an address, as on a Unix socket."""
    try:
        return network_of(host)
    except ValueError:
        return ""


def _shown_network(host: str) -> str:
    """Enough to find who fills the server, too little to identify a person."""
    try:
        address = ip_address(host)
    except ValueError:
        return "unknown"
    mapped = getattr(address, "ipv4_mapped", None)
    shown: IPv4Address | Any = mapped or address
    return str(ip_network(f"{shown}/{_SHOWN_BITS[shown.version]}", strict=False))


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which reports to `Connections` and ends slow connections."""

    def __init__(self, *arguments: Any, connections: OpenConnections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._all = connections
        self._head_bytes = 0
        self._is_body_due = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def close(self) -> None:
        """At once; `transport.close` would wait until the other side has read the buffer."""
        self.transport.abort()

    # --- How a connection begins and ends

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._all.add(self, self.client[0] if self.client else ""):
            self._start_head_timer(self._all.limits.head_s)
        else:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_read_timer()
        self._all.remove(self)
        super().connection_lost(exc)

    # --- What comes in

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_waiting:
            return
        if self._is_body_due:
            self._start_head_timer(REST_OF_BODY_S)
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.close()
        self._start_head_timer(self._all.limits.head_s)

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        self._head_bytes = 0
        self._is_body_due = True
        self._all.note_at_work(self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_body_due = False
        super().on_message_complete()

    def _start_head_timer(self, seconds: float) -> None:
        """Unless it is running, so that a byte now and then gains no time."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(seconds, self.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # --- What goes out

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.is_waiting:
            self._all.note_waiting(self)
        if self.transport.is_closing():
            self._start_read_timer()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._start_read_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_read_timer()

    def _start_read_timer(self) -> None:
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(SLOW_READER_S, self.close)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
