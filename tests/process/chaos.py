"""Chaos on one Azurite: two machines with all roles, anything killed at random, the storage itself
stopped and started; whoever was to be mailed is accounted for in the end.

As a program, for the figures in docs/azure.md: `python -m tests.process.chaos 20000 30 2`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from postroom.domain.message import Message, OnDoubt
from postroom.storage.port import StorageError
from postroom.wiring import Parts
from postroom_bench.installation import Installation, Process, books, until
from postroom_bench.ports import held_port
from tests.contract.azurite import AzuriteOnDisk

MACHINES = ("east", "west")
ROLES = ("web", "scheduler", "sender", "sender")  # on each machine
SETTINGS = {
    "POSTROOM_LEASE_S": "4",
    "POSTROOM_CLAIM_S": "20",
    "POSTROOM_POLL_S": "0.5",
    "POSTROOM_LANES": "2",
}
REFUSALS = 10  # that the roles meet in an outage
COMPLETED_S = 300.0


@dataclass
class Aftermath:
    message: Message
    arrived: Counter[str]
    kills: Counter[str]


@dataclass
class RunningRoles:
    """The roles of all machines, started again when they die, as a service manager would."""

    installation: Installation
    running: list[tuple[str, str, Process]]

    async def open(self) -> None:
        for machine in MACHINES:
            for role in ROLES:
                await self._start(role, machine)

    async def kill_one(self, chance: random.Random) -> str:
        """kill -9, and start again on the same machine; its role."""
        role, machine, process = victim = chance.choice(self.running)
        await process.end()  # it may have ended by itself a moment ago
        self.running.remove(victim)
        await self._start(role, machine)
        return role

    async def revive(self) -> None:
        """Whoever ended by itself meanwhile, as when storage was away at its start."""
        for each in [one for one in self.running if not one[2].is_running]:
            self.running.remove(each)
            await self._start(*each[:2])

    def refusals(self) -> int:
        """How often storage could not be reached, as far as those who run have noticed."""
        return sum(
            line.get("event") == "azure_again"
            for _, _, process in self.running
            for line in process.lines()
        )

    async def _start(self, role: str, machine: str) -> None:
        self.running.append((role, machine, await self.installation.start(role, machine=machine)))


async def chaos(folder: Path, *, people: int, kills: int, outages: int, seed: int) -> Aftermath:
    chance = random.Random(seed)
    blows = ["kill"] * kills + ["outage"] * outages
    chance.shuffle(blows)
    async with _installation(folder) as (azurite, installation), installation.parts() as parts:
        await installation.people(parts, people)
        roles = RunningRoles(installation, [])
        await roles.open()
        ref = await installation.message(parts, OnDoubt.HOLD)
        killed: Counter[str] = Counter()
        for number, blow in enumerate(blows, start=1):
            await _progress(installation, roles, people * number // (len(blows) + 1))
            if blow == "kill":
                killed[await roles.kill_one(chance)] += 1
            else:
                await _outage(azurite, roles)
        message = await _completed(parts, roles, ref)
        return Aftermath(message, await installation.arrived(), killed)


@asynccontextmanager
async def _installation(folder: Path) -> AsyncIterator[tuple[AzuriteOnDisk, Installation]]:
    with held_port() as blob, held_port() as queue, held_port() as table:
        azurite = AzuriteOnDisk(folder / "azurite", blob=blob, queue=queue, table=table)
        await asyncio.to_thread(azurite.start)
        try:
            settings = SETTINGS | {"POSTROOM_STORAGE": azurite.address}
            async with Installation(
                folder, ("--chunking", "--delay", "5"), settings
            ) as installation:
                yield azurite, installation
        finally:
            await asyncio.to_thread(azurite.stop)


async def _progress(installation: Installation, roles: RunningRoles, mails: int) -> None:
    """Blows fall all along the way; whoever is held is not waited for."""
    seen, unmoved = -1, 0

    async def check() -> bool:
        nonlocal seen, unmoved
        await roles.revive()
        now = await installation.arrived_number()
        unmoved = unmoved + 1 if now == seen else 0
        seen = now
        return now >= mails or unmoved > 200

    await until(check, within_s=COMPLETED_S, every_s=0.05)


async def _outage(azurite: AzuriteOnDisk, roles: RunningRoles) -> None:
    """Until several roles have met nobody there."""
    before = roles.refusals()
    await asyncio.to_thread(azurite.stop)

    async def check() -> bool:
        return roles.refusals() >= before + REFUSALS

    await until(check, within_s=COMPLETED_S, every_s=0.1)
    await asyncio.to_thread(azurite.start)


async def _completed(parts: Parts, roles: RunningRoles, ref: str) -> Message:
    async def check() -> bool:
        await roles.revive()
        try:
            return (await books(parts, ref)).completed_at is not None
        except StorageError:
            return False

    await until(check, within_s=COMPLETED_S, every_s=0.5)
    return await books(parts, ref)


def main() -> None:
    people, kills, outages = map(int, sys.argv[1:4])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    with tempfile.TemporaryDirectory() as folder:
        after = asyncio.run(
            chaos(Path(folder), people=people, kills=kills, outages=outages, seed=seed)
        )
    twice = sum(count - 1 for count in after.arrived.values())
    lost = people - len(after.arrived.keys()) - after.message.books.held
    print(f"killed {dict(after.kills)}, arrived {len(after.arrived)}, lost {max(0, lost)}")
    print(f"twice {twice}, books {after.message.books}")


if __name__ == "__main__":
    main()
