"""One honest run: seed a list, schedule a message, run the roles, count at the sink.

Every run also checks what arrived: nobody lost, nobody twice. A figure without that is worthless.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from postroom.bench.house import House, Process
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
            return await _run(plan, house, parts, scheduler, senders, say)


async def _run(
    plan: Plan,
    house: House,
    parts: Parts,
    scheduler: Process,
    senders: list[Process],
    say: Callable[[str], None],
) -> Figures:
    before = [process.cpu_s() for process in (scheduler, *senders)]
    started = time.monotonic()
    ref = await house.message(parts)
    first_s = fanned_out_s = 0.0
    said = started
    async with asyncio.timeout(RUN_S_MAX):
        while True:
            message = await messages.read(parts.storage.tables, ref)
            elapsed = time.monotonic() - started
            if not first_s and await house.arrived_number():
                first_s = elapsed
            if not fanned_out_s and message.fanned_out:
                fanned_out_s = elapsed
            if message.completed_at:
                break
            if time.monotonic() - said > 1:
                said = time.monotonic()
                say(f"{message.books.sent:,} of {message.audience:,} sent")
            await asyncio.sleep(LOOK_S)
    arrived = await house.arrived()
    cpu = [
        process.cpu_s() - used
        for process, used in zip((scheduler, *senders), before, strict=True)
    ]
    return Figures(
        recipients=plan.recipients,
        arrived=len(arrived),
        lost=plan.recipients - len(arrived),
        twice=sum(count - 1 for count in arrived.values()),
        first_mail_s=first_s,
        fanned_out_s=fanned_out_s,
        completed_s=elapsed,
        fan_out_per_s=plan.recipients / fanned_out_s,
        mails_per_s=plan.recipients / elapsed,
        scheduler_cpu_us=cpu[0] / plan.recipients * 1e6,
        sender_cpu_us=sum(cpu[1:]) / plan.recipients * 1e6,
        scheduler_peak_mb=scheduler.peak_mb(),
        sender_peak_mb=max(process.peak_mb() for process in senders),
    )


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
