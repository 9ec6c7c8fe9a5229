"""How soon a confirmation leaves after a sign-up, idle and while a message goes out.

Real processes: a scheduler, a sender and one web role on one SQLite file. People sign up at a fixed
rate whatever the answers take, first with nothing else to do, then beside a message to everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from postroom.records import counts, keys
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.wiring import Parts
from postroom_bench.installation import DOMAIN, LIST, Installation, until
from postroom_bench.pages import ROLES, answer, has_begun, is_listening, sign_up_call
from postroom_bench.ports import held_port

PER_S = 500
FOR_S = 20.0
CALLERS = 64
READY_S = 120.0
PATIENCE_S = 300.0  # for the last confirmation


class Confirmations(msgspec.Struct, frozen=True):
    """Of the sign-ups at one time; each is timed from its call to the sink's answer."""

    beside: str
    sign_ups: int
    answered_per_s: float
    handed_over: int
    twice: int
    median_s: float
    p95_s: float
    worst_s: float


async def measure_sign_ups(
    people: int, say: Callable[[str], None], *, per_s: int = PER_S, for_s: float = FOR_S
) -> list[Confirmations]:
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder, held_port() as port:
        async with Installation(Path(folder)) as installation, installation.parts() as parts:
            say(f"{people:,} people join")
            await installation.people(parts, people)
            await counts.fold(parts.storage.tables, LIST)
            installation.overrides["POSTROOM_BIND"] = f"127.0.0.1:{port}"
            for role in ROLES:
                await installation.start(role)
            await until(lambda: is_listening(port), within_s=READY_S)
            key, _ = await keys.create(parts.storage.tables, "bench", (), parts.clock.now())
            load = _Load(installation, parts, port, key, per_s, for_s)
            say("signing people up")
            idle = await load.run("nothing")
            await installation.forget_arrived()
            await installation.message(parts)
            await until(lambda: has_begun(installation), within_s=READY_S)
            say("signing people up while the message goes out")
            return [idle, await load.run(f"{people:,} mails")]


class _Load:
    def __init__(
        self,
        installation: Installation,
        parts: Parts,
        port: int,
        key: str,
        per_s: int,
        for_s: float,
    ) -> None:
        self._installation = installation
        self._parts = parts
        self._port = port
        self._key = key
        self._per_s = per_s
        self._number = round(per_s * for_s)
        self._runs = itertools.count()

    async def run(self, beside: str) -> Confirmations:
        name = f"joiner{next(self._runs)}-"
        addresses = [f"{name}{number}@{DOMAIN}" for number in range(self._number)]
        called_at, answered_per_s = await self._sign_up(addresses)
        with contextlib.suppress(TimeoutError):  # the figures tell how many are missing
            await until(self._is_queue_empty, within_s=PATIENCE_S, every_s=0.5)
        found = _arrivals(await self._installation.sink_record())
        arrivals = [(address, at) for address, at in found if address in called_at]
        first: dict[str, float] = {}
        for address, at in arrivals:
            first.setdefault(address, at)
        waits = sorted(at - called_at[address] for address, at in first.items())
        return Confirmations(
            beside,
            len(called_at),
            answered_per_s,
            len(first),
            len(arrivals) - len(first),
            statistics.median(waits),
            waits[int(len(waits) * 0.95)],
            waits[-1],
        )

    async def _is_queue_empty(self) -> bool:
        return await self._parts.storage.queues.length(SINGLE_MAIL_QUEUE) == 0

    async def _sign_up(self, addresses: list[str]) -> tuple[dict[str, float], float]:
        """When each was called for, and how many were answered a second."""
        called_at: dict[str, float] = {}
        started = time.monotonic()
        turns: Iterator[tuple[int, str]] = iter(enumerate(addresses))

        async def caller() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            for number, address in turns:
                await asyncio.sleep(max(0.0, started + number / self._per_s - time.monotonic()))
                called_at[address] = time.monotonic()
                writer.write(sign_up_call(self._key, address))
                status = await answer(reader)
                assert status == 202, status
            writer.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
        return called_at, len(addresses) / (time.monotonic() - started)


def _arrivals(record: dict[str, Any]) -> list[tuple[str, float]]:
    """Who was mailed when, to the next point of the sink's time line."""
    points: list[tuple[float, int]] = record["timeline"]
    numbers = [number for _, number in points]
    return [
        (recipient, points[bisect_left(numbers, place)][0])
        for place, (recipient, _) in enumerate(record["mails"], 1)
    ]
