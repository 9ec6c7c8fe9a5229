"""A web process that is asked to stop: it gives notice and answers whoever has connected."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import pytest_asyncio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from postroom.flow.render import Site
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.wakeup import WakeUps
from postroom.web import server
from postroom.web.app import create_app
from postroom.web.context import WebContext
from postroom.web.server import WebServer
from tests.clock import PATIENCE_S, MovableClock

WAITING = 30
HELLO = b"GET /static/public.css HTTP/1.1\r\nHost: test\r\n\r\n"
READY = b"GET /readyz HTTP/1.1\r\nHost: test\r\n\r\n"


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> ASGIApp:
    clock = MovableClock(short_s=-1.0)
    return create_app(
        WebContext(
            MemoryStorage(clock, STORAGE_NAMES), clock, WakeUps(tmp_path), Site("http://test", "s")
        )
    )


@asynccontextmanager
async def running(app: ASGIApp, notice_s: float) -> AsyncIterator[tuple[WebServer, int]]:
    """A server on a port of its own; it is stopped and over at the end."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        web = WebServer(app, grace_s=60, notice_s=notice_s)
        serving = asyncio.ensure_future(web.run(listener))
        port = listener.getsockname()[1]
        assert (await asked(port, HELLO))[0] == 200
        try:
            yield web, port
        finally:
            web.stop()
            web._end()
            async with asyncio.timeout(PATIENCE_S):
                await serving


async def asked(port: int, request: bytes) -> tuple[int, bytes]:
    """Status and head of an answer, on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await answer(reader)
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(PATIENCE_S):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length: ")[2].split(b"\r\n")[0]
        await reader.readexactly(int(length or 0))
    return int(head.split()[1]), head


async def test_within_the_notice_it_answers_and_says_that_it_is_not_ready(app: ASGIApp) -> None:
    async with running(app, notice_s=60) as (web, port):
        status, head = await asked(port, READY)
        assert status == 200
        assert b"connection: close" not in head
        web.stop()
        web.stop()  # a second signal changes nothing
        assert (await asked(port, READY))[0] == 503
        status, head = await asked(port, HELLO)
        assert status == 200
        assert b"connection: close" in head


async def test_a_kept_connection_gets_its_answer_and_is_closed_with_it(app: ASGIApp) -> None:
    async with running(app, notice_s=60) as (web, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HELLO)
        assert (await answer(reader))[0] == 200
        web.stop()
        writer.write(HELLO)
        assert (await answer(reader))[0] == 200
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()


async def test_a_connection_that_waits_when_the_notice_ends_is_answered(
    app: ASGIApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty are in the listener's queue, their requests sent, when the server shuts down."""
    shut_down = server._Server.shutdown
    all_in = asyncio.Event()
    waiting = list[socket.socket]()

    async def shut_down_after_these(
        self: server._Server, sockets: list[socket.socket] | None = None
    ) -> None:
        assert sockets
        for _ in range(WAITING):
            waiting.append(socket.create_connection(sockets[0].getsockname()))
            waiting[-1].sendall(HELLO)
        all_in.set()
        await shut_down(self, sockets)

    monkeypatch.setattr(server._Server, "shutdown", shut_down_after_these)
    async with running(app, notice_s=0) as (web, _port):
        web.stop()
        async with asyncio.timeout(PATIENCE_S):
            await all_in.wait()
        for each in waiting:
            reader, writer = await asyncio.open_connection(sock=each)
            status, head = await answer(reader)
            assert status == 200
            assert b"connection: close" in head
            writer.close()


async def test_a_request_at_work_when_it_stops_is_finished() -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
        elif scope["path"] == "/slow":
            at_work.set()
            await go_on.wait()
            await PlainTextResponse("done")(scope, receive, send)
        else:
            await PlainTextResponse("ok")(scope, receive, send)

    async with running(slow, notice_s=0) as (web, port):
        reading = asyncio.ensure_future(asked(port, HELLO.replace(b"/static/public.css", b"/slow")))
        await at_work.wait()
        web.stop()
        go_on.set()
        assert (await reading)[0] == 200
