"""The roles of the soak, started again when they end, and what they use and log."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from postroom_bench.installation import Installation, Process

ROLES = ("web", "scheduler", "sender", "sender")


class MemorySample(NamedTuple):
    at_s: float
    mb: float


@dataclass
class RunningRole:
    name: str  # such as sender-2
    role: str
    process: Process
    started_s: float
    memory: list[MemorySample] = field(default_factory=list)


class LogLine(NamedTuple):
    at: str  # ISO
    role: str
    level: str
    event: str
    text: str


@dataclass
class Roles:
    """Every process that ever ran, the running ones among them."""

    installation: Installation
    begun_s: float
    machine: str = "data"  # the folder for their journals
    running: list[RunningRole] = field(default_factory=list)
    ended: list[RunningRole] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)  # of those that nobody killed

    async def start_all(self) -> None:
        for number, role in enumerate(ROLES):
            await self._start(f"{role}-{number}", role)

    async def kill(self, role: str) -> None:
        """kill -9 of one of this role, which is started again at once, as by a service manager."""
        victim = next(each for each in self.running if each.role == role)
        await victim.process.kill()
        await self._replace(victim)

    async def look(self) -> None:
        """Note what each uses, and replace whoever ended by itself."""
        for each in list(self.running):
            if not each.process.is_running:
                self.exits.append(f"{each.name} ended by itself: {each.process.log.name}")
                await self._replace(each)
            elif (mb := each.process.now_mb()) is not None:
                each.memory.append(MemorySample(time.monotonic() - self.begun_s, mb))

    async def _replace(self, each: RunningRole) -> None:
        self.running.remove(each)
        self.ended.append(each)
        await self._start(each.name, each.role)

    async def _start(self, name: str, role: str) -> None:
        process = await self.installation.start(role, machine=self.machine)
        self.running.append(RunningRole(name, role, process, time.monotonic() - self.begun_s))

    def log_lines(self) -> list[LogLine]:
        """Everything that was logged as a warning or worse, and lines that are no log at all."""
        return [
            line
            for each in self.ended + self.running
            for line in _lines(each.name, each.process.log)
        ]


def _lines(role: str, log: Path) -> list[LogLine]:
    found: list[LogLine] = []
    last_at = ""
    for text in log.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
            last_at = line.get("timestamp", last_at)
            level, event = line.get("level", ""), str(line.get("event", ""))
        except (ValueError, AttributeError):
            level, event = "unstructured", text[:80]
        if level not in ("debug", "info"):
            found.append(LogLine(last_at, role, level, event, text[:400]))
    return found
