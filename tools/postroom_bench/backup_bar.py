"""A backup at full speed and its restore, measured: `python -m postroom_bench.backup_bar`.

How fast mail goes out before, during and after the backup, and what the restored copy knows.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from postroom.clock import WallClock
from postroom.domain.delivery import State
from postroom.records import archive, batches, messages
from postroom.storage.port import Tables
from postroom.wiring.engines import opened_storage
from postroom_bench.installation import Installation, Process, is_completed, until

PEOPLE = 200_000
RUN_S_MAX = 170.0
BEFORE_SHARE = 0.25  # sent before the backup begins


async def rates_around(installation: Installation, backup: Process) -> tuple[float, float]:
    """Mails a second during the backup, and how long it took."""
    begun_s, begun = time.monotonic(), await installation.arrived_number()
    assert await backup.wait(within_s=RUN_S_MAX) == 0, backup.log.read_text()
    took_s = time.monotonic() - begun_s
    return (await installation.arrived_number() - begun) / took_s, took_s


async def rate(installation: Installation, for_s: float) -> float:
    begun_s, begun = time.monotonic(), await installation.arrived_number()
    await asyncio.sleep(for_s)
    return (await installation.arrived_number() - begun) / (time.monotonic() - begun_s)


async def known_as_sent(installation: Installation, ref: str) -> set[str]:
    """The addresses that the archive of the restored storage has as sent."""
    async with opened_storage(installation.settings(), WallClock(), create=False) as storage:
        message = await messages.read(storage.tables, ref)
        found = [
            one
            for number in range(message.batches)
            async for one in _sent_in(storage.tables, ref, number)
        ]
        return set(found)


async def _sent_in(tables: Tables, ref: str, batch: int) -> AsyncIterator[str]:
    ledger = await batches.find_ledger(tables, ref, batch)
    async for one in archive.load(tables, ref, batch):
        if ledger and ledger.value.states[one.delivery.position] == State.SENT:
            yield one.delivery.address


async def measure(folder: Path, people: int) -> None:
    file = folder / "full-speed.backup"
    async with Installation(folder) as installation:
        async with installation.parts() as parts:
            await installation.people(parts, people)
            roles = [await installation.start(role) for role in ("scheduler", "sender", "sender")]
            ref = await installation.message(parts)

            async def is_under_way() -> bool:
                return await installation.arrived_number() >= people * BEFORE_SHARE

            await until(is_under_way, within_s=RUN_S_MAX)
            before = await rate(installation, 2.0)
            during, took_s = await rates_around(
                installation, await installation.start("backup", str(file), "--json")
            )
            after = await rate(installation, 2.0)
            await until(lambda: is_completed(parts, ref), within_s=RUN_S_MAX)
            for role in roles:
                await role.terminate(within_s=RUN_S_MAX)
        arrived = await installation.arrived()
        sys.stdout.write(f"before {before:,.0f}/s, after {after:,.0f}/s\n")
        sys.stdout.write(f"during {during:,.0f}/s, for {took_s:.1f} s\n")
        sys.stdout.write(f"{file.stat().st_size / 1024**2:.0f} MiB; arrived {len(arrived):,}\n")
        installation.overrides["POSTROOM_STORAGE"] = f"sqlite:///{folder / 'restored.db'}"
        begun_s = time.monotonic()
        restoring = await installation.start("restore", str(file), "--json")
        assert await restoring.wait(within_s=RUN_S_MAX) == 0, restoring.log.read_text()
        took_s = time.monotonic() - begun_s
        [held] = json.loads(restoring.printed.read_text())["held"]
        known = await known_as_sent(installation, ref)
        sys.stdout.write(f"restored in {took_s:.1f} s\n")
        sys.stdout.write(f"{len(known):,} recorded as sent, {held['people']:,} held\n")
        assert set(arrived.values()) == {1}, "somebody was mailed twice"
        assert known <= arrived.keys(), "somebody is recorded as sent who got nothing"
        assert len(known) + held["people"] == people, "the sum is not everybody"


def main() -> None:
    people = int(sys.argv[1]) if len(sys.argv) > 1 else PEOPLE
    with tempfile.TemporaryDirectory(prefix="postroom-backup-") as folder:
        asyncio.run(measure(Path(folder), people))


if __name__ == "__main__":
    main()
