"""The HTTP server around the application: uvicorn, started and stopped by us."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

CONNECTIONS_WAITING_MAX = 512
CONNECTIONS_MAX = 2000  # beyond it 503 at once: each one costs memory


class WebServer:
    def __init__(self, app: ASGIApp, grace_s: float) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
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
        self._server.should_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: the role asks the server to stop."""
        yield
