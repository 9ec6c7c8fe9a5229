"""The simulated world: production flow, one I/O of one process at a time, picked by a seed.

Every await in the flow is a call of a port or the clock, so a small scheduler can run the real
coroutines and let any I/O crash its process before it, crash it after it took effect, stall past
every lease, or fail with and without having taken effect.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from postroom.records.names import STORAGE_NAMES
from postroom.storage import port
from postroom.storage.memory import MemoryStorage, MemoryTables
from postroom.storage.port import Batch, Blobs, Change, Queues, Tables, Unavailable

T = TypeVar("T")
STEPS_S = (-3 * 3600.0, -1800.0, -660.0, -5.0, 0.0, 300.0, 7200.0)
START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


class Crash(BaseException):
    """The process running this coroutine dies here."""


class Turn:
    """Hands control back to the world."""

    def __await__(self) -> Generator[None, None, None]:
        yield


Disk = port.Storage  # one that answers at once: whatever is awaited of it does not wait


class Clock:
    """True time, which nobody sees but the storage."""

    def __init__(self) -> None:
        self.time = START
        self.followers: list[Callable[[float], None]] = []

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return (self.time - START).total_seconds()

    def forward(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        for follow in self.followers:
            follow(seconds)

    async def sleep(self, seconds: float) -> None:
        """The simulation's time moves by itself; waiting is giving others a turn."""
        until = self.time + timedelta(seconds=seconds)
        while self.time < until:
            await Turn()


class SetClock:
    """The clock of one machine, which somebody sets; its monotonic clock nobody can set."""

    def __init__(self, truth: Clock) -> None:
        self._truth = truth
        self.ahead_s = 0.0

    def now(self) -> datetime:
        return self._truth.now() + timedelta(seconds=self.ahead_s)

    def monotonic(self) -> float:
        return self._truth.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._truth.sleep(seconds)


class Faults:
    """What may happen to an I/O, and how often."""

    def __init__(
        self,
        *,
        crash_at: int | None = None,
        crash: float = 0.0,
        stall: float = 0.0,
        fail: float = 0.0,
        late: float = 0.0,
        throttle: float = 0.0,
        empty_pages: bool = False,
        step: float = 0.0,
    ) -> None:
        self.crash_at = crash_at
        self.crash = crash
        self.stall = stall
        self.fail = fail  # with and without having taken effect
        self.late = late  # it took effect; the answer comes when others have gone on
        self.throttle = throttle  # from here on everybody is refused, for some calls
        self.empty_pages = empty_pages  # pages without rows that have a next
        self.step = step  # the clock of this machine is set

    def calm(self) -> None:
        self.crash = self.stall = self.fail = self.late = self.throttle = self.step = 0.0
        self.crash_at = None


class CountedTables(MemoryTables):
    """Count their writes, so that what was found in them holds until the next one."""

    writes = 0

    async def batch(self, table: str, partition: str, changes: Sequence[Change]) -> list[str]:
        self.writes += 1
        return await super().batch(table, partition, changes)


class World:
    """Clock, disk, faults and processes; everything random comes from one seed."""

    def __init__(
        self, seed: int, faults: Faults, disk: Callable[[Clock], Disk] | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.clock = Clock()
        self.disk: Disk = disk(self.clock) if disk else self._memory()
        self.ios = 0
        self.running = ""
        self.lane = 0  # which coroutine has its turn
        self.crashes: Counter[str] = Counter()
        self.stalls = 0
        self.lates = 0
        self.steps = 0
        self._clocks: dict[str, SetClock] = {}
        self.refusals = 0
        self._throttled = 0  # calls that will be refused
        self.on_crash: Callable[[str], None] = lambda process: None

    async def io(self, effect: Callable[[], Awaitable[T]]) -> T:
        """One I/O of the running process."""
        process = self.running
        await Turn()
        await self._maybe_freeze()
        self.running = process
        self._maybe_stall()
        self.maybe_step(process)
        self._maybe_crash(process)
        self._maybe_refuse()
        self._maybe_fail()
        result = await effect()
        self._maybe_crash(process)
        self._maybe_fail()
        await self._maybe_answer_late()
        self.running = process
        return result

    def _memory(self) -> MemoryStorage:
        rows = self.rng.choice([None, None, 2, 3])
        storage = MemoryStorage(self.clock, STORAGE_NAMES, page_rows=rows)
        storage.tables = CountedTables(
            STORAGE_NAMES.tables, rows or port.SCAN_ROWS_MAX, self.faults.empty_pages
        )
        return storage

    def writes(self) -> int | None:
        """How often rows were written; None if this disk does not count."""
        tables = self.disk.tables
        return tables.writes if isinstance(tables, CountedTables) else None

    async def _maybe_freeze(self) -> None:
        """The process stands still while the others go on: so zombies are made."""
        if self.faults.stall and self.rng.random() < self.faults.stall / 2:
            self.stalls += 1
            self.clock.forward(self.rng.choice([0, 45]))
            for _ in range(self.rng.choice([30, 300, 1500])):
                await Turn()

    def _maybe_stall(self) -> None:
        """Time passes for everybody: leases run out under work in hand."""
        if self.faults.stall and self.rng.random() < self.faults.stall / 2:
            self.stalls += 1
            self.clock.forward(self.rng.choice([10, 45, 400]))

    def clock_of(self, process: str) -> SetClock:
        return self._clocks.setdefault(process, SetClock(self.clock))

    def maybe_step(self, process: str) -> None:
        """By minutes and hours, back and forward; or somebody puts it right."""
        if self.faults.step and self.rng.random() < self.faults.step:
            self.steps += 1
            self.clock_of(process).ahead_s = self.rng.choice(STEPS_S)

    def _maybe_crash(self, process: str) -> None:
        self.ios += 1
        if self.ios == self.faults.crash_at or (
            self.faults.crash and self.rng.random() < self.faults.crash
        ):
            self.crashes[process] += 1
            raise Crash

    def _maybe_refuse(self) -> None:
        """Too busy, for everybody alike: nothing is done."""
        if self.faults.throttle and self.rng.random() < self.faults.throttle:
            self._throttled = self.rng.choice([2, 10, 40])
        if self._throttled:
            self._throttled -= 1
            self.refusals += 1
            raise Unavailable("simulated: too busy")

    async def _maybe_answer_late(self) -> None:
        if self.faults.late and self.rng.random() < self.faults.late:
            self.lates += 1
            self.clock.forward(self.rng.choice([0, 5, 45]))
            for _ in range(self.rng.choice([5, 50, 500])):
                await Turn()

    def _maybe_fail(self) -> None:
        if self.faults.fail and self.rng.random() < self.faults.fail:
            raise Unavailable("simulated")

    async def calm_io(self, effect: Callable[[], Awaitable[T]]) -> T:
        """One I/O of somebody to whom nothing happens."""
        await Turn()
        return await effect()

    async def slow_io(self, effect: Callable[[], Awaitable[T]]) -> T:
        """One I/O of somebody to whom nothing happens, but who is slow."""
        for _ in range(self.rng.randrange(20)):
            await Turn()
        return await effect()

    def storage(self) -> Storage:
        return Storage(self, self.io)

    def calm_storage(self) -> Storage:
        return Storage(self, self.calm_io)

    def slow_storage(self) -> Storage:
        return Storage(self, self.slow_io)

    def run(
        self,
        processes: dict[str, Callable[[], list[Coroutine[Any, Any, None]]]],
        is_settled: Callable[[], bool],
        *,
        calm_after: int,
        steps_max: int = 60_000,
    ) -> None:
        """Run until settled; a crashed process starts again from nothing.

        After `calm_after` I/Os no more faults happen: then everything must settle.
        """
        alive = {name: start() for name, start in processes.items()}
        names = sorted(alive)
        try:
            for step in range(steps_max):
                if self.ios > calm_after:
                    self.faults.calm()
                if step % 10 == 0 and self._look(is_settled):
                    return
                self._turn(self.rng.choice(names), alive, processes)
        finally:
            for coroutine in (each for coroutines in alive.values() for each in coroutines):
                coroutine.close()
        raise AssertionError("no progress: the system did not settle")

    def _look(self, is_settled: Callable[[], bool]) -> bool:
        self.clock.forward(0.5)
        return is_settled()

    def _turn(
        self,
        name: str,
        alive: dict[str, list[Coroutine[Any, Any, None]]],
        processes: dict[str, Callable[[], list[Coroutine[Any, Any, None]]]],
    ) -> None:
        if not alive[name]:
            return
        self.running = name
        coroutine = self.rng.choice(alive[name])
        self.lane = id(coroutine)
        try:
            coroutine.send(None)
        except StopIteration:
            alive[name].remove(coroutine)
        except Crash:
            for each in alive[name]:
                each.close()
            self.on_crash(name)
            self.clock.forward(1)
            alive[name] = processes[name]()


class _Faulty:
    """A port whose every call is one I/O of the world."""

    def __init__(self, io: Callable[..., Coroutine[Any, Any, Any]], inner: Any) -> None:
        self._io = io
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if name == "batches":
            return self._batches
        method = getattr(self._inner, name)
        io = self._io

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await io(lambda: method(*args, **kwargs))

        return call

    async def _batches(self, batches: Sequence[Batch]) -> list[list[str]]:
        """One I/O each: the process may die between any two."""
        return [await self._io(functools.partial(self._inner.batch, *batch)) for batch in batches]


class Storage:
    def __init__(self, world: World, io: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self.tables: Tables = _Faulty(io, world.disk.tables)
        self.queues: Queues = _Faulty(io, world.disk.queues)
        self.blobs: Blobs = _Faulty(io, world.disk.blobs)
        self.troubles = world.disk.troubles

    async def close(self) -> None:
        return


def instantly(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over the bare disk, which never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the bare disk waited")
