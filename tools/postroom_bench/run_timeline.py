"""The timeline of a run: writing the messages, and looking on until the last is in the archive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from postroom.domain.message import Message
from postroom.records import messages
from postroom.storage.port import Tables
from postroom.wiring import Parts
from postroom_bench.arrivals import Point
from postroom_bench.installation import LIST, Installation, is_completed, until
from postroom_bench.plan import Plan
from postroom_bench.sink import SAMPLE_S

LOOK_S = 0.02
LOOK_FAR_S = 0.25  # where looking on takes from what is measured
RUN_S_MAX = 3600.0
SMALL_LIST = "small"
SMALL_DUE_AT = 0.1  # of the mails have arrived
EARLIER_LIST = "earlier"
EARLIER_PEOPLE = 10
EARLIER_AT_ONCE = 200

Say = Callable[[str], None]


@dataclass
class RunTimeline:
    """When things happened, in seconds since the messages were due."""

    started: float  # by the monotonic clock
    pause_s: float  # between two looks
    seen: dict[str, Message] = field(default_factory=dict)  # the messages as they were last seen
    fanned_out_s: float = 0.0
    completed_s: float = 0.0
    fan_out: list[Point] = field(default_factory=list)
    small_completed_s: float | None = None  # of the small one, since that was due

    async def look(self, tables: Tables, ref: str) -> None:
        """Costs what is measured, and so there is one in each pause, however many messages."""
        await asyncio.sleep(self.pause_s)
        self.seen[ref] = await messages.read(tables, ref)
        self._note([*self.seen.values()])

    def _note(self, seen: Sequence[Message]) -> None:
        elapsed_s = time.monotonic() - self.started
        is_fanned_out = all(message.fanned_out for message in seen)
        is_due = not self.fan_out or elapsed_s - self.fan_out[-1][0] >= SAMPLE_S
        if not self.fanned_out_s and (is_due or is_fanned_out):
            self.fan_out.append((elapsed_s, sum(message.audience for message in seen)))
        if not self.fanned_out_s and is_fanned_out:
            self.fanned_out_s = elapsed_s
        if not self.completed_s and all(message.completed_at for message in seen):
            self.completed_s = elapsed_s


def name_of_list(number: int) -> str:
    return f"{LIST}-{number}" if number else LIST


async def fill_archive(installation: Installation, parts: Parts, number: int, say: Say) -> None:
    """Messages that the same roles sent before: every row that they leave behind is a real one."""
    if not number:
        return
    await installation.people(parts, EARLIER_PEOPLE, "early", list_name=EARLIER_LIST)
    for start in range(0, number, EARLIER_AT_ONCE):
        say(f"{start:,} of {number:,} earlier messages sent")
        batch = range(start, min(start + EARLIER_AT_ONCE, number))
        refs = [await installation.message(parts, list_name=EARLIER_LIST) for _ in batch]
        await _until_archived(parts.storage.tables, refs)
    await installation.forget_arrived()


async def _until_archived(tables: Tables, refs: Sequence[str]) -> None:
    for ref in refs:
        await until(partial(_is_archived, tables, ref), within_s=RUN_S_MAX, every_s=LOOK_S)


async def _is_archived(tables: Tables, ref: str) -> bool:
    return await messages.find_live(tables, ref) is None


async def begin(installation: Installation, parts: Parts, plan: Plan) -> RunTimeline:
    """Write the messages."""
    timeline = RunTimeline(time.monotonic(), LOOK_FAR_S if plan.storage else LOOK_S)
    for name in [name_of_list(number) for number in range(plan.lists)]:
        ref = await installation.message(
            parts,
            list_name=name,
            mail_bytes=plan.mail_bytes,
            written_as=plan.written_as,
            attachment_bytes=plan.attachment_bytes,
        )
        timeline.seen[ref] = await messages.read(parts.storage.tables, ref)
    return timeline


async def until_fanned_out(timeline: RunTimeline, tables: Tables, say: Say) -> None:
    await _watch(timeline, tables, say, lambda message: message.fanned_out)


async def look_on(
    timeline: RunTimeline, installation: Installation, parts: Parts, plan: Plan, say: Say
) -> None:
    """Until all are in the archive."""
    tables = parts.storage.tables
    async with asyncio.TaskGroup() as group:
        group.create_task(_watch(timeline, tables, say, lambda one: one.completed_at is not None))
        if plan.beside:
            group.create_task(_send_small(timeline, installation, parts, plan))
    await _until_archived(tables, [*timeline.seen])


async def _watch(
    timeline: RunTimeline, tables: Tables, say: Say, is_over: Callable[[Message], bool]
) -> None:
    said = time.monotonic()
    async with asyncio.timeout(RUN_S_MAX):
        while waited_for := [ref for ref, one in timeline.seen.items() if not is_over(one)]:
            for ref in waited_for:
                await timeline.look(tables, ref)
            if time.monotonic() - said > 1:
                said = time.monotonic()
                sent = sum(message.books.sent for message in timeline.seen.values())
                say(f"{sent:,} of {sum(one.audience for one in timeline.seen.values()):,} sent")


async def _send_small(
    timeline: RunTimeline, installation: Installation, parts: Parts, plan: Plan
) -> None:
    async def is_going_on() -> bool:
        return await installation.arrived_number() >= plan.recipients * SMALL_DUE_AT

    await until(is_going_on, within_s=RUN_S_MAX, every_s=LOOK_S)
    started = time.monotonic()
    ref = await installation.message(parts, list_name=SMALL_LIST, mail_bytes=plan.mail_bytes)
    await until(lambda: is_completed(parts, ref), within_s=RUN_S_MAX, every_s=LOOK_S)
    timeline.small_completed_s = time.monotonic() - started
