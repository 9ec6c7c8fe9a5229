"""One honest run: seed a list, schedule a message, run the roles, count what arrived.

Every run also checks what arrived: nobody lost, nobody twice. A figure without that is worthless.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from postroom.bench.arrivals import Arrivals, at_the_sink, in_the_outbox
from postroom.bench.baselines import Baseline, Load, measure_baselines
from postroom.bench.certificate import write_certificate
from postroom.bench.figures import Course, Figures, draw, used_by, work_out
from postroom.bench.house import CLEAR, House, Process
from postroom.bench.plan import Plan, Way
from postroom.bench.sink import SAMPLE_S
from postroom.domain.message import Message
from postroom.records import messages
from postroom.wiring import Parts

START_UP_S = 30.0
STOP_S = 30.0
LOOK_S = 0.02
LOOK_FAR_S = 0.25  # where looking on takes from what is measured
RUN_S_MAX = 3600.0
RETRY_FIRST_S = 0.5
CERTIFICATE = "certificate.pem"

Say = Callable[[str], None]


class Report(NamedTuple):
    figures: Figures
    picture: str  # SVG


async def measure(plan: Plan, say: Say) -> Report:
    plan.check()
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        house = _house(plan, Path(folder))
        async with house, house.parts() as parts:
            say(f"{plan.recipients:,} people join")
            await house.people(parts, plan.recipients, refused_once=plan.tempfail_share)
            figures, picture = await _send(house, parts, plan, say)
            baselines = await _baselines(house, plan, figures, say)
            return Report(msgspec.structs.replace(figures, baselines=baselines), picture)


async def _send(house: House, parts: Parts, plan: Plan, say: Say) -> Report:
    roles = await _started_roles(house, plan)
    before = [await used_by(role) for role in roles]
    course = await _watch(house, parts, plan, say)
    after = [await used_by(role) for role in roles]
    for role in roles:  # what is measured next has the machine for itself
        await role.terminate(STOP_S)
    used = [late.since(early) for late, early in zip(after, before, strict=True)]
    arrivals = await _arrivals(house, parts, plan)
    figures = work_out(plan, course, arrivals, used[0], used[1:])
    return Report(figures, draw(plan, figures, course, arrivals.timeline))


async def _started_roles(house: House, plan: Plan) -> list[Process]:
    """The scheduler, then the senders, all awake."""
    roles = [await house.start("scheduler")]
    roles += [await house.start("sender") for _ in range(plan.senders)]
    await _until_awake(house, len(roles))
    return roles


async def _watch(house: House, parts: Parts, plan: Plan, say: Say) -> Course:
    """Write the message, and look on until it is in the archive."""
    tables, course = parts.storage.tables, Course(time.monotonic())
    ref = await house.message(parts, mail_bytes=plan.mail_bytes)
    said_s = 0.0
    async with asyncio.timeout(RUN_S_MAX):
        while not course.completed_s or await messages.find_live(tables, ref):
            message = await messages.read(tables, ref)
            elapsed_s = time.monotonic() - course.started
            _note(course, message, elapsed_s)
            if elapsed_s - said_s > 1:
                said_s = elapsed_s
                say(f"{message.books.sent:,} of {message.audience:,} sent")
            await asyncio.sleep(LOOK_FAR_S if plan.storage else LOOK_S)
    return course


def _note(course: Course, message: Message, elapsed_s: float) -> None:
    is_due = not course.fan_out or elapsed_s - course.fan_out[-1][0] >= SAMPLE_S
    if not course.fanned_out_s and (is_due or message.fanned_out):
        course.fan_out.append((elapsed_s, message.audience))
    if not course.fanned_out_s and message.fanned_out:
        course.fanned_out_s = elapsed_s
    if message.completed_at and not course.completed_s:
        course.completed_s = elapsed_s


async def _arrivals(house: House, parts: Parts, plan: Plan) -> Arrivals:
    if plan.transport is Way.OUTBOX:
        return await in_the_outbox(parts.storage.tables)
    return await at_the_sink(house)


async def _baselines(house: House, plan: Plan, figures: Figures, say: Say) -> list[Baseline]:
    if not plan.baselines or plan.transport is not Way.SMTP:
        return []
    load = Load(
        mails=plan.recipients,
        mail_bytes=figures.mail_bytes,
        connections=plan.connections,
        mails_per_s=figures.mails_per_s,
        ca_file=house.folder / CERTIFICATE if plan.tls else None,
    )
    return await measure_baselines(house, load, say)


def _house(plan: Plan, folder: Path) -> House:
    """A house and a sink as planned; runs in one account have names of their own."""
    settings = {"POSTROOM_LANES": str(plan.lanes), "POSTROOM_SMTP_WINDOW": str(plan.window)}
    transport = CLEAR if plan.transport is Way.SMTP else "outbox:"
    if plan.storage:
        settings["POSTROOM_STORAGE"] = plan.storage
    if plan.storage.startswith("azure:"):
        settings["POSTROOM_AZURE_PREFIX"] = f"bench{secrets.token_hex(6)}"
    if plan.tempfail_share:
        settings["POSTROOM_RETRY_FIRST_S"] = str(RETRY_FIRST_S)
    if plan.tls:
        write_certificate(folder / CERTIFICATE)
        settings["POSTROOM_SMTP_CA_FILE"] = str(folder / CERTIFICATE)
        transport = "smtp://127.0.0.1:{port}?tls=require"
    return House(folder, _sink_options(plan, folder), settings, transport)


def _sink_options(plan: Plan, folder: Path) -> tuple[str, ...]:
    options = ["--chunking"] if plan.chunking else []
    if plan.delay_ms:
        options += ["--delay", str(plan.delay_ms)]
    if plan.tls:
        options += ["--certificate", str(folder / CERTIFICATE)]
    return tuple(options)


async def _until_awake(house: House, roles: int) -> None:
    """Every role listens to its bell once it has started."""
    bells = house.folder / "data" / "bells"
    async with asyncio.timeout(START_UP_S):
        while not bells.is_dir() or len(os.listdir(bells)) < roles:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
