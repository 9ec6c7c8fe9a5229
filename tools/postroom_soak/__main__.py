"""Run a soak: `./dev soak [minutes]`. The exit code is 1 if anything was wrong."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx2

from postroom_bench.installation import CLEAR, Installation, until
from postroom_bench.ports import held_port
from postroom_soak import verdict
from postroom_soak.faults import FAULTS, FULL_DISK, Fault, Surroundings
from postroom_soak.load import Load
from postroom_soak.relay import Relay
from postroom_soak.report import write_report
from postroom_soak.role import VARIABLE
from postroom_soak.roles import Roles
from postroom_soak.verdict import FaultTime, Verdict

SETTINGS = {
    "POSTROOM_LEASE_S": "6",
    "POSTROOM_CLAIM_S": "20",
    "POSTROOM_RETRY_FIRST_S": "2",
    "POSTROOM_RETRY_LONGEST_S": "10",
}
FAULT_S = 10.0
BETWEEN_S = 8.0
SAMPLED_EVERY_S = 2.0
SETTLED_WITHIN_S = 300.0
READY_S = 120.0
DISK_MB = 512
DISK_MB_PER_MINUTE = 128


class SoakInstallation(Installation):
    module = "postroom_soak.role"


async def soak(folder: Path, disk: Path | None, *, minutes: float, people: int, seed: int) -> int:
    began = time.time()
    control = folder / "control.json"
    control.write_text("{}")
    storage = disk or folder
    with held_port() as port:
        async with (
            SoakInstallation(folder, overrides=SETTINGS) as installation,
            Relay(installation.port) as relay,
        ):
            installation.overrides |= {
                VARIABLE: str(control),
                "POSTROOM_BIND": f"127.0.0.1:{port}",
                "POSTROOM_DATA": str(storage / "data"),
                "POSTROOM_STORAGE": f"sqlite:///{storage / 'postroom.db'}",
                "POSTROOM_TRANSPORT": CLEAR.format(port=relay.port),
            }
            machine = str((storage / "data").relative_to(folder))
            roles = Roles(installation, time.monotonic(), machine)
            around = Surroundings(roles, relay, control, disk)
            found = await _run(around, port, minutes=minutes, people=people, seed=seed)
            everyone = roles.ended + roles.running
            sys.stdout.write(write_report(folder, found, everyone, began))
    return 1 if found.mistakes else 0


async def _run(
    around: Surroundings, port: int, *, minutes: float, people: int, seed: int
) -> Verdict:
    installation = around.roles.installation
    url = f"http://127.0.0.1:{port}"
    async with (
        installation.parts() as parts,
        httpx2.AsyncClient(base_url=url, timeout=20.0) as web,
    ):
        load = Load(installation, parts, web, people)
        await load.prepare()
        await around.roles.start_all()
        await until(lambda: _is_ready(web), within_s=READY_S)
        watching = asyncio.create_task(_watch(around.roles))
        loading = asyncio.create_task(load.run())
        faults = await _make_trouble(around, minutes * 60.0, random.Random(seed))
        load.is_over = True
        await loading
        await until(lambda: _is_settled(load), within_s=SETTLED_WITHIN_S, every_s=1.0)
        watching.cancel()
        return await _judge(around, load, faults, minutes)


async def _make_trouble(
    around: Surroundings, for_s: float, chance: random.Random
) -> list[tuple[Fault, FaultTime]]:
    """One fault after the other in an order of chance, all of them before any comes again."""
    until_s = time.monotonic() + for_s
    done: list[tuple[Fault, FaultTime]] = []
    waiting: list[Fault] = []
    while time.monotonic() + FAULT_S + BETWEEN_S < until_s:
        await asyncio.sleep(BETWEEN_S)
        if not waiting:
            waiting = [each for each in FAULTS if around.disk or each.name != FULL_DISK]
            chance.shuffle(waiting)
        fault = waiting.pop()
        begun_at = datetime.now(UTC)
        sys.stderr.write(f"{begun_at:%H:%M:%S} {fault.name}\n")
        async with fault.lasting(around):
            await asyncio.sleep(FAULT_S)
        done.append((fault, FaultTime(fault.name, begun_at, datetime.now(UTC))))
    await asyncio.sleep(max(0.0, until_s - time.monotonic()))
    return done


async def _watch(roles: Roles) -> None:
    while True:
        await roles.look()
        await asyncio.sleep(SAMPLED_EVERY_S)


async def _is_ready(web: httpx2.AsyncClient) -> bool:
    try:
        return (await web.get("/readyz")).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False


async def _is_settled(load: Load) -> bool:
    """Every message is completed, and every sign-up got its email."""
    if await verdict.open_messages(load.parts, load.messages):
        return False
    mails = await verdict.read_mails(load)
    return mails.addresses >= set(load.signed_up)


async def _judge(
    around: Surroundings, load: Load, faults: list[tuple[Fault, FaultTime]], minutes: float
) -> Verdict:
    mails = await verdict.read_mails(load)
    lines = around.roles.log_lines()
    roles = around.roles.ended + around.roles.running
    return Verdict(
        minutes=minutes,
        people=load.people,
        messages=[await verdict.judge_message(load, each, mails) for each in load.messages],
        faults=[when for _, when in faults],
        not_run=[] if around.disk else ["disk full: it needs a disk of its own, mounted as root"],
        sign_ups=len(load.signed_up),
        confirmations_lost=len(set(load.signed_up) - mails.addresses),
        imported=len(load.imported),
        imported_missing=await verdict.imported_missing(load.parts, load.imported),
        unsubscribed=len(load.left),
        failed_calls=load.failed_calls,
        exits=around.roles.exits,
        memory=verdict.memory_trends(roles),
        unexpected=verdict.unexpected(lines, faults),
        log_events=dict(Counter(line.event for line in lines)),
    )


@contextmanager
def mounted_disk(folder: Path, minutes: float) -> Iterator[Path | None]:
    """A small disk in memory that can be filled up; None if this machine does not let us."""
    disk = folder / "disk"
    disk.mkdir()
    size = DISK_MB + round(DISK_MB_PER_MINUTE * minutes)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=0700", "tmpfs", str(disk)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, check=False).returncode == 0
    try:
        yield disk if is_mounted else None
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(disk)], check=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument("minutes", type=float, nargs="?", default=4.0)
    parser.add_argument("--people", type=int, default=5000, help="on the steady list")
    parser.add_argument("--seed", type=int, default=1, help="of the order of faults")
    parser.add_argument("--folder", type=Path, help="for logs and the report; default: a new one")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="postroom-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    with mounted_disk(folder, given.minutes) as disk:
        failed = asyncio.run(
            soak(folder, disk, minutes=given.minutes, people=given.people, seed=given.seed)
        )
    sys.stdout.write(f"Logs and report: {folder}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
