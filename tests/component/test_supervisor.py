"""How many senders the supervisor wants, and that it stops when it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from postroom import settings
from postroom.clock import WallClock
from postroom.domain.instance import Vitals
from postroom.domain.scaling import SHRINK_AFTER_S, QueueSnapshot, SenderLimits
from postroom.intervals import LOCAL
from postroom.nursery import environ_with
from postroom.records.names import MAIL_QUEUE, SINGLE_MAIL_QUEUE, STORAGE_NAMES
from postroom.records.queue_watch import QueueWatch
from postroom.scaling import SenderScaling
from postroom.storage.counting import CountingStorage
from postroom.storage.memory import MemoryStorage
from postroom.supervisor import HEALTHY_S, RESTART_S_LONGEST, Child, Supervisor, restart_pause_s
from postroom.wakeup import SENDER, WakeUps
from postroom.wiring import Parts
from postroom.wiring.following import LiveSettings
from tests.clock import MovableClock

FEW = settings.load(
    {"POSTROOM_SENDERS_MIN": "0", "POSTROOM_SENDERS_MAX": "4"}, Path("/nonexistent.toml")
)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage(WallClock(), STORAGE_NAMES)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """The children that would have been started."""
    found: list[Child] = []
    monkeypatch.setattr(Child, "start", lambda child: found.append(child))
    return found


async def look(supervisor: Supervisor, storage: MemoryStorage, clock: MovableClock) -> int:
    scaling = SenderScaling(storage.queues, clock)
    await supervisor._adjust_once(FEW, scaling)
    return len(supervisor._senders)


@pytest.mark.parametrize(
    ("queue", "items", "wanted"),
    [
        (MAIL_QUEUE, 0, 0),
        (MAIL_QUEUE, 1, 1),
        (MAIL_QUEUE, 42, 4),
        (SINGLE_MAIL_QUEUE, 1, 1),  # sign-ups alone
        (SINGLE_MAIL_QUEUE, 3_000, 4),
    ],
)
async def test_all_senders_that_a_queue_needs_start_at_once(
    queue: str, items: int, wanted: int, storage: MemoryStorage, started: list[Child]
) -> None:
    await storage.queues.put(queue, *(f"guid{number},contoso1" for number in range(items)))
    assert await look(Supervisor(FEW), storage, MovableClock()) == wanted
    assert len({child.number for child in started}) == wanted  # a metrics port each


async def test_items_that_wait_for_a_later_try_need_no_sender(
    storage: MemoryStorage, started: list[Child]
) -> None:
    await storage.queues.put(MAIL_QUEUE, "2026-11-18,1,ada,0,0", delay_s=3600)
    assert await look(Supervisor(FEW), storage, MovableClock()) == 0
    assert started == []


async def test_the_idlest_sender_is_stopped_and_a_change_is_reported(
    storage: MemoryStorage, started: list[Child]
) -> None:
    supervisor, clock = Supervisor(FEW), MovableClock()
    scaling = SenderScaling(storage.queues, clock)
    await storage.queues.put(MAIL_QUEUE, *(f"item{number}" for number in range(12)))
    await supervisor._adjust_once(FEW, scaling)
    busy, idle, busy_too = supervisor._senders
    for child, hand in ((busy, 4), (idle, 0), (busy_too, 3)):
        child._reader.feed(msgspec.json.encode(Vitals(busy=hand)) + b"\n")
    for claim in await storage.queues.claim(MAIL_QUEUE, limit=32, lease_s=600):
        await storage.queues.complete(claim)
    await supervisor._adjust_once(FEW, scaling)
    clock.move(SHRINK_AFTER_S)
    await supervisor._adjust_once(FEW, scaling)
    assert supervisor._senders == [busy, busy_too]
    assert idle.stopping
    assert [(each.before, each.after) for each in scaling.changes] == [(3, 2), (0, 3)]


async def test_a_check_of_empty_queues_costs_two_calls(storage: MemoryStorage) -> None:
    """Far away an idle supervisor looks four times a minute."""
    counted = CountingStorage(storage)
    scaling = SenderScaling(counted.queues, MovableClock())
    assert await scaling.wanted([Vitals()], 0.0, SenderLimits(1, 4)) == 1
    assert counted.calls.total == 2
    assert scaling.is_calm


async def test_limits_that_were_changed_count_at_the_next_look(
    storage: MemoryStorage, started: list[Child]
) -> None:
    supervisor = Supervisor(FEW)
    scaling = SenderScaling(storage.queues, MovableClock())
    await supervisor._adjust_once(FEW.model_copy(update={"senders_min": 3}), scaling)
    assert len(supervisor._senders) == 3
    await supervisor._adjust_once(FEW.model_copy(update={"senders_max": 1}), scaling)
    assert len(supervisor._senders) == 1
    assert str(scaling.changes[0].reason.sentence) == "The maximum is 1."


async def test_the_first_item_is_as_old_as_it_was_seen_waiting(storage: MemoryStorage) -> None:
    clock = MovableClock()
    watch = QueueWatch(storage.queues, clock, MAIL_QUEUE)
    assert await watch.snapshot() == QueueSnapshot(0, 0.0)
    await storage.queues.put(MAIL_QUEUE, "first", "second")
    assert await watch.snapshot() == QueueSnapshot(2, 0.0)
    clock.move(20)
    assert await watch.snapshot() == QueueSnapshot(2, 20.0)
    [claim] = await storage.queues.claim(MAIL_QUEUE, limit=1, lease_s=600)
    assert await watch.snapshot() == QueueSnapshot(1, 0.0)
    await storage.queues.complete(claim)


async def test_asked_to_stop_it_does_not_wait_for_a_storage_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call may take a minute: its children would be killed before they were asked."""
    clock, is_asked = WallClock(), asyncio.Event()
    storage = MemoryStorage(clock, STORAGE_NAMES)

    async def silent(_queue: str, *, limit: int) -> int:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(storage.queues, "peek", silent)
    wakeups = WakeUps(tmp_path)
    parts = Parts(FEW, clock, CountingStorage(storage), wakeups, LOCAL)
    supervisor, wakeup = Supervisor(FEW), wakeups.listen(SENDER)
    live = LiveSettings(FEW, parts.storage, clock)
    working = asyncio.create_task(supervisor._work_until_stopped(parts, live, wakeup))
    await is_asked.wait()
    supervisor._on_signal()
    async with asyncio.timeout(60):
        await working
    wakeup.close()


def test_every_role_has_its_own_metrics_port_even_if_a_file_names_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POSTROOM_METRICS_BIND_FILE", "/run/secrets/bind")
    monkeypatch.setenv("POSTROOM_LANES_FILE", "/run/secrets/lanes")
    measured = FEW.model_copy(update={"metrics_bind": "127.0.0.1:9464"})
    child = Supervisor(measured)._child("scheduler", 1)
    assert child.environ == {"POSTROOM_METRICS_BIND": "127.0.0.1:9465"}
    environ = environ_with(child.environ)
    assert "POSTROOM_METRICS_BIND_FILE" not in environ
    assert environ["POSTROOM_LANES_FILE"] == "/run/secrets/lanes"
    assert environ["POSTROOM_METRICS_BIND"] == "127.0.0.1:9465"


def test_a_role_that_was_healthy_restarts_at_once_and_one_that_cannot_start_ever_later() -> None:
    pauses = [0.0]
    for _attempt in range(10):
        pauses.append(restart_pause_s(1.0, pauses[-1]))
    assert pauses[1:4] == [0.2, 0.4, 0.8]
    assert pauses[-1] == RESTART_S_LONGEST
    assert restart_pause_s(HEALTHY_S + 1, RESTART_S_LONGEST) == 0
