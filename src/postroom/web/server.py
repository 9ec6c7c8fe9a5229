"""The HTTP server around the application: uvicorn, started and stopped by us.

Asked to stop, it loses no request, so that webs can be restarted in turn:

    notice      /readyz fails and streams end, all else is answered, each answer with
                “Connection: close”: whoever sends requests here learns to send them elsewhere
    linger      nobody new can connect; who has connected is taken in and answered
    the end     the listener is closed, open requests are finished, for what is left of the grace

Killed instead, requests at work get no answer; those who sent them may repeat them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import logging
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import cast

import structlog
import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroom.web.connections import (
    CONNECTIONS_WAITING_MAX,
    ConnectionLimits,
    LimitedProtocol,
    OpenConnections,
    limits_within,
    raise_file_limit,
)
from postroom.web.context import Networks

log = structlog.get_logger("web")
LINGER_S = 0.25  # more than a handshake, and what follows it, takes on the way to a proxy
LINGER_LOOKS = 5  # the loop takes in who is waiting at least so often
SAID_EVERY_S = 60.0
_STOPPING = "postroom.stopping"
_CLOSE = (b"connection", b"close")


class WebServer:
    """`notice_s` is a part of `grace_s`."""

    def __init__(
        self,
        app: ASGIApp,
        grace_s: float,
        notice_s: float = 0.0,
        *,
        limits: ConnectionLimits | None = None,
        trusted_proxies: Networks = (),
    ) -> None:
        self._stopping = asyncio.Event()
        self._notice_s = notice_s
        limits = limits or limits_within(raise_file_limit())
        connections = OpenConnections(limits, trusted_proxies)
        protocol = functools.partial(LimitedProtocol, connections=connections)
        config = uvicorn.Config(
            self._telling(app),
            http=cast("type[asyncio.Protocol]", protocol),  # uvicorn only calls it
            lifespan="on",
            log_config=None,
            access_log=False,  # paths carry tokens
            server_header=False,
            proxy_headers=False,
            backlog=CONNECTIONS_WAITING_MAX,
            timeout_keep_alive=limits.keep_alive_s,
            timeout_graceful_shutdown=max(1, int(grace_s - notice_s)),
        )
        self._server = _Server(config)
        tell_as_events(logging.getLogger("uvicorn.error"))

    async def run(self, listener: socket.socket) -> None:
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        """Open requests are finished; streams, which would never be, are told to end."""
        if not self._stopping.is_set():  # a second signal does not begin anew
            self._stopping.set()
            asyncio.get_running_loop().call_later(self._notice_s, self._end)

    def _end(self) -> None:
        self._server.should_exit = True

    def _telling(self, app: ASGIApp) -> ASGIApp:
        """Every request knows when the server is about to stop, and every answer says so."""

        async def told(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_on(message: Message) -> None:
                if message["type"] == "http.response.start" and self._stopping.is_set():
                    message["headers"] = [*message.get("headers", ()), _CLOSE]
                await send(message)

            scope[_STOPPING] = self._stopping
            await app(scope, receive, send_on)

        return told


def stopping_of(request: Request) -> asyncio.Event:
    """Set when the server stops; never, where no server of ours is around the application."""
    stopping: asyncio.Event = request.scope.setdefault(_STOPPING, asyncio.Event())
    return stopping


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: the role asks the server to stop."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closing a listener resets whoever waits in its queue: first there must be nobody."""
        for listener in sockets or []:
            refuse_newcomers(listener)
        for _ in range(LINGER_LOOKS):
            await asyncio.sleep(LINGER_S / LINGER_LOOKS)
        await super().shutdown(sockets)


# --- The server's own words -----------------------------------------------------------------------


class _AsEvents(logging.Handler):
    """Log lines of uvicorn as events of ours, at most one a minute of each kind.

    Without tracebacks: they may quote an address or a token.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now, kind = time.monotonic(), str(record.msg)
        if now < self._told_at.get(kind, now - SAID_EVERY_S) + SAID_EVERY_S:
            return
        self._told_at[kind] = now
        words = record.getMessage().strip()[:200]
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        tell = log.error if record.levelno >= logging.ERROR else log.warning
        tell("http_server", words=words, **({"error": error} if error else {}))


def tell_as_events(logger: logging.Logger) -> None:
    if not any(isinstance(each, _AsEvents) for each in logger.handlers):
        logger.addHandler(_AsEvents())
    logger.propagate = False


# --- Nobody new -----------------------------------------------------------------------------------

_SO_ATTACH_FILTER = 26  # Linux; socket.SO_ATTACH_FILTER is missing from the standard library
# A classic BPF program over each TCP segment that is meant for the listener (linux/filter.h): as
# (code, jump if true, jump if false, operand).
_DROP_SYN = (
    (0x30, 0, 0, 13),  # load byte 13, the flags
    (0x45, 0, 1, 0x02),  # is SYN among them?
    (0x06, 0, 0, 0),  # yes: drop it
    (0x06, 0, 0, 0xFFFFFFFF),  # no: the rest of a handshake that has begun
)


def refuse_newcomers(listener: socket.socket) -> None:
    """Let nobody begin to connect, while who has begun is taken in (Linux; elsewhere nothing).

    A SYN that is dropped is sent again a second later, and then refused: nobody had sent a request.
    """
    if sys.platform != "linux":
        return
    program = b"".join(struct.pack("=HBBI", *step) for step in _DROP_SYN)
    kept = ctypes.create_string_buffer(program)
    header = struct.pack("@HP", len(_DROP_SYN), ctypes.addressof(kept))
    with contextlib.suppress(OSError):  # a kernel without filters: what is left is the notice
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, header)
