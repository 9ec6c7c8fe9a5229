"""The promises on a storage far away: throttled, late, answers lost, pages without rows."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from postroom.domain.message import OnDoubt
from postroom.records.names import STORAGE_NAMES
from postroom.storage.azure.storage import AzureStorage
from postroom.storage.port import Blobs, Queues, Storage, Tables
from tests.contract.azurite import azurite
from tests.simulation.mailing import Mailing, small_sizes
from tests.simulation.weather import FAR_AWAY, of_kind, run_each
from tests.simulation.world import Clock

RUNS = 400
CHUNK = 100
ON_AZURITE = 3  # runs; each takes seconds there
CALL_S = 60.0


def run(seed: int, disk: Callable[[Clock], Any] | None = None) -> Mailing:
    on_doubt = OnDoubt.HOLD if seed % 2 else OnDoubt.RESEND
    mailing = Mailing(seed, on_doubt=on_doubt, disk=disk, **of_kind(FAR_AWAY))
    mailing.run()
    return mailing


@pytest.mark.parametrize("first", range(0, RUNS, CHUNK))
def test_the_promises_hold_far_away_too(first: int) -> None:
    run_each(range(first, first + CHUNK), run)


def test_the_service_is_really_far_away() -> None:
    lates = refusals = 0
    with small_sizes():
        for seed in range(20):
            world = run(seed).world
            lates += world.lates
            refusals += world.refusals
    assert min(lates, refusals) > 20


class Waiting:
    """A port whose calls are made in another thread and waited for: they answer at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return wait_for(self._loop, method(*args, **kwargs))

        return call


class AtAzurite:
    """The emulator as a disk of the world: real calls, at the pace of the simulation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, storage: Storage) -> None:
        self.tables: Tables = Waiting(loop, storage.tables)
        self.queues: Queues = Waiting(loop, storage.queues)
        self.blobs: Blobs = Waiting(loop, storage.blobs)
        self.troubles = storage.troubles

    async def close(self) -> None:
        """Whoever opened the storage closes it."""


def wait_for(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(CALL_S)


@pytest.fixture
def loop_beside() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("seed", range(ON_AZURITE))
def test_the_promises_hold_on_the_emulator(
    seed: int, loop_beside: asyncio.AbstractEventLoop
) -> None:
    opened: list[AzureStorage] = []

    def at_azurite(clock: Clock) -> AtAzurite:
        emulator, prefix = azurite(), f"s{secrets.token_hex(6)}"
        clock.followers.append(emulator.move)
        opening = AzureStorage.open(emulator.account, clock, STORAGE_NAMES, prefix=prefix)
        opened.append(wait_for(loop_beside, opening))
        return AtAzurite(loop_beside, opened[0])

    try:
        with small_sizes():
            run(seed, at_azurite)
    finally:
        for storage in opened:
            wait_for(loop_beside, storage.close())
