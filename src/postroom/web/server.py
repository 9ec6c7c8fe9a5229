"""The HTTP server around the application: uvicorn, started and stopped by us.

Asked to stop, it finishes its requests, so that web processes can be restarted one after another:

    notice      /readyz fails, streams end, and all other responses have
                “Connection: close”, so that a load balancer sends new requests elsewhere
    linger      connections that are already waiting are accepted and their requests read
    the end     the listener is closed, open requests are finished within the grace period

A client that connects at the very moment the listener closes, after the whole notice, is reset
without a response. So are all clients if the process is killed. They may repeat the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import time
from collections.abc import Iterator
from typing import cast

import structlog
import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroom.domain.instance import Vitals
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
LINGER_S = 0.25  # longer than a request takes from a proxy on the same network
LINGER_STEPS = 5  # so that on a busy machine the loop still accepts and reads in between
LOGGED_EVERY_S = 60.0
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
        self._answered = 0  # requests
        self._open = 0
        self._notice_s = notice_s
        limits = limits or limits_within(raise_file_limit())
        connections = OpenConnections(limits, trusted_proxies)
        protocol = functools.partial(LimitedProtocol, connections=connections)
        config = uvicorn.Config(
            self._announcing_stop(app),
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
        log_as_events(logging.getLogger("uvicorn.error"))

    async def run(self, listener: socket.socket) -> None:
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        """Begin the notice: open requests are finished, streams end."""
        if not self._stopping.is_set():  # a second signal changes nothing
            self._stopping.set()
            asyncio.get_running_loop().call_later(self._notice_s, self._end)

    def vitals(self) -> Vitals:
        """Requests answered, and those in progress without the application's own lifespan."""
        return Vitals(done=self._answered, busy=max(0, self._open - 1))

    def _end(self) -> None:
        self._server.should_exit = True

    def _announcing_stop(self, app: ASGIApp) -> ASGIApp:
        """Let every request see that the server is stopping, and every response say so."""

        async def announce(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_closing(message: Message) -> None:
                if message["type"] == "http.response.start" and self._stopping.is_set():
                    message["headers"] = [*message.get("headers", ()), _CLOSE]
                await send(message)

            scope[_STOPPING] = self._stopping
            self._open += 1
            try:
                await app(scope, receive, send_closing)
            finally:
                self._open -= 1
                self._answered += 1

        return announce


def stopping_of(request: Request) -> asyncio.Event:
    """Set when the server is stopping; never set without a `WebServer` around the application."""
    stopping: asyncio.Event = request.scope.setdefault(_STOPPING, asyncio.Event())
    return stopping


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the role, which asks the server to stop."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections in the listener's queue first, because closing it resets them."""
        for _ in range(LINGER_STEPS):
            await asyncio.sleep(LINGER_S / LINGER_STEPS)
        await super().shutdown(sockets)


class _EventHandler(logging.Handler):
    """Turns log lines of uvicorn into our events, at most one a minute of each kind.

    It leaves out tracebacks, which may quote an address or a token.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logged_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        kind = str(record.msg)
        if now < self._logged_at.get(kind, now - LOGGED_EVERY_S) + LOGGED_EVERY_S:
            return
        self._logged_at[kind] = now
        values = {"words": record.getMessage().strip()[:200]}
        if record.exc_info and record.exc_info[0]:
            values["error"] = record.exc_info[0].__name__
        write = log.error if record.levelno >= logging.ERROR else log.warning
        write("http_server", **values)


def log_as_events(logger: logging.Logger) -> None:
    if not any(isinstance(each, _EventHandler) for each in logger.handlers):
        logger.addHandler(_EventHandler())
    logger.propagate = False
