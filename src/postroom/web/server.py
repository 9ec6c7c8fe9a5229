"""The HTTP server around the application: uvicorn, started and stopped by us."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

CONNECTIONS_WAITING_MAX = 512
CONNECTIONS_MAX = 2000  # beyond it 503 at once: each one costs memory
_STOPPING = "postroom.stopping"


class WebServer:
    def __init__(self, app: ASGIApp, grace_s: float) -> None:
        self._stopping = asyncio.Event()
        config = uvicorn.Config(
            self._telling(app),
            lifespan="on",
            log_config=None,
            access_log=False,  # paths carry tokens
            server_header=False,
            proxy_headers=False,
            backlog=CONNECTIONS_WAITING_MAX,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=max(1, int(grace_s)),
        )
        self._server = _Server(config)

    async def run(self, listener: socket.socket) -> None:
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        """Open requests are finished; streams, which would never be, are told to end."""
        self._stopping.set()
        self._server.should_exit = True

    def _telling(self, app: ASGIApp) -> ASGIApp:
        """Every request knows when the server is about to stop."""

        async def told(scope: Scope, receive: Receive, send: Send) -> None:
            scope[_STOPPING] = self._stopping
            await app(scope, receive, send)

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
