"""A whole Postroom in a temporary folder: real processes, a real file, a sink that keeps count."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from postroom import settings, wiring
from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message, OnDoubt
from postroom.flow import report, subscribe
from postroom.flow.compose import Draft, compose
from postroom.records import lists, messages, subscribers
from postroom.settings import Settings
from postroom.wiring import Parts

LIST = "contoso1"
BODY = "<html><body><h1>News for {{ email }}</h1>" + "<p>Lecture series and more.</p>" * 60
READY_S = 20.0
DUMP_S = 300.0  # a million mails as JSON
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Process:
    """One child, ended by whoever started it and nobody else."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def kill(self) -> None:
        """kill -9: no chance to say good-bye."""
        self._process.kill()
        await self._process.wait()

    def ask_to_stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    async def terminate(self, within_s: float) -> int:
        self.ask_to_stop()
        async with asyncio.timeout(within_s):
            return await self._process.wait()

    async def wait(self, within_s: float) -> int:
        async with asyncio.timeout(within_s):
            return await self._process.wait()

    def cpu_s(self) -> float:
        """CPU time so far, user and system (Linux)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def peak_mb(self) -> float:
        """The most memory it ever had (Linux)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    async def end(self) -> None:
        if self.is_running:
            await self.kill()


class House:
    """Settings, processes, and questions about what arrived."""

    def __init__(self, folder: Path, sink_options: tuple[str, ...] = ("--chunking",)) -> None:
        self.folder = folder
        self._sink_options = sink_options
        self._processes: list[Process] = []
        self._port = 0
        self.overrides: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "postroom.bench.sink",
            *self._sink_options,
            stdout=asyncio.subprocess.PIPE,
        )
        self._processes.append(Process(process, self.folder / "sink.log"))
        assert process.stdout is not None
        self._port = int(await asyncio.wait_for(process.stdout.readline(), READY_S))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            await process.end()

    @property
    def environ(self) -> dict[str, str]:
        return {
            "POSTROOM_STORAGE": f"sqlite:///{self.folder / 'postroom.db'}",
            "POSTROOM_DATA": str(self.folder / "data"),
            "POSTROOM_TRANSPORT": f"smtp://127.0.0.1:{self._port}?tls=none",
            "POSTROOM_BIND": "127.0.0.1:0",  # any free port
            "POSTROOM_LANES": "4",
            "POSTROOM_LOG_LEVEL": "info",
            "POSTROOM_POLL_S": "0.2",
        } | self.overrides

    def settings(self) -> Settings:
        return settings.load(self.environ, Path("/nonexistent.toml"))

    @asynccontextmanager
    async def parts(self) -> AsyncIterator[Parts]:
        async with wiring.parts(self.settings()) as parts:
            yield parts

    async def start(self, *arguments: str) -> Process:
        """`postroom …` as a process of its own."""
        log = self.folder / f"{arguments[0]}-{len(self._processes)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "postroom.cli",
                *arguments,
                cwd=self.folder,
                stdout=output,
                stderr=output,
                env=os.environ | self.environ,
            )
        self._processes.append(Process(process, log))
        return self._processes[-1]

    async def people(self, parts: Parts, number: int, name: str = "student") -> None:
        """A list with so many verified subscribers."""
        now = parts.clock.now()
        mailing_list = MailingList(
            name=LIST, description="News", sender="donotreply@contoso.edu", created_at=now
        )
        await lists.create(parts.storage.tables, mailing_list)
        for start in range(0, number, 49 * 20):
            chunks = [
                range(first, min(first + 49, number))
                for first in range(start, min(start + 49 * 20, number), 49)
            ]
            await asyncio.gather(*(_join(parts, chunk, name) for chunk in chunks))

    async def message(self, parts: Parts, on_doubt: OnDoubt = OnDoubt.RESEND) -> str:
        now = parts.clock.now()
        draft = Draft(
            list_name=LIST, subject="New lecture series", html=BODY, due_at=now, on_doubt=on_doubt
        )
        message = await compose(parts.storage, draft, now)
        parts.bells.ring("scheduler")
        return message.ref

    async def arrived(self) -> Counter[str]:
        """How often the sink took a mail for each address."""
        path = self.folder / "arrived.json"
        await self._ask(f"XDUMP {path}", within_s=DUMP_S)
        mails = json.loads(path.read_text())["mails"]
        return Counter(recipient for recipient, _ in mails)

    async def arrived_number(self) -> int:
        return int((await self._ask("XSTAT")).split()[1])

    async def _ask(self, command: str, within_s: float = READY_S) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await reader.readline()
            writer.write(command.encode() + b"\r\n")
            return (await asyncio.wait_for(reader.readline(), within_s)).decode()
        finally:
            writer.close()
            await writer.wait_closed()


async def _join(parts: Parts, numbers: range, name: str) -> None:
    now = parts.clock.now()
    newcomers = [
        subscribe.new_subscriber(LIST, parse_address(f"{name}{number}@contoso.edu"), {}, True, now)
        for number in numbers
    ]
    await subscribers.join_together(parts.storage.tables, newcomers, now)


async def books(parts: Parts, ref: str) -> Message:
    """The message with its books counted now."""
    return await report.books_of(
        parts.storage.tables, await messages.read(parts.storage.tables, ref)
    )


async def until(
    what: Callable[[], Awaitable[bool]], within_s: float, every_s: float = 0.05
) -> None:
    """Look again and again, for a bounded time: other processes give no signal."""
    async with asyncio.timeout(within_s):
        while not await what():  # noqa: ASYNC110
            await asyncio.sleep(every_s)
