"""How many senders the supervisor wants, and that it stops when it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from postroom import settings
from postroom.clock import WallClock
from postroom.intervals import LOCAL
from postroom.nursery import environ_with
from postroom.records.names import SINGLE_MAIL_QUEUE, STORAGE_NAMES
from postroom.storage.counting import CountingStorage
from postroom.storage.memory import MemoryStorage
from postroom.supervisor import Child, Supervisor, _count_items, wanted_senders
from postroom.wakeup import SENDER, WakeUps
from postroom.wiring import Parts

FEW = settings.load(
    {"POSTROOM_SENDERS_MIN": "1", "POSTROOM_SENDERS_MAX": "4"}, Path("/nonexistent.toml")
)


@pytest.mark.parametrize(
    ("items", "running", "wanted"),
    [
        (0, 0, 1),  # never fewer than the minimum
        (1, 1, 1),
        (5, 1, 1),
        (6, 1, 2),
        (16, 2, 4),
        (10_000, 4, 4),  # never more than the maximum
        (5, 3, 3),  # a queue that gets short is no reason to stop one
        (0, 3, 1),  # an empty one is
    ],
)
def test_senders_follow_the_queue(items: int, running: int, wanted: int) -> None:
    assert wanted_senders(items, running, FEW) == wanted


def test_a_minimum_of_none_lets_all_of_them_go() -> None:
    none = settings.load(
        {"POSTROOM_SENDERS_MIN": "0", "POSTROOM_SENDERS_MAX": "2"}, Path("/nonexistent.toml")
    )
    assert wanted_senders(0, 2, none) == 0
    assert wanted_senders(1, 0, none) == 1


@pytest.mark.parametrize(("sign_ups", "wanted"), [(0, 0), (1, 1), (500, 1), (501, 2)])
async def test_sign_ups_alone_bring_a_sender_up(
    sign_ups: int, wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = settings.load(
        {"POSTROOM_SENDERS_MIN": "0", "POSTROOM_SENDERS_MAX": "2"}, Path("/nonexistent.toml")
    )
    clock = WallClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    await storage.queues.put(SINGLE_MAIL_QUEUE, *["guid,contoso1"] * sign_ups)
    parts = Parts(few, clock, CountingStorage(storage), WakeUps(tmp_path), LOCAL)
    supervisor = Supervisor(few)
    monkeypatch.setattr(Child, "start", lambda _child: None)
    for _look in range(3):
        items = await _count_items(parts.storage.queues)
        supervisor._start_or_stop_one(items)
    assert len(supervisor._senders) == wanted


async def test_asked_to_stop_it_does_not_wait_for_a_storage_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call may take a minute: its children would be killed before they were asked."""
    clock, is_asked = WallClock(), asyncio.Event()
    storage = MemoryStorage(clock, STORAGE_NAMES)

    async def silent(_queue: str) -> int:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(storage.queues, "length", silent)
    wakeups = WakeUps(tmp_path)
    parts = Parts(FEW, clock, CountingStorage(storage), wakeups, LOCAL)
    supervisor, wakeup = Supervisor(FEW), wakeups.listen(SENDER)
    working = asyncio.create_task(supervisor._work_until_stopped(parts, wakeup))
    await is_asked.wait()
    supervisor._on_signal()
    async with asyncio.timeout(60):
        await working
    wakeup.close()


def test_every_role_has_a_metrics_port_of_its_own_also_if_a_file_names_the_first(
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
