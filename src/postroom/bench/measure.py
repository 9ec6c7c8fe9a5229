"""One honest run: seed a list, schedule a message, run the roles, count at the sink.

Every run also checks what arrived: nobody lost, nobody twice. A figure without that is worthless.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from postroom.bench.house import House
from postroom.records import messages
from postroom.wiring import Parts

START_UP_S = 30.0
LOOK_S = 0.02
RUN_S_MAX = 3600.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    recipients: int = 20_000
    senders: int = 1
    lanes: int = 4
    window: int = 8
    chunking: bool = True
    delay_ms: float = 0.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    recipients: int
    arrived: int
    lost: int
    twice: int
    first_mail_s: float
    fanned_out_s: float
    completed_s: float
    fan_out_per_s: float
    mails_per_s: float  # from due to completed, everything included
    scheduler_cpu_us: float  # per mail
    sender_cpu_us: float
    scheduler_peak_mb: float
    sender_peak_mb: float  # of the largest


async def measure(plan: Plan, say: Callable[[str], None]) -> Figures:
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        async with House(Path(folder), _sink_options(plan)) as house, house.parts() as parts:
            house.overrides["POSTROOM_LANES"] = str(plan.lanes)
            house.overrides["POSTROOM_SMTP_WINDOW"] = str(plan.window)
            say(f"{plan.recipients:,} people join")
            await house.people(parts, plan.recipients)
            scheduler = await house.start("scheduler")
            senders = [await house.start("sender") for _ in range(plan.senders)]
            await _until_awake(house, 1 + plan.senders)
            before = [process.cpu_s() for process in (scheduler, *senders)]
            times = await _watch(house, parts, await house.message(parts), say)
            after = [process.cpu_s() for process in (scheduler, *senders)]
            cpu_us = [
                (used - start) / plan.recipients * 1e6
                for start, used in zip(before, after, strict=True)
            ]
            arrived = await house.arrived()
            return Figures(
                recipients=plan.recipients,
                arrived=len(arrived),
                lost=plan.recipients - len(arrived),
                twice=sum(count - 1 for count in arrived.values()),
                first_mail_s=times.first_s,
                fanned_out_s=times.fanned_out_s,
                completed_s=times.completed_s,
                fan_out_per_s=plan.recipients / times.fanned_out_s,
                mails_per_s=plan.recipients / times.completed_s,
                scheduler_cpu_us=cpu_us[0],
                sender_cpu_us=sum(cpu_us[1:]),
                scheduler_peak_mb=scheduler.peak_mb(),
                sender_peak_mb=max(process.peak_mb() for process in senders),
            )


@dataclass
class _Times:
    """Seconds since the message was due."""

    first_s: float = 0.0
    fanned_out_s: float = 0.0
    completed_s: float = 0.0


async def _watch(house: House, parts: Parts, ref: str, say: Callable[[str], None]) -> _Times:
    started = said = time.monotonic()
    times = _Times()
    async with asyncio.timeout(RUN_S_MAX):
        while not times.completed_s:
            message = await messages.read(parts.storage.tables, ref)
            elapsed_s = time.monotonic() - started
            if not times.first_s and await house.arrived_number():
                times.first_s = elapsed_s
            if not times.fanned_out_s and message.fanned_out:
                times.fanned_out_s = elapsed_s
            if message.completed_at:
                times.completed_s = elapsed_s
            if time.monotonic() - said > 1:
                said = time.monotonic()
                say(f"{message.books.sent:,} of {message.audience:,} sent")
            await asyncio.sleep(LOOK_S)
    return times


def _sink_options(plan: Plan) -> tuple[str, ...]:
    options = ["--chunking"] if plan.chunking else []
    if plan.delay_ms:
        options += ["--delay", str(plan.delay_ms)]
    return tuple(options)


async def _until_awake(house: House, roles: int) -> None:
    """Every role listens to its bell once it has started."""
    bells = house.folder / "data" / "bells"
    async with asyncio.timeout(START_UP_S):
        while not bells.is_dir() or len(os.listdir(bells)) < roles:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
