"""The HTTP server of a provider stub, its account of mails, and its faults.

Addresses choose the fault of a mail, as in the SMTP sink; `…-once@` only the first time:

    temp-fail@          refused for now             bad@      refused, and the address is named
    perm-fail@          refused for good            slow@     answered after release()
    drop-after-accept@  accepted, then no answer
"""

from __future__ import annotations

import asyncio
import json
import random
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl

SCRIPTS = ("temp-fail", "perm-fail", "drop-after-accept", "slow", "bad")
HUGE_BYTES = 4 * 1024 * 1024
REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


class StubRequest(NamedTuple):
    method: str
    target: str  # path and query, as received
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2]))


class StubReply(NamedTuple):
    status: int
    answer: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    is_lost: bool = False  # the connection is closed instead

    def written(self) -> bytes:
        body = b"" if self.answer is None else json.dumps(self.answer).encode()
        head = f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Status')}\r\n"
        headers = {"Content-Length": str(len(body)), "Content-Type": "application/json"}
        lines = [f"{name}: {value}\r\n" for name, value in {**headers, **self.headers}.items()]
        return (head + "".join(lines) + "\r\n").encode() + body


class AcceptedMail(NamedTuple):
    """What the provider would deliver, after its own merge."""

    token: str
    recipient: str
    subject: str
    text: str
    html: str | None
    headers: dict[str, str]
    provider_id: str
    attachments: tuple[tuple[str, str, bytes], ...] = ()  # name, type and content


class BadCall(Exception):
    """Our request breaks the published schema; the words say how."""


class Misbehaviour(Enum):
    """What the server does to every call instead of answering it."""

    GARBAGE = b"\x00\xff\x13 this is no HTTP\r\n\r\n"
    EMPTY = b""
    HALF_HEAD = b"HTTP/1.1 202 Acc"
    SHORT_BODY = b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"half"'
    WRONG_JSON = b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n["nonsense"]\n'
    NO_JSON = b"HTTP/1.1 500 Oh\r\nContent-Length: 10\r\n\r\n<h1>no</h1"
    REDIRECT = b"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    HUGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % HUGE_BYTES
    SILENT = None


@dataclass
class Faults:
    """Faults by chance, one draw a call."""

    seed: int = 0
    throttled: float = 0.0
    error: float = 0.0
    lost: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def draw(self) -> str:
        chance = self._random.random()
        for name in ("throttled", "error", "lost"):
            chance -= getattr(self, name)
            if chance < 0:
                return name
        return ""

    def heads(self) -> bool:
        return self._random.random() < 0.5


@dataclass
class ProviderStub(ABC):
    faults: Faults = field(default_factory=Faults)
    misbehaviour: Misbehaviour | None = None
    accepted: list[AcceptedMail] = field(default_factory=list)
    calls: int = 0  # that carried mails
    bad_calls: list[str] = field(default_factory=list)  # what our own requests did wrong
    doubted: set[str] = field(default_factory=set)  # recipients of calls whose reply was lost
    now_s: float = 0.0  # for the headers that say when to come back
    url: str = ""
    _attempts: Counter[str] = field(default_factory=Counter)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.is_waiting = asyncio.Event()  # a slow…@ mail waits for release()
        self._released = asyncio.Event()

    @abstractmethod
    def answer(self, request: StubRequest) -> StubReply:
        """Answer a request; BadCall if it breaks the schema."""

    @abstractmethod
    def refusal(self, words: str) -> StubReply:
        """The provider's form of a 400."""

    @abstractmethod
    def events(self, kind: str = "delivered") -> list[dict[str, Any]]:
        """The provider's events for every accepted mail, as its webhook would send them."""

    def script(self, address: str) -> str:
        """What the address asks for; empty to accept."""
        name = next((name for name in SCRIPTS if address.startswith(name)), "")
        if not name:
            return ""
        self._attempts[address] += 1
        return "" if f"{name}-once" in address and self._attempts[address] > 1 else name

    def release(self) -> None:
        self._released.set()

    def arrived(self) -> Counter[str]:
        return Counter(mail.recipient for mail in self.accepted)

    def lose(self, recipients: list[str]) -> StubReply:
        self.doubted.update(recipients)
        return StubReply(0, is_lost=True)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=64 * 1024**2)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.release()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; returns whether the connection stays open."""
        request = await _read(reader)
        if self.misbehaviour is not None:
            await self._misbehave(self.misbehaviour, writer)
            return False
        try:
            reply = self.answer(request)
        except BadCall as bad:
            self.bad_calls.append(str(bad))
            reply = self.refusal(str(bad))
        if b"slow@" in request.body and not self._released.is_set():
            self.is_waiting.set()
            await self._released.wait()
        if reply.is_lost:
            return False
        writer.write(reply.written())
        await writer.drain()
        return True

    async def _misbehave(self, how: Misbehaviour, writer: asyncio.StreamWriter) -> None:
        if how.value is None:
            await self._released.wait()
            return
        writer.write(how.value)
        if how is Misbehaviour.HUGE:
            writer.write(b"x" * HUGE_BYTES)
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> StubRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    pairs = [line.split(":", 1) for line in lines]
    headers = {name.lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return StubRequest(method, target, headers, body)


def decoded(request: StubRequest) -> dict[str, Any]:
    try:
        answer = json.loads(request.body)
    except ValueError as error:
        raise BadCall("the body is no JSON") from error
    if not isinstance(answer, dict):
        raise BadCall("the body is no object")
    return answer


def require(is_right: object, words: str) -> None:
    if not is_right:
        raise BadCall(words)


def only_keys(given: dict[str, Any], allowed: set[str], where: str) -> None:
    require(given.keys() <= allowed, f"{where}: unknown {sorted(given.keys() - allowed)}")
