"""The figure of docs/migrate.md: `python -m tests.process.migration_bar [PEOPLE]`.

A list and a message half-way through its audience move from a file to Azurite and back into a
file, each time killed once; then every row, blob and item is compared. It takes some minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from postroom.clock import WallClock
from postroom.records.names import QUEUES
from postroom.scheduler import Scheduler
from postroom.wiring import Parts
from postroom.wiring.engines import opened_storage, with_storage
from postroom_bench.installation import Installation, Process, until
from tests.contract.azurite import ROOT, azurite
from tests.process.test_kill_migrate import address_of
from tests.scenario.moving_house import everything

RUN_S_MAX = 1800.0
REACHED = re.compile(r"Migrating: (\w+), ([0-9,]+)")


async def fan_out(parts: Parts) -> None:
    scheduler = Scheduler(parts.storage, parts.clock, "bar.1")
    while await scheduler.step():
        pass
    await scheduler.stop()


async def killed_at(
    installation: Installation, options: tuple[str, ...], stage: str, rows: int
) -> None:
    process = await installation.start("migrate", *options)

    async def has_reached() -> bool:
        assert process.is_running, process.log.read_text()
        reached = REACHED.findall(process.log.read_text())
        return any(name == stage and int(done.replace(",", "")) >= rows for name, done in reached)

    await until(has_reached, within_s=RUN_S_MAX, every_s=0.2)
    await process.kill()
    print(f"  killed at {stage}, {rows:,}")


async def finished(
    installation: Installation, options: tuple[str, ...]
) -> tuple[dict[str, object], float]:
    """What it printed, and the most memory it had."""
    process = await installation.start("migrate", *options, "--json")
    peak_mb = [0.0]

    async def is_over() -> bool:
        peak_mb[0] = max(peak_mb[0], peak_of(process))
        return not process.is_running

    await until(is_over, within_s=RUN_S_MAX, every_s=0.2)
    assert await process.wait(1) == 0, process.log.read_text()
    return json.loads(process.printed.read_text()), peak_mb[0]


def peak_of(process: Process) -> float:
    try:
        return process.peak_mb()
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0.0  # it ended just now


async def leg(
    name: str, installation: Installation, options: tuple[str, ...], stage: str, rows: int
) -> dict[str, object]:
    print(name)
    began = time.monotonic()
    await killed_at(installation, options, stage, rows)
    found, peak_mb = await finished(installation, options)
    print(f"  {time.monotonic() - began:.0f} s with the kill, peak {peak_mb:.0f} MB")
    return found


async def run(people: int, folder: Path) -> None:
    os.environ["NODE_OPTIONS"] = f"--require {ROOT / 'tests' / 'azurite' / 'keyed_rows.js'}"
    last = f"sqlite:///{folder}/last.db"
    async with Installation(folder) as installation:
        async with installation.parts() as parts:
            await installation.people(parts, people)
            await installation.message(parts)
            await fan_out(parts)
        installation.overrides["THERE"] = address_of(azurite().account)
        there = ("--to", "env:THERE")
        back = ("--from", "env:THERE", "--to", last)
        first = await leg("file → Azurite", installation, there, "mailinglist", people // 2)
        second = await leg("Azurite → file", installation, back, "mailinglist", people)
        assert first["parts"] == second["parts"]
        for part in first["parts"]:  # type: ignore[attr-defined]
            print(f"  {part['name']:24} {part['target']:>10,}")
        ours, clock = installation.settings(), WallClock()
        async with (
            opened_storage(ours, clock) as source,
            opened_storage(with_storage(ours, last, None), clock) as target,
        ):
            assert [await source.queues.length(queue) for queue in QUEUES] == [
                await target.queues.length(queue) for queue in QUEUES
            ]
            assert (await everything(source, Patient())).rows == (
                await everything(target, Patient())
            ).rows
    print("equal to the row")


class Patient(WallClock):
    """Nobody needs the items back."""

    async def sleep(self, seconds: float) -> None:
        return


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        asyncio.run(run(int((sys.argv[1:] or ["100000"])[0]), Path(name)))
