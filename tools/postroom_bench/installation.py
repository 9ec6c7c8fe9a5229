"""A whole Postroom in a temporary folder: real processes, a real file, a sink that keeps count."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from postroom import settings
from postroom.act import Act
from postroom.actions.attach_files import attach
from postroom.domain.address import parse_address
from postroom.domain.attachment import NewFile
from postroom.domain.block import Block, BlockDocument, PictureBlock, TextBlock
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message, OnDoubt
from postroom.domain.suppression import Suppression, SuppressionReason, SuppressionScope
from postroom.flow import report, subscribe
from postroom.flow.compose import Draft, compose, give_time
from postroom.records import lists, messages, subscribers, suppressions
from postroom.records.secrets import installation_secret
from postroom.records.suppression_filter import SuppressionFilter
from postroom.settings import Settings
from postroom.wiring import Parts, open_parts
from postroom.writing.layout import html_from_blocks
from postroom.writing.ready_made import ready_made
from postroom_bench.plan import WrittenAs

LIST = "contoso1"
DOMAIN = "contoso.edu"
TITLE = '<html><body><h1>News for {{ name | default("you") }}</h1>\n'
NAMES = ("Ada", "José", "Grace Hopper", "Zoë", "李雷", "O’Brien", "Barbara", "Søren")
PARAGRAPH = "<p>Lecture series and more.</p>\n"
PARAGRAPH_BYTES = 61  # in HTML and in text
CONDITION = '{% if city == "Oslo" %}See you on Monday, {{ email }}.{% else %}See you.{% endif %}'
FRAME_BYTES = 1200  # of a mail without paragraphs: heading, title, foot
MAIL_BYTES = 4096
CLEAR = "smtp://127.0.0.1:{port}?tls=none"
READY_S = 120.0
DUMP_S = 300.0  # a million mails as JSON
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CALLS = re.compile(r'^postroom_storage_calls_total\{kind="(\w+)",role="\w+"\} (\S+)$', re.M)
_COMMITS = re.compile(r"^postroom_storage_commits_total\{.*\} (\S+)$", re.M)


class Process:
    """One child, ended by whoever started it and nobody else."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log  # what it wrote to standard error
        self.printed = printed_beside(log)  # and to standard output: its result

    @property
    def pid(self) -> int:
        return self._process.pid

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

    async def storage_calls(self) -> Counter[str]:
        """How many it made so far, by kind, as its metrics tell."""
        found = _CALLS.findall(await self._metrics())
        return Counter({kind: int(float(number)) for kind, number in found})

    async def commits(self) -> int | None:
        """How many it made so far; None if its engine has no such thing."""
        found = _COMMITS.search(await self._metrics())
        return int(float(found[1])) if found else None

    async def _metrics(self) -> str:
        shown = next(line for line in self.lines() if line.get("event") == "metrics_shown")
        return await asyncio.to_thread(_fetch, f"http://{shown['bind']}/metrics")

    def lines(self) -> Iterator[dict[str, str]]:
        """What it logged."""
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    def peak_mb(self) -> float:
        """The most memory it ever had (Linux)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def now_mb(self) -> float | None:
        """The memory it has now (Linux); None if it has just ended."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return None
        _, found, rest = status.partition("VmRSS:")
        return int(rest.split()[0]) / 1024 if found else None

    async def end(self) -> None:
        if self.is_running:
            await self.kill()


def printed_beside(log: Path) -> Path:
    return log.with_suffix(".out")


def _elsewhere() -> dict[str, str]:
    """The environment without settings: an installation must never meet a service at work."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(settings.PREFIX)
    }


class Installation:
    """Settings, processes, and questions about what arrived."""

    module = "postroom.cli"  # what is started as a role or a command

    def __init__(
        self,
        folder: Path,
        sink_options: tuple[str, ...] = ("--chunking",),
        overrides: Mapping[str, str] | None = None,
        transport: str = CLEAR,
    ) -> None:
        self.folder = folder
        self._sink_options = sink_options
        self._processes: list[Process] = []
        self._transport = transport
        self.port = 0  # of the sink
        self.overrides = dict(overrides or {})

    async def __aenter__(self) -> Self:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "postroom_bench.sink",
            *self._sink_options,
            stdout=asyncio.subprocess.PIPE,
        )
        self._processes.append(Process(process, self.folder / "sink.log"))
        assert process.stdout is not None
        self.port = int(await asyncio.wait_for(process.stdout.readline(), READY_S))
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
            "POSTROOM_TRANSPORT": self._transport.format(port=self.port),
            "POSTROOM_BIND": "127.0.0.1:0",  # any free port
            "POSTROOM_LANES": "4",
            "POSTROOM_LOG_LEVEL": "info",
            "POSTROOM_POLL_S": "0.2",
            "POSTROOM_METRICS_BIND": "127.0.0.1:0",
        } | self.overrides

    def settings(self) -> Settings:
        return settings.load(self.environ, Path("/nonexistent.toml"))

    @asynccontextmanager
    async def parts(self) -> AsyncIterator[Parts]:
        async with open_parts(self.settings(), create_storage=True) as parts:
            yield parts

    async def start(self, *arguments: str, machine: str = "data") -> Process:
        """`postroom …` as a process of its own; of machines each has its folder."""
        log = self.folder / f"{arguments[0]}-{len(self._processes)}.log"
        with log.open("wb") as errors, printed_beside(log).open("wb") as printed:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self.module,
                *arguments,
                cwd=self.folder,
                stdout=printed,
                stderr=errors,
                env=_elsewhere() | self.environ | {"POSTROOM_DATA": str(self.folder / machine)},
            )
        self._processes.append(Process(process, log))
        return self._processes[-1]

    async def people(
        self,
        parts: Parts,
        number: int,
        name: str = "student",
        *,
        list_name: str = LIST,
        refused_once: float = 0.0,
        attributes: int = 0,
    ) -> None:
        """A list with so many verified subscribers, of whom the sink refuses a share at first."""
        now = parts.clock.now()
        mailing_list = MailingList(
            name=list_name, description="News", sender="donotreply@contoso.edu", created_at=now
        )
        await lists.create(parts.storage.tables, mailing_list)
        for start in range(0, number, 49 * 20):
            chunks = [
                [
                    f"{'temp-fail-once' if is_of_share(each, refused_once) else name}{each}"
                    for each in range(first, min(first + 49, number))
                ]
                for first in range(start, min(start + 49 * 20, number), 49)
            ]
            joining = (_join(parts, list_name, chunk, attributes) for chunk in chunks)
            await asyncio.gather(*joining)

    async def suppress(self, parts: Parts, number: int, name: str = "student") -> None:
        """Suppress addresses whose keys are between those of the recipients."""
        secret = await installation_secret(parts.storage.tables)
        now = parts.clock.now()
        for start in range(0, number, suppressions.NEW_MAX):
            some = range(start, min(start + suppressions.NEW_MAX, number))
            keys = [f"{name}{each}x@contoso.edu" for each in some]
            entries = [
                Suppression(
                    key=key,
                    address=key,
                    scope=SuppressionScope.ALL,
                    reason=SuppressionReason.IMPORTED,
                    since=now,
                )
                for key in keys
            ]
            pairs = list(zip(keys, entries, strict=True))
            await suppressions.put_new(parts.storage.tables, secret, pairs, parts.clock.now())
        await SuppressionFilter(parts.storage, parts.clock, secret).save_snapshot()

    async def message(
        self,
        parts: Parts,
        on_doubt: OnDoubt = OnDoubt.RESEND,
        *,
        list_name: str = LIST,
        mail_bytes: int = MAIL_BYTES,
        written_as: WrittenAs = WrittenAs.HTML,
        attachment_bytes: int = 0,
    ) -> str:
        now = parts.clock.now()
        draft = Draft(
            list_name=list_name,
            subject="New lecture series",
            html=_html(written_as, mail_bytes),
            due_at=None if attachment_bytes else now,
            on_doubt=on_doubt,
        )
        act = Act(parts.storage, parts.clock, now, wake=parts.wakeups.ring)
        ref = (await compose(act, draft)).ref
        if attachment_bytes:
            file = NewFile("attachment.bin", random.Random(ref).randbytes(attachment_bytes))
            await attach(act, ref, [file])
            await give_time(act, ref, now)
        return ref

    async def arrived(self) -> Counter[str]:
        """How often the sink took a mail for each address."""
        return Counter(recipient for recipient, _ in (await self.sink_record())["mails"])

    async def sink_record(self) -> dict[str, Any]:
        """All that the sink knows."""
        path = self.folder / "arrived.json"
        await self._ask(f"XDUMP {path}", within_s=DUMP_S)
        record: dict[str, Any] = json.loads(path.read_text())
        return record

    async def arrived_number(self) -> int:
        return (await self.arrived_size())[0]

    async def arrived_size(self) -> tuple[int, int]:
        """How many mails the sink took, and how many octets they had."""
        _, mails, octets = (await self._ask("XCOUNT")).split()
        return int(mails), int(octets)

    async def forget_arrived(self) -> None:
        await self._ask("XRESET")

    async def _ask(self, command: str, within_s: float = READY_S) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            await reader.readline()
            writer.write(command.encode() + b"\r\n")
            return (await asyncio.wait_for(reader.readline(), within_s)).decode()
        finally:
            writer.close()
            await writer.wait_closed()


def _html(written_as: WrittenAs, mail_bytes: int) -> str:
    """The body; in blocks it is a newsletter with a picture, whatever its size."""
    if written_as is WrittenAs.HTML:
        return TITLE + PARAGRAPH * paragraphs(mail_bytes - FRAME_BYTES)
    newsletter = ready_made("newsletter")
    picture = PictureBlock(id="p1", src="https://contoso.edu/picture.png", alt="A lecture hall")
    blocks: list[Block] = [picture, *newsletter.blocks]
    if written_as is WrittenAs.CONDITIONS:
        blocks.append(TextBlock(id="p2", text=CONDITION))
    return html_from_blocks(BlockDocument(blocks=blocks, theme=newsletter.theme))


def paragraphs(size: int) -> int:
    """How many it takes to fill so many octets of a mail."""
    return max(0, round(size / PARAGRAPH_BYTES))


async def _join(parts: Parts, list_name: str, names: list[str], attributes: int) -> None:
    now = parts.clock.now()
    addresses = [parse_address(f"{name}@{DOMAIN}") for name in names]
    newcomers = [
        subscribe.new_subscriber(list_name, address, attributes_of(number, attributes), True, now)
        for number, address in enumerate(addresses)
    ]
    await subscribers.join_together(parts.storage.tables, newcomers, now)


def attributes_of(number: int, attributes: int) -> dict[str, str]:
    """So many attributes of a person; the first is the name."""
    values = {f"field {at}": f"value {number} of {at}" for at in range(2, attributes + 1)}
    return {"name": NAMES[number % len(NAMES)]} | values if attributes else {}


def is_of_share(number: int, share: float) -> bool:
    """Whether this one of 0, 1, 2… is chosen, if a share is, evenly spread."""
    return int((number + 1) * share) > int(number * share)


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=READY_S) as answer:
        return str(answer.read(), "utf-8")


async def books(parts: Parts, ref: str) -> Message:
    """The message with its books counted now."""
    return await report.books_of(
        parts.storage.tables, await messages.read(parts.storage.tables, ref)
    )


async def is_completed(parts: Parts, ref: str) -> bool:
    return (await messages.read(parts.storage.tables, ref)).completed_at is not None


async def until(
    what: Callable[[], Awaitable[bool]], within_s: float, every_s: float = 0.05
) -> None:
    """Look again and again, for a bounded time: other processes give no signal."""
    async with asyncio.timeout(within_s):
        while not await what():  # noqa: ASYNC110
            await asyncio.sleep(every_s)
