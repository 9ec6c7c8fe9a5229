"""Measure what an operator relies on; each prints its figures.

    python -m postroom_soak.operator_bar traces 1000000    pages of that many traces and rows
    python -m postroom_soak.operator_bar disk 100000       the disk is full for a minute (as root)
    python -m postroom_soak.operator_bar scheduler 10      kills of the scheduler under `serve`

Times mean little if anything else runs on the machine.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import repeat
from pathlib import Path

from postroom.domain.trace_entry import TraceEntry, TraceLevel
from postroom.records import traces
from postroom.records.traces import KeyedTrace
from postroom.wiring import Parts
from postroom_bench.descendants import descendants_named
from postroom_bench.installation import Installation, Process, books, is_completed, until
from postroom_bench.pages import is_listening, session_of, timed
from postroom_bench.ports import held_port
from postroom_soak.__main__ import mounted_disk
from postroom_soak.faults import fill

STARTED_S = 120.0
WITHIN_S = 600.0
FULL_S = 60.0
DISK_MINUTES = 4.0  # of a soak, whose disk is large enough
SENT_BEFORE = 0.1  # of the recipients, when the disk fills up
CALLS = 40
TOGETHER = 500
INSTANCES = 16
MESSAGES = 50
SECONDS_APART = 0.08  # a million of them are of the last day


class Served(Installation):
    """An installation with a running `serve` and an owner who is signed in."""

    @asynccontextmanager
    async def serving(self, parts: Parts) -> AsyncIterator[tuple[Process, int, str]]:
        with held_port() as port:
            self.overrides["POSTROOM_BIND"] = f"127.0.0.1:{port}"
            session = await session_of(parts)
            serve = await self.start("serve")
            await until(lambda: is_listening(port), within_s=STARTED_S)
            yield serve, port, session


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def request_for(path: str, session: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: bar\r\nCookie: postroom={session}\r\n\r\n".encode()


async def page_text(port: int, path: str, session: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_for(path, session))
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
    text = (await reader.readexactly(length)).decode()
    writer.close()
    return text


# --- Pages of a million traces, and of a million rows ---------------------------------------------


async def measure_traces(folder: Path, number: int) -> None:
    async with Served(folder) as installation, installation.parts() as parts:
        started = time.monotonic()
        await write_traces(parts, number)
        say(f"{number:,} traces written in {time.monotonic() - started:.0f} s")
        async with installation.serving(parts) as (_serve, port, session):
            for path in (
                "/admin/traces",
                "/admin/traces?level=error",
                "/admin/traces?role=sender&level=info",
                f"/admin/traces?instance=vm.{INSTANCES - 1}",
                f"/admin/traces?message={MESSAGES - 1}",
                "/admin/traces?text=this+is+nowhere",
                "/admin/storage/tables/trace",
                "/admin/storage/tables/trace?name=Event&type=text&value=nothing",
            ):
                requests = repeat(request_for(path, session))
                figures = await timed(path, port, requests, 1, calls=CALLS)
                say(
                    f"{path}: median {figures.median_ms:.0f} ms, p95 {figures.p95_ms:.0f} ms, "
                    f"worst {figures.worst_ms:.0f} ms"
                )


async def write_traces(parts: Parts, number: int) -> None:
    dice = random.Random(1)
    now = parts.clock.now()
    for start in range(0, number, TOGETHER):
        together: list[KeyedTrace] = []
        for at in range(start, min(start + TOGETHER, number)):
            time_ = now - timedelta(seconds=(number - at) * SECONDS_APART)
            instance = f"vm.{at % INSTANCES}"
            entry = TraceEntry(
                at=time_,
                level=TraceLevel.INFO if dice.random() < 0.95 else dice.choice(list(TraceLevel)),
                role=("web", "scheduler", "sender", "supervisor")[at % 4],
                instance=instance,
                event="slice_sent",
                words=f"Slice {at} of a batch was sent in {at % 97} ms.",
                ref=str(at % MESSAGES) if at % 5 == 0 else "",
                person="",
                fields={"count": at % 99},
            )
            together.append(KeyedTrace(traces.trace_key(time_, at % 1_000_000, instance), entry))
        await traces.write(parts.storage.tables, together)


# --- A full disk ----------------------------------------------------------------------------------


async def measure_full_disk(folder: Path, people: int) -> None:
    with mounted_disk(folder, DISK_MINUTES) as disk:
        assert disk, "it needs a disk of its own: run it as root"
        storage = {"POSTROOM_STORAGE": f"sqlite:///{disk / 'postroom.db'}"}
        installation = Served(folder, overrides=storage)
        async with installation, installation.parts() as parts:
            await installation.people(parts, people)
            async with installation.serving(parts) as (serve, port, session):
                await fill_for_a_minute(installation, parts, disk, people, port, session)
                assert await serve.terminate(STARTED_S) == 0


async def fill_for_a_minute(
    installation: Installation, parts: Parts, disk: Path, people: int, port: int, session: str
) -> None:
    async def has_alarm() -> bool:
        return 'id="full-disk"' in await page_text(port, "/admin", session)

    async def is_going_out() -> bool:
        return await installation.arrived_number() >= people * SENT_BEFORE

    async def goes_on() -> bool:
        return await installation.arrived_number() > sent

    ref = await installation.message(parts)
    await until(is_going_out, within_s=WITHIN_S, every_s=0.01)
    filled_at = time.monotonic()
    await asyncio.to_thread(fill, disk / "filler")
    await until(has_alarm, within_s=FULL_S, every_s=0.2)
    say(f"alarm on the overview after {time.monotonic() - filled_at:.1f} s")
    await asyncio.sleep(filled_at + FULL_S - time.monotonic())
    sent = await installation.arrived_number()
    (disk / "filler").unlink()
    freed_at = time.monotonic()
    await until(goes_on, within_s=WITHIN_S, every_s=0.1)
    say(f"sending goes on {time.monotonic() - freed_at:.1f} s after there is room")
    await until(lambda: is_completed(parts, ref), within_s=WITHIN_S)
    arrived = await installation.arrived()
    message = await books(parts, ref)
    twice = sum(count - 1 for count in arrived.values())
    say(f"{people:,} people: {len(arrived):,} got it, {twice} a second copy; {message.books}")
    assert (len(arrived), twice) == (people, 0)
    assert message.books.total == message.audience == people


# --- A killed scheduler ---------------------------------------------------------------------------


async def measure_scheduler(folder: Path, kills: int) -> None:
    def leaders() -> int:
        return sum(line["event"] == "scheduler_leads" for line in serve.lines())

    async def has_new_leader() -> bool:
        return leaders() > before

    before = 0
    async with (
        Served(folder) as installation,
        installation.parts() as parts,
        installation.serving(parts) as (serve, _port, _session),
    ):
        await until(has_new_leader, within_s=STARTED_S)
        for _kill in range(kills):
            await asyncio.sleep(6)  # a role that ran for less is restarted after a pause
            before = leaders()
            [scheduler] = descendants_named(serve.pid, "pr:scheduler")
            killed_at = time.monotonic()
            os.kill(scheduler, signal.SIGKILL)
            await until(has_new_leader, within_s=STARTED_S, every_s=0.01)
            say(f"another leads after {time.monotonic() - killed_at:.2f} s")
        assert await serve.terminate(STARTED_S) == 0


MEASURES = {"traces": measure_traces, "disk": measure_full_disk, "scheduler": measure_scheduler}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="postroom-operator-") as temporary:
        asyncio.run(MEASURES[sys.argv[1]](Path(temporary), int(sys.argv[2])))
