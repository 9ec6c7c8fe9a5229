"""A sender of confirmations dies at any call of storage: nobody is lost, nobody mailed thrice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from postroom.actions.send_test_mail import mail_test
from postroom.domain.address import parse_address
from postroom.flow import subscribe
from postroom.flow.confirm import Confirmer
from postroom.flow.render import Renderer
from postroom.records.names import SINGLE_MAIL_QUEUE, STORAGE_NAMES
from postroom.records.single_mail_items import CLAIM_S
from postroom.sending.lease import SendingLease
from postroom.sending.single_mails import SingleMailLane
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage
from postroom_bench.sink import Sink
from tests.acting import acting
from tests.clock import MovableClock
from tests.no_limits import NoLimits
from tests.scenario.town import LIST, RULES, SITE, Town, address_of

NAMES = ["ada", "bob", "temp-fail-once", "perm-fail", "zoe"]
CALLS_MAX = 60  # more than a slice of five makes


class Death(BaseException):
    """As kill -9: no handler of an error sees it."""


class Mortal:
    """A part of storage whose user dies at a call: before it, or after it took effect."""

    def __init__(self, part: object, calls: Calls) -> None:
        self._part = part
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self._part, name)

        async def counted(*arguments: Any, **named: Any) -> Any:
            self._calls.number += 1
            if self._calls.number > self._calls.last:
                raise Death
            answer = await call(*arguments, **named)
            if self._calls.is_done_at_death and self._calls.number == self._calls.last:
                raise Death
            return answer

        return counted


class Calls:
    def __init__(self, last: int, *, is_done_at_death: bool) -> None:
        self.number = 0
        self.last = last
        self.is_done_at_death = is_done_at_death


class MortalStorage:
    def __init__(self, storage: Storage, calls: Calls) -> None:
        self.tables = Mortal(storage.tables, calls)
        self.queues = Mortal(storage.queues, calls)
        self.blobs = Mortal(storage.blobs, calls)


async def live(town: Town, storage: Any) -> None:
    """One sender that mails what it finds, for as long as it lives."""
    clock = town.clock
    lease = SendingLease(storage, clock, "sender.1")
    lease.renewed(clock.monotonic(), 10.0**9)
    renderer = Renderer(storage, SITE, clock)
    lane = SingleMailLane(
        storage,
        clock,
        lease,
        NoLimits(clock),
        town.transport().lane(),
        Confirmer(storage, clock, renderer, RULES).mail,
        partial(mail_test, storage, renderer, clock),
    )
    try:
        while claims := await lane.claim():
            await lane.mail(claims)
    except Death:
        return
    finally:
        await lane.close()


@pytest.mark.parametrize("is_done_at_death", [False, True])
async def test_a_death_at_any_call_loses_nobody(
    sink: Sink, tmp_path: Path, is_done_at_death: bool
) -> None:
    deaths = 0
    for last in range(1, CALLS_MAX):
        sink.reset()
        sink.attempts.clear()
        clock = MovableClock()
        town = Town(MemoryStorage(clock, STORAGE_NAMES), clock, sink, tmp_path)
        await town.found_list()
        for name in NAMES:
            address = parse_address(address_of(name))
            await subscribe.sign_up(acting(town.storage, clock.now()), LIST, address, {})
        calls = Calls(last, is_done_at_death=is_done_at_death)
        await live(town, MortalStorage(town.storage, calls))
        deaths += calls.number >= last
        for _ in range(4):  # the next senders, after the claims lapse and the retry is due
            clock.move(CLAIM_S)
            await live(town, town.storage)
        arrived = town.arrived()
        assert arrived.keys() == set(NAMES) - {"perm-fail"}, last
        assert max(arrived.values()) <= 2, last
        assert await town.items(SINGLE_MAIL_QUEUE) == 0, last
        assert (await town.subscriber("perm-fail")).confirmation, last
        assert (await town.subscriber("temp-fail-once")).confirmation is None, last
    assert 10 < deaths < CALLS_MAX - 1  # the last lives never died: every call was tried
