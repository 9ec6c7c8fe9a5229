"""Processes of their own for the SQLite tests: `python -m tests.contract.sqlite_process NAME FILE`.

Each prints what it has to tell on standard output, a line at a time.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from postroom.clock import WallClock
from postroom.records.names import STORAGE_NAMES
from postroom.storage.port import Conflict, Insert, Unavailable
from postroom.storage.sqlite.storage import SqliteStorage

ROOT = Path(__file__).parents[2]
INCREMENTS = 40
TRIES_MAX = 10_000
LANES = 8
BATCH_ROWS = 10
BATCHES_MAX = 100_000


def start(name: str, file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.contract.sqlite_process", name, str(file)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
    )


async def opens(file: Path) -> None:
    storage = await SqliteStorage.open(file, WallClock(), STORAGE_NAMES)
    await storage.close()
    print("opened")


async def increments(file: Path) -> None:
    """Add to one row by reading and replacing, against others who do the same."""
    storage = await SqliteStorage.open(file, WallClock(), STORAGE_NAMES)
    done = 0
    for _ in range(TRIES_MAX):
        row = await storage.tables.get("service", "counters", "shared")
        assert row is not None
        count = int(row.properties["count"])
        try:
            await storage.tables.replace(
                "service", "counters", "shared", {"count": count + 1}, row.etag
            )
        except Conflict:
            continue
        done += 1
        if done == INCREMENTS:
            break
    await storage.close()
    print(done)


async def claims(file: Path) -> None:
    """Take items until there are none, and print what was taken."""
    storage = await SqliteStorage.open(file, WallClock(), STORAGE_NAMES)
    for _ in range(TRIES_MAX):
        found = await storage.queues.claim("azuremailqueue", limit=3, lease_s=600)
        if not found:
            break
        for claim in found:
            print(claim.body)
    await storage.close()


async def writes(file: Path) -> None:
    """Write batches until killed, and print the partition of each once it is confirmed."""
    storage = await SqliteStorage.open(file, WallClock(), STORAGE_NAMES)

    async def lane(number: int) -> None:
        for batch in range(BATCHES_MAX):
            partition = f"{number}-{batch}"
            rows = [Insert(f"{row}", {"filler": "x" * 300}) for row in range(BATCH_ROWS)]
            await storage.tables.batch("message", partition, rows)
            print(partition, flush=True)

    await asyncio.gather(*(lane(number) for number in range(LANES)))


async def leaves(file: Path) -> None:
    """Write, and end without closing."""
    storage = await SqliteStorage.open(file, WallClock(), STORAGE_NAMES)
    await storage.tables.upsert("service", "p", "k", {"n": 1})
    print("left")


async def outgrows(file: Path) -> None:
    """Meet a disk that refuses to take more at the commit, then one that takes more again."""
    storage = await SqliteStorage.open(file, WallClock(), STORAGE_NAMES)
    await storage.tables.upsert("service", "p", "before", {})
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    log_bytes = os.stat(f"{file}-wal").st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (log_bytes, unlimited[1]))
    outcomes = await asyncio.gather(
        *(storage.tables.upsert("service", "p", f"during-{n}", {}) for n in range(3)),
        storage.queues.put("azuremailqueue", "during"),
        return_exceptions=True,
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes), outcomes
    await storage.tables.upsert("service", "p", "after", {})
    await storage.close()
    print("recovered")


PROGRAMS: dict[str, Callable[[Path], Awaitable[None]]] = {
    program.__name__: program for program in (opens, increments, claims, writes, leaves, outgrows)
}


async def main() -> None:
    await PROGRAMS[sys.argv[1]](Path(sys.argv[2]))


if __name__ == "__main__":
    asyncio.run(main())
