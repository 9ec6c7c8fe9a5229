"""Two real webs on one file are restarted in turn under load: every request has its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from postroom.domain.address import parse_address
from postroom.records import keys, subscribers
from postroom_bench.installation import LIST, Installation, Process, until

CALLERS = 6
CHECK_EVERY_S = 0.1
NOTICE_S = 3  # many times what the balancer needs to notice, on a busy machine too
WITHIN_S = 120.0
ASK_EVERY_S = 0.02  # a caller's pause; without it all CPU goes into asking
ANSWERS_BETWEEN = 50  # so many before the next web is stopped

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Balancer:
    """Sends each request to a web that is ready, as far as it knows from a moment ago."""

    ports: list[int]
    ready: set[int] = field(default_factory=set)
    answers: int = 0
    lost: list[str] = field(default_factory=list)
    _turns: count[int] = field(default_factory=count)

    async def keep_checking(self) -> None:
        while True:
            for port in self.ports:
                if await self._is_ready(port):
                    self.ready.add(port)
                else:
                    self.ready.discard(port)
            await pause(CHECK_EVERY_S)

    async def _is_ready(self, port: int) -> bool:
        try:
            line = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        try:
            return (await ask(line, b"GET /readyz HTTP/1.1\r\nHost: test\r\n\r\n"))[0] == 200
        except (OSError, EOFError, TimeoutError):
            return False
        finally:
            line[1].close()

    async def send(self, request: bytes, kept: dict[int, Line], *, is_fresh: bool) -> int:
        """The status of the answer; on a line of its own, or on one kept from before."""
        await until(lambda: _is(bool(self.ready)), within_s=WITHIN_S)
        ready = sorted(self.ready)
        port = ready[next(self._turns) % len(ready)]
        for gone in kept.keys() - self.ready:
            kept.pop(gone)[1].close()
        line = None if is_fresh else kept.pop(port, None)
        try:
            line = line or await asyncio.open_connection("127.0.0.1", port)
            status, is_closed = await ask(line, request)
        except (OSError, EOFError, TimeoutError) as error:
            self.lost.append(repr(error))
            if line:
                line[1].close()
            return 0
        if is_fresh or is_closed:
            line[1].close()
        else:
            kept[port] = line
        self.answers += 1
        return status


async def ask(line: Line, request: bytes) -> tuple[int, bool]:
    """The status, and whether the line is closed after it."""
    reader, writer = line
    writer.write(request)
    async with asyncio.timeout(WITHIN_S):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length: ")[2].split(b"\r\n")[0]
        await reader.readexactly(int(length))
    return int(head.split(b" ", 2)[1]), b"connection: close" in head


@dataclass
class Visitors:
    """Programs that sign people up, and people who look at pages, one after the other."""

    balancer: Balancer
    key: str
    is_over: bool = False
    signed_up: list[str] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    async def visit(self, name: str) -> None:
        kept: dict[int, Line] = {}
        for number in count():
            if self.is_over:
                break
            address = f"{name}-{number}@contoso.edu"
            is_page = number % 3 == 0
            request = page() if is_page else self._sign_up(address)
            status = await self.balancer.send(request, kept, is_fresh=number % 4 < 2)
            if status and status != (200 if is_page else 202):
                self.refused.append(status)
            if status == 202:
                self.signed_up.append(address)
            await pause(ASK_EVERY_S)
        for _, writer in kept.values():
            writer.close()

    def _sign_up(self, address: str) -> bytes:
        body = json.dumps({"list": LIST, "email": address}).encode()
        head = (
            "POST /api/v1/subscribe HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def pause(seconds: float) -> None:
    nobody_sets_it = asyncio.Event()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await nobody_sets_it.wait()


def page() -> bytes:
    return b"GET /admin/sign-in HTTP/1.1\r\nHost: test\r\n\r\n"


@asynccontextmanager
async def visiting(visitors: Visitors) -> AsyncIterator[None]:
    """All of them, and the balancer's look at the webs, until the end."""
    tasks = [asyncio.create_task(visitors.visit(f"v{number}")) for number in range(CALLERS)]
    try:
        yield
    finally:
        visitors.is_over = True
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(*tasks)


@pytest.mark.timeout(900)
async def test_webs_restarted_in_turn_lose_no_request(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    ports = [unused_tcp_port_factory(), unused_tcp_port_factory()]
    balancer = Balancer(ports)
    async with Installation(tmp_path) as installation, installation.parts() as parts:
        await installation.people(parts, 1)
        key, _ = await keys.create(parts.storage.tables, "program", (), parts.clock.now())
        webs = {port: await start(installation, port) for port in ports}
        checking = asyncio.create_task(balancer.keep_checking())
        await until(lambda: _is(len(balancer.ready) == 2), within_s=WITHIN_S)
        visitors = Visitors(balancer, key)
        async with visiting(visitors):
            for port in [*ports, *ports]:
                await answers_come(balancer)
                assert await webs[port].terminate(WITHIN_S) == 0, webs[port].log.read_text()
                webs[port] = await start(installation, port)
                await until(lambda: _is(len(balancer.ready) == 2), within_s=WITHIN_S)
            await answers_come(balancer)
        checking.cancel()
        assert (balancer.lost, visitors.refused) == ([], [])
        tables = parts.storage.tables
        for address in visitors.signed_up:
            assert await subscribers.find(tables, LIST, parse_address(address).storage_key)


async def start(installation: Installation, port: int) -> Process:
    installation.overrides["POSTROOM_BIND"] = f"127.0.0.1:{port}"
    installation.overrides["POSTROOM_STOP_NOTICE_S"] = str(NOTICE_S)
    return await installation.start("web")


async def answers_come(balancer: Balancer) -> None:
    """Each web is under load."""
    enough = balancer.answers + ANSWERS_BETWEEN
    await until(lambda: _is(balancer.answers >= enough or bool(balancer.lost)), within_s=WITHIN_S)


async def _is(value: bool) -> bool:
    return value
