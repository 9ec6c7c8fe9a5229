"""The faults of a soak: how each begins and ends, and which log lines it explains."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from postroom_soak.relay import Mood, Relay
from postroom_soak.roles import Roles

CLOCK_STEP_S = 2 * 3600.0
SLOW_COMMIT_S = 0.25
FILLER_BYTES = 1024 * 1024
AFTER_DEATH = frozenset({"forgotten_items_put"})  # what a death leaves to the others
SENDER_DEATH = AFTER_DEATH | {"batch_taken_over"}  # if it was sending
SCHEDULER_DEATH = AFTER_DEATH | {"message_taken_over"}  # if it was fanning out
STORAGE = frozenset(
    {
        "import_delayed",
        "item_left",
        "lease_not_renewed",
        "page_too_late",
        "poll_failed",
        "quotas_not_renewed",
        "storage_failed",
    }
)
RELAY = frozenset({"provider_in_trouble"})
CUT_OFF = RELAY | {"deliveries_in_doubt"}  # a connection that breaks after the hand-over


@dataclass
class Surroundings:
    """What the faults change around the program."""

    roles: Roles
    relay: Relay
    control: Path
    disk: Path | None  # a disk of its own, if this machine lets us mount one

    def set_control(self, **values: float) -> None:
        part = self.control.with_suffix(".part")
        part.write_text(json.dumps(values))
        part.replace(self.control)


@dataclass(frozen=True)
class Fault:
    """`lasting` is entered when it begins and left when it ends; `events` may be logged."""

    name: str
    lasting: Callable[[Surroundings], AbstractAsyncContextManager[None]]
    events: frozenset[str]


def killing(role: str) -> Callable[[Surroundings], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def kill(around: Surroundings) -> AsyncIterator[None]:
        await around.roles.kill(role)
        yield

    return kill


@asynccontextmanager
async def full_disk(around: Surroundings) -> AsyncIterator[None]:
    assert around.disk
    filler = around.disk / "filler"
    try:
        await asyncio.to_thread(fill, filler)
        yield
    finally:
        filler.unlink(missing_ok=True)


def fill(filler: Path) -> None:
    """Until not a byte is left; the file is written without a buffer."""
    piece = FILLER_BYTES
    with filler.open("wb", buffering=0) as file:
        while piece:
            try:
                file.write(b"\0" * piece)
            except OSError:
                piece //= 2
        with contextlib.suppress(OSError):
            os.fsync(file.fileno())


def clock_set(step_s: float) -> Callable[[Surroundings], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def step(around: Surroundings) -> AsyncIterator[None]:
        around.set_control(clock_off_s=step_s)
        try:
            yield
        finally:
            around.set_control()

    return step


@asynccontextmanager
async def slow_storage(around: Surroundings) -> AsyncIterator[None]:
    around.set_control(commit_s=SLOW_COMMIT_S)
    try:
        yield
    finally:
        around.set_control()


def relay_is(mood: Mood) -> Callable[[Surroundings], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def behave(around: Surroundings) -> AsyncIterator[None]:
        around.relay.behave(mood)
        try:
            yield
        finally:
            around.relay.behave(Mood.WELL)

    return behave


FULL_DISK = "disk full"
FAULTS = (
    Fault("kill sender", killing("sender"), SENDER_DEATH),
    Fault("kill scheduler", killing("scheduler"), SCHEDULER_DEATH),
    Fault("kill web", killing("web"), AFTER_DEATH),
    Fault(FULL_DISK, full_disk, STORAGE | AFTER_DEATH),
    Fault("clock ahead", clock_set(CLOCK_STEP_S), frozenset({"clock_was_set"}) | AFTER_DEATH),
    Fault("clock back", clock_set(-CLOCK_STEP_S), frozenset({"clock_was_set"}) | AFTER_DEATH),
    Fault("slow relay", relay_is(Mood.SLOW), RELAY),
    Fault("dead relay", relay_is(Mood.DEAD), CUT_OFF),
    Fault("slow storage", slow_storage, STORAGE),
)
