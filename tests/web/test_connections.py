"""Silent and slow connections: they are closed, and everybody else is served."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from ipaddress import ip_network
from typing import Any

import pytest
import structlog
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from postroom.web import connections
from postroom.web.connections import (
    ConnectionLimits,
    OpenConnections,
    limits_within,
    raise_file_limit,
)
from postroom.web.server import WebServer
from tests.clock import PATIENCE_S

HELLO = b"GET /hello HTTP/1.1\r\nHost: test\r\n\r\n"
SLOW = HELLO.replace(b"/hello", b"/slow")
HALF = b"GET /hello HTTP/1.1\r\nHost: te"
LONG_S = 3600.0
CROWD, OTHERS = "127.0.0.2", "127.0.0.3"


class Service:
    """An application whose slow page is answered when the test says so."""

    def __init__(self) -> None:
        self.at_work = asyncio.Semaphore(0)
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        if scope["path"] == "/slow":
            self.at_work.release()
            await self.go_on.wait()
        await PlainTextResponse("hello")(scope, receive, send)


class Caller:
    """One open connection, from an address of the loopback network."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, words: bytes) -> None:
        self._writer.write(words)

    async def ask(self, words: bytes = HELLO) -> bool:
        """Whether there is an answer; False if the connection is closed instead."""
        self.send(words)
        return await self.is_answered()

    async def is_answered(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            try:
                head = await self._reader.readuntil(b"\r\n\r\n")
                await self._reader.readexactly(len("hello"))
            except (asyncio.IncompleteReadError, ConnectionError):
                return False
        return head.startswith(b"HTTP/1.1 200 ")

    async def is_closed(self) -> bool:
        """Wait until the server has closed it without a word."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._reader.read() == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self._writer.close()


class Site:
    def __init__(self, port: int, service: Service, stack: AsyncExitStack) -> None:
        self._port = port
        self._stack = stack
        self.service = service

    async def call(self, host: str = CROWD) -> Caller:
        opened = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(host, 0))
        caller = Caller(*opened)
        self._stack.callback(caller.close)
        return caller

    async def known(self, host: str = CROWD) -> Caller:
        """A caller whom the server has taken in for sure: it was answered once."""
        caller = await self.call(host)
        assert await caller.ask()
        return caller


@asynccontextmanager
async def site(limits: ConnectionLimits, **more: Any) -> AsyncIterator[Site]:
    service = Service()
    async with AsyncExitStack() as stack, serving(service, limits, **more) as port:
        yield Site(port, service, stack)
        service.go_on.set()


@asynccontextmanager
async def serving(app: ASGIApp, limits: ConnectionLimits, **more: Any) -> AsyncIterator[int]:
    """A server for the application, on this port; it is stopped and over at the end."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        web = WebServer(app, grace_s=60, limits=limits, **more)
        running = asyncio.ensure_future(web.run(listener))
        try:
            yield listener.getsockname()[1]
        finally:
            web.stop()
            await asyncio.wait_for(running, PATIENCE_S)


@pytest.fixture
def events() -> Iterator[list[MutableMapping[str, Any]]]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    with structlog.testing.capture_logs() as lines:
        yield lines
    structlog.configure(**before)


def patient(**more: Any) -> ConnectionLimits:
    """Only the number of connections closes any."""
    return ConnectionLimits(head_s=LONG_S, keep_alive_s=int(LONG_S), **more)


# --- How many ---------------------------------------------------------------------------------


async def test_a_full_network_loses_its_longest_silent_connection_and_others_none() -> None:
    async with site(patient(of_network=3)) as there:
        other = await there.known(OTHERS)
        crowd = [await there.known() for _ in range(3)]
        newest = await there.call()
        assert await newest.ask()
        assert await crowd[0].is_closed()
        for caller in (*crowd[1:], newest, other, await there.call(OTHERS)):
            assert await caller.ask()


async def test_a_connection_that_never_sent_a_request_goes_for_one_that_does() -> None:
    async with site(patient(of_network=2)) as there:
        silent = [await there.call() for _ in range(20)]
        silent[-1].send(HALF)
        assert await (await there.call()).ask()
        assert await silent[0].is_closed()


async def test_a_request_at_work_is_never_cut_off_for_a_newcomer() -> None:
    async with site(patient(of_network=2)) as there:
        busy = [await there.call() for _ in range(2)]
        for caller in busy:
            caller.send(SLOW)
            await there.service.at_work.acquire()
        assert not await (await there.call()).ask()
        assert await (await there.call(OTHERS)).ask()
        there.service.go_on.set()
        for caller in busy:
            assert await caller.is_answered()
        assert await (await there.call()).ask()


async def test_a_full_server_closes_whoever_has_been_silent_longest() -> None:
    async with site(patient(of_all=3, of_network=100)) as there:
        crowd = [await there.known() for _ in range(3)]
        assert await (await there.call(OTHERS)).ask()
        assert await crowd[0].is_closed()
        assert await crowd[2].ask()


async def test_a_trusted_proxy_is_not_limited() -> None:
    proxies = (ip_network(f"{CROWD}/32"),)
    async with site(patient(of_network=1), trusted_proxies=proxies) as there:
        proxy = [await there.known() for _ in range(5)]
        for caller in proxy:
            assert await caller.ask()
        others = [await there.known(OTHERS) for _ in range(2)]
        assert await others[0].is_closed()


async def test_a_limit_that_is_reached_is_one_event_with_no_whole_address(
    events: list[MutableMapping[str, Any]],
) -> None:
    async with site(patient(of_network=1)) as there:
        for _ in range(5):
            await there.known()
    reached = [event for event in events if event["event"] == "connection_limit_reached"]
    assert [(event["limit"], event["network"]) for event in reached] == [
        ("network", "127.0.0.0/24")
    ]
    assert CROWD not in str(events)


async def test_what_the_http_server_says_is_an_event_and_not_one_for_each_caller(
    events: list[MutableMapping[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("uvicorn.error").handlers.clear()
    async with site(patient()) as there:
        for _ in range(3):
            assert not await (await there.call()).ask(b"no such thing as HTTP\r\n\r\n")
    said = [event for event in events if event["event"] == "http_server"]
    assert [event["words"] for event in said] == ["Invalid HTTP request received."]
    assert "Invalid" not in capfd.readouterr().err


class Line:
    """A connection that only remembers whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_the_next_event_a_minute_later_says_how_many_were_closed(
    events: list[MutableMapping[str, Any]],
) -> None:
    now = 1000.0
    open_ones = OpenConnections(ConnectionLimits(of_network=1), clock=lambda: now)
    for _ in range(4):
        open_ones.add(Line(), "192.0.2.7")
    now += connections.LOGGED_EVERY_S
    open_ones.add(Line(), "192.0.2.7")
    assert [event["closed"] for event in events] == [1, 3]


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("2001:db8::1", "2001:db8::2", True),  # one customer has a /64
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("", "", False),  # a Unix socket
    ],
)
def test_what_counts_as_one_network(first: str, second: str, is_one: bool) -> None:
    open_ones, line = OpenConnections(ConnectionLimits(of_network=1)), Line()
    assert open_ones.add(line, first)
    assert open_ones.add(Line(), second)
    assert line.is_closed is is_one


def test_who_is_gone_is_forgotten() -> None:
    open_ones, line = OpenConnections(ConnectionLimits(of_network=1, of_all=1)), Line()
    for _ in range(3):
        open_ones.add(line, "192.0.2.7")
        open_ones.note_at_work(line)
        open_ones.remove(line)
        open_ones.remove(line)
    assert not line.is_closed


# --- How long ---------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [b"", HALF, b"\r\n"])
async def test_who_sends_no_whole_head_in_time_is_closed(words: bytes) -> None:
    async with site(ConnectionLimits(head_s=0.05)) as there:
        silent = await there.call()
        silent.send(words)
        assert await silent.is_closed()


@pytest.mark.parametrize("words", [HALF, b"\r\n"])
async def test_half_a_head_after_an_answer_is_closed_as_well(words: bytes) -> None:
    async with site(ConnectionLimits(head_s=0.05, keep_alive_s=int(LONG_S))) as there:
        caller = await there.known()
        caller.send(words)
        assert await caller.is_closed()


async def test_the_rest_of_a_body_that_nobody_reads_has_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "REST_OF_BODY_S", 0.05)
    async with site(patient()) as there:
        caller = await there.call()
        assert await caller.ask(HELLO.replace(b"\r\n\r\n", b"\r\nContent-Length: 9999\r\n\r\n"))
        caller.send(b"more")
        assert await caller.is_closed()


async def test_a_request_may_take_longer_than_its_head() -> None:
    async with site(ConnectionLimits(head_s=0.05)) as there:
        busy = await there.call()
        busy.send(SLOW)
        await there.service.at_work.acquire()
        for _ in range(2):  # silent since later, and over earlier
            assert await (await there.call()).is_closed()
        there.service.go_on.set()
        assert await busy.is_answered()


async def test_a_head_without_end_is_not_kept_in_memory() -> None:
    async with site(patient()) as there:
        caller = await there.call()
        caller.send(HELLO[:-2] + b"X: y\r\n" * connections.HEAD_BYTES_MAX)
        assert await caller.is_closed()


async def test_who_does_not_read_a_long_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOW_READER_S", 0.05)
    is_over = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await Service()(scope, receive, send)
            return
        gone = asyncio.ensure_future(disconnected(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})
        is_over.set()

    async with AsyncExitStack() as stack, serving(endless, patient()) as port:
        caller = await Site(port, Service(), stack).call()
        caller.send(HELLO)
        async with asyncio.timeout(PATIENCE_S):
            await is_over.wait()


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# --- What the machine allows ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "of_all", "of_network"),
    [(1_000_000, 2000, 200), (4096, 2000, 200), (1024, 512, 128), (300, 150, 37), (10, 5, 1)],
)
def test_there_is_room_for_storage_beside_all_connections(
    files: int, of_all: int, of_network: int
) -> None:
    limits = limits_within(files)
    assert (limits.of_all, limits.of_network) == (of_all, of_network)


def test_the_soft_limit_of_files_is_raised_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resource = pytest.importorskip("resource")
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: asked.append(limits))
    assert raise_file_limit() == 4096
    assert asked == [(4096, 4096)]


def test_a_hard_limit_that_cannot_be_set_leaves_the_soft_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resource = pytest.importorskip("resource")

    def refuse(_which: int, _limits: tuple[int, int]) -> None:
        raise ValueError("not permitted")

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_file_limit() == 256
