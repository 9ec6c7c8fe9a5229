"""One honest run: seed a list, schedule a message, run the roles, count what arrived.

Every run also checks what arrived: nobody lost, nobody twice. A figure without that is worthless.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.migration.row_pairs import is_empty
from postroom.records import rate_limits
from postroom.records.names import QUEUES, TABLES
from postroom.wiring import Parts
from postroom_bench.arrivals import Arrivals, at_the_sink, in_the_outbox
from postroom_bench.baselines import Baseline, Load, measure_baselines
from postroom_bench.certificate import write_certificate
from postroom_bench.figures import Figures, draw, used_by, work_out
from postroom_bench.installation import CLEAR, DOMAIN, Installation, Process, until
from postroom_bench.plan import SMALL_PEOPLE, Plan, Way
from postroom_bench.run_timeline import (
    SMALL_LIST,
    Say,
    begin,
    fill_archive,
    look_on,
    name_of_list,
    until_fanned_out,
)

START_UP_S = 120.0
STOP_S = 120.0
SETTLE_S = 1.0  # what a role does at its start is no part of what is measured
RETRY_FIRST_S = 0.5
CERTIFICATE = "certificate.pem"


class Report(NamedTuple):
    figures: Figures
    picture: str  # SVG


async def measure(plan: Plan, say: Say) -> Report:
    plan.check()
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        installation = _installation(plan, Path(folder))
        async with installation, installation.parts() as parts:
            await _check_empty(parts)
            await _fill(installation, parts, plan, say)
            figures, picture = await _send(installation, parts, plan, say)
            baselines = await _baselines(installation, plan, figures, say)
            return Report(msgspec.structs.replace(figures, baselines=baselines), picture)


async def _check_empty(parts: Parts) -> None:
    """Our senders take whatever is due, and the sink keeps it: real mails would be lost."""
    if not await is_empty(parts.storage, TABLES, QUEUES):
        raise BadInput("The storage has something in it: choose one with nothing in it.")


async def _fill(installation: Installation, parts: Parts, plan: Plan, say: Say) -> None:
    say(f"{plan.recipients:,} people join")
    share = plan.tempfail_share
    for number, size in enumerate(plan.list_sizes()):
        name = f"student{number}-" if number else "student"
        list_name = name_of_list(number)
        await installation.people(
            parts,
            size,
            name,
            list_name=list_name,
            refused_once=share,
            attributes=plan.attributes,
        )
    await installation.suppress(parts, plan.suppressed)
    if plan.beside:
        await installation.people(parts, SMALL_PEOPLE, "small", list_name=SMALL_LIST)
    for name, mails_per_s in ((TRANSPORT, plan.limit), (DOMAIN, plan.domain_limit)):
        if mails_per_s:
            await rate_limits.set_limit(parts.storage.tables, RateLimit(name, mails_per_s))


async def _send(installation: Installation, parts: Parts, plan: Plan, say: Say) -> Report:
    roles = await _started(installation, "scheduler")
    if not plan.fan_out_first:
        roles += await _started(installation, *["sender"] * plan.senders)
    await fill_archive(installation, parts, plan.archived, say)
    before = [await used_by(role) for role in roles]
    timeline = await begin(installation, parts, plan)
    if plan.fan_out_first:
        await until_fanned_out(timeline, parts.storage.tables, say)
        senders = await _started(installation, *["sender"] * plan.senders)
        before += [await used_by(role) for role in senders]
        roles += senders
    await look_on(timeline, installation, parts, plan, say)
    after = [await used_by(role) for role in roles]
    for role in roles:  # what is measured next has the machine for itself
        await role.terminate(STOP_S)
    used = [late.since(early) for late, early in zip(after, before, strict=True)]
    arrivals = await _arrivals(installation, parts, plan)
    figures = work_out(plan, timeline, arrivals, used[0], used[1:])
    return Report(figures, draw(plan, figures, timeline, arrivals.timeline))


async def _started(installation: Installation, *names: str) -> list[Process]:
    """Roles that are awake and have done what they do at their start."""
    roles = [await installation.start(name) for name in names]
    await _until_awake(installation, names[0], len(roles))
    await asyncio.sleep(SETTLE_S)
    return roles


async def _arrivals(installation: Installation, parts: Parts, plan: Plan) -> Arrivals:
    if plan.transport is Way.OUTBOX:
        return await in_the_outbox(parts.storage.tables)
    return await at_the_sink(installation)


async def _baselines(
    installation: Installation, plan: Plan, figures: Figures, say: Say
) -> list[Baseline]:
    if not plan.baselines or plan.transport is not Way.SMTP:
        return []
    load = Load(
        mails=plan.recipients,
        mail_bytes=figures.mail_bytes,
        connections=plan.connections,
        mails_per_s=figures.mails_per_s,
        ca_file=installation.folder / CERTIFICATE if plan.tls else None,
        has_attachment=plan.attachment_bytes > 0,
    )
    return await measure_baselines(installation, load, say)


def _installation(plan: Plan, folder: Path) -> Installation:
    """An installation and a sink as planned; runs in one account have names of their own."""
    settings = {"POSTROOM_LANES": str(plan.lanes), "POSTROOM_SMTP_WINDOW": str(plan.window)}
    settings["POSTROOM_TRACE_LEVEL"] = plan.traces
    transport = CLEAR if plan.transport is Way.SMTP else "outbox:"
    if plan.fan_out_first:
        settings["POSTROOM_ITEMS_AHEAD"] = "0"  # nobody takes them
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
    return Installation(folder, _sink_options(plan, folder), settings, transport)


def _sink_options(plan: Plan, folder: Path) -> tuple[str, ...]:
    options = ["--chunking"] if plan.chunking else []
    options += [] if plan.pipelining else ["--no-pipelining"]
    if plan.delay_ms:
        options += ["--delay", str(plan.delay_ms)]
    if plan.tls:
        options += ["--certificate", str(folder / CERTIFICATE)]
    return tuple(options)


async def _until_awake(installation: Installation, name: str, roles: int) -> None:
    """Every role listens to its bell once it has started."""
    wakeups = installation.folder / "data" / "bells"

    async def are_awake() -> bool:
        return len(list(wakeups.glob(f"{name}.*"))) >= roles

    await until(are_awake, within_s=START_UP_S)
