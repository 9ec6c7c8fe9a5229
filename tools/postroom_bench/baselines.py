"""What others do with the same sink in the same run: Postfix's smtp-source, and a plain script.

Mails with attachments are measured against sockets to which the same bytes are written.

Each is measured alone, after the installation has stopped, with mails as long as its own.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from asyncio import create_subprocess_exec
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from postroom_bench.installation import Installation

SOURCE = "smtp-source"
SOURCE_CONNECTIONS = 16
SOURCE_FRAME_BYTES = 140  # the heading that it writes itself
RAW = "raw sockets"
NAIVE = "smtplib + EmailMessage"
NAIVE_MAILS = 2000  # a sample: a long list would take it an hour
SECONDS_MAX = 20.0  # of each; a rate needs no more
START_UP_S = 120.0


class Load(NamedTuple):
    """What the installation did, to be done by others."""

    mails: int
    mail_bytes: int
    connections: int
    mails_per_s: float
    ca_file: Path | None  # of a line with TLS
    has_attachment: bool = False


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    connections: int
    mails: int
    mail_bytes: int
    mails_per_s: float
    ratio: float  # how many times as fast the installation is, from due to completed


async def measure_baselines(
    installation: Installation, load: Load, say: Callable[[str], None]
) -> list[Baseline]:
    if load.has_attachment:
        return [await _raw_sender(installation, load, say)]
    measured = [
        await _smtp_source(installation, load, say),
        await _naive_sender(installation, load, say),
    ]
    return [baseline for baseline in measured if baseline is not None]


def find_smtp_source() -> str | None:
    """Debian keeps it where only root's PATH leads."""
    return shutil.which(SOURCE) or shutil.which(SOURCE, path="/usr/sbin")


async def _smtp_source(
    installation: Installation, load: Load, say: Callable[[str], None]
) -> Baseline | None:
    """With connections kept open and never fewer than ours: it is twice as fast so."""
    program = find_smtp_source()
    if program is None or load.ca_file:
        say(f"{SOURCE} knows no TLS" if program else f"{SOURCE} is not here (package postfix)")
        return None
    say(f"{SOURCE} sends")
    connections = max(SOURCE_CONNECTIONS, load.connections)
    await installation.forget_arrived()
    started = time.monotonic()
    process = await create_subprocess_exec(
        *(program, "-d", "-N", "-s", str(connections), "-m", str(load.mails)),
        *("-l", str(max(1, load.mail_bytes - SOURCE_FRAME_BYTES))),
        *("-f", "donotreply@contoso.edu", "-t", "student@contoso.edu"),
        f"127.0.0.1:{installation.port}",
        stdout=DEVNULL,
        stderr=PIPE,
    )
    words = await _told_within(process, SECONDS_MAX)
    seconds = time.monotonic() - started
    mails, octets = await installation.arrived_size()
    if words or not mails:
        say(f"{SOURCE} failed: {words}")
        return None
    return _baseline(f"{SOURCE} -d -s {connections}", connections, mails, octets, seconds, load)


async def _told_within(process: asyncio.subprocess.Process, seconds: float) -> str:
    """What it said on standard error; one that takes longer is ended, which is no failure."""
    try:
        async with asyncio.timeout(seconds):
            _, words = await process.communicate()
    except TimeoutError:
        process.terminate()
        await process.wait()
        return ""
    return words.decode(errors="replace").strip()


async def _naive_sender(
    installation: Installation, load: Load, say: Callable[[str], None]
) -> Baseline | None:
    """It takes its time itself: without that of starting Python."""
    say(f"{NAIVE} sends")
    await installation.forget_arrived()
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "postroom_bench.naive_sender", str(installation.port)),
        *(str(min(load.mails, NAIVE_MAILS)), str(load.mail_bytes), str(SECONDS_MAX)),
        *([str(load.ca_file)] if load.ca_file else []),
        stdout=PIPE,
    )
    told, _ = await asyncio.wait_for(process.communicate(), SECONDS_MAX + START_UP_S)
    mails, octets = await installation.arrived_size()
    if process.returncode or not mails:
        say(f"{NAIVE} failed")
        return None
    return _baseline(NAIVE, 1, mails, octets, float(json.loads(told)["seconds"]), load)


async def _raw_sender(
    installation: Installation, load: Load, say: Callable[[str], None]
) -> Baseline:
    say(f"{RAW} send")
    await installation.forget_arrived()
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "postroom_bench.raw_sender", str(installation.port)),
        *(str(load.mails), str(load.mail_bytes), str(load.connections), str(SECONDS_MAX)),
        stdout=PIPE,
    )
    told, _ = await asyncio.wait_for(process.communicate(), SECONDS_MAX + START_UP_S)
    mails, octets = await installation.arrived_size()
    seconds = float(json.loads(told)["seconds"])
    return _baseline(RAW, load.connections, mails, octets, seconds, load)


def _baseline(
    name: str, connections: int, mails: int, octets: int, seconds: float, load: Load
) -> Baseline:
    return Baseline(
        name=name,
        connections=connections,
        mails=mails,
        mail_bytes=octets // mails,
        mails_per_s=mails / seconds,
        ratio=load.mails_per_s * seconds / mails,
    )
