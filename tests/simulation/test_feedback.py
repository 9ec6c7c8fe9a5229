"""Feedback in bad weather: events are reported, dealt with, and settle doubts while senders die.

A provider reports what it really took, again and again until it gets an answer; two processes deal
with it. At the end everybody who was reported counts once, whoever the server does not know is
suppressed, and no doubt was settled by a report that nobody made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from postroom.domain.delivery import State
from postroom.domain.feedback import FeedbackEvent, FeedbackKind
from postroom.domain.message import OnDoubt
from postroom.domain.suppression import SuppressionReason
from postroom.flow.feedback import FeedbackHandler
from postroom.records import feedback, suppressions
from postroom.storage.port import StorageError
from tests.simulation.mailing import Mailing, small_sizes
from tests.simulation.post import SITE
from tests.simulation.weather import assert_caught, of_kind, run_each, weather_of
from tests.simulation.world import Turn, instantly

RUNS = 120
CHUNK = 60
MUTANT_RUNS = 160
MANY_CRASHES = {"crash": 0.06, "trouble": 0.05, "people": 2}


class ReportedMailing(Mailing):
    """A mailing whose server reports about every mail that it took."""

    doubt_s = 120.0

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.reported: set[str] = set()

    def _processes(self) -> dict[str, Callable[[], list[Coroutine[Any, Any, None]]]]:
        handlers = {name: self._handler(name) for name in ("handler-1", "handler-2")}
        return super()._processes() | handlers | {"provider": lambda: [self._report()]}

    def _handler(self, name: str) -> Callable[[], list[Coroutine[Any, Any, None]]]:
        def start() -> list[Coroutine[Any, Any, None]]:
            clock = self.world.clock_of(name)
            handler = FeedbackHandler(self.world.storage(), clock, SITE.secret)

            async def loop() -> None:
                while True:
                    with contextlib.suppress(StorageError):
                        await handler.step()
                    await Turn()

            return [loop()]

        return start

    async def _report(self) -> None:
        """In any order, some of it twice, each until it is stored."""
        while True:
            waiting = sorted(set(+self.post.arrived) - self.reported)
            if waiting:
                address = self.world.rng.choice(waiting)
                kinds = [FeedbackKind.ACCEPTED, FeedbackKind.DELIVERED]
                self.world.rng.shuffle(kinds)
                for kind in [*kinds, kinds[0]]:
                    await self._post_until_answered(address, kind)
                self.reported.add(address)
            await Turn()

    async def _post_until_answered(self, address: str, kind: FeedbackKind) -> None:
        event = FeedbackEvent(
            id=f"{kind}-{address}",
            kind=kind,
            at=self._now(),
            source="sendgrid",
            delivery=self.post.tokens[address],
            address=address,
        )
        while True:
            try:
                await feedback.take_in(self.world.slow_storage(), [event])
                return
            except StorageError:
                await Turn()

    def _is_settled(self) -> bool:
        if not super()._is_settled() or set(+self.post.arrived) - self.reported:
            return False
        return not instantly(feedback.shards_with_events(self.world.disk.tables))

    def _check_fates(self, fates: dict[str, State]) -> None:
        """A retry skips people whose address turned out to be dead."""
        self.left |= self.post.refused
        super()._check_fates(fates)

    def _check(self) -> None:
        super()._check()
        tables = self.world.disk.tables
        summary = instantly(feedback.find_summary(tables, self.ref))
        assert summary.count(FeedbackKind.DELIVERED) == len(self.reported), "not counted once"
        refused = self.post.refused & {
            address for address, state in self._fates().items() if state is State.FAILED
        }
        assert summary.classes.get("dead", 0) >= len(refused), "a refusal was not heard"
        known = instantly(self._suppressed())
        assert refused <= known <= self.post.refused, (refused, known)

    async def _suppressed(self) -> set[str]:
        return {
            entry.address
            async for _name, (entry, _etag) in suppressions.everyone(self.world.disk.tables)
            if entry.reason is SuppressionReason.DEAD
        }


def run(seed: int) -> ReportedMailing:
    return run_in(weather_of(seed), seed)


def run_in(weather: dict[str, Any], seed: int) -> ReportedMailing:
    on_doubt = OnDoubt.HOLD if seed % 2 else OnDoubt.RESEND
    mailing = ReportedMailing(seed, on_doubt=on_doubt, **weather)
    mailing.run()
    return mailing


@pytest.mark.parametrize("first", range(0, RUNS, CHUNK))
def test_every_report_counts_once_whatever_happens_when(first: int) -> None:
    run_each(range(first, first + CHUNK), run)


def test_doubts_are_really_settled_by_reports() -> None:
    """Or the runs above prove nothing."""
    settled = 0
    with small_sizes():
        for seed in range(40):
            mailing = run(seed)
            held = sum(state is State.HELD for state in mailing._fates().values())
            settled += mailing.final.books.doubts - held
    assert settled > 5


async def forget_first(self: FeedbackHandler, shard: str) -> bool:
    """Delete events before they are dealt with."""
    tables = self.storage.tables
    rows, has_more = await feedback.pending(tables, shard, limit=500)
    await feedback.forget_pending(tables, shard, rows)
    await self._handle_events([feedback.event_of(row) for row in rows])
    return not has_more


async def count_without_bits(tables: Any, ref: str, events: Any) -> Any:
    """Count every event, whether or not its recipient is counted already."""
    found = await feedback.find_row(  # type: ignore[attr-defined]
        tables, feedback.TABLE, f"m-{ref}", "summary", feedback.FeedbackSummary
    )
    summary = found.value if found else feedback.FeedbackSummary()
    for located in events:
        summary = feedback._added(summary, located)
    await tables.upsert(
        feedback.TABLE,
        f"m-{ref}",
        "summary",
        feedback.to_properties(summary),  # type: ignore[attr-defined]
    )
    return summary


@pytest.mark.parametrize(
    "mutate",
    [
        lambda patch: patch.setattr(FeedbackHandler, "handle_shard", forget_first),
        lambda patch: patch.setattr(feedback, "record", count_without_bits),
    ],
    ids=["forget first", "count without bits"],
)
def test_a_wrong_order_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert_caught(range(MUTANT_RUNS), lambda seed: run_in(of_kind(MANY_CRASHES), seed))
