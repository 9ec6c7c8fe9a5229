"""How quick the pages and the web service are while a message goes out to a long list.

Real processes: a scheduler, a sender and one web role on one SQLite file; the callers are here.
Then a second sender helps until the last mail, and the memory of all is told.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from postroom.actions import sign_in
from postroom.actions.sign_in import Browser
from postroom.domain.address import parse_address
from postroom.domain.user import Role, User
from postroom.records import counts, keys, messages, users
from postroom.wiring import Parts
from postroom_bench.installation import LIST, Installation, is_completed, until
from postroom_bench.ports import held_port

READY_S = 120.0
RUN_S_MAX = 3600.0
ROLES = ("web", "scheduler", "sender")
PAGE_CALLERS = 4
PAGE_CALLS = 200  # each page
API_CALLERS = 16
API_S = 10.0
SENT_BEFORE = 1000  # mails, so that the load is there


class Timing(msgspec.Struct, frozen=True):
    what: str
    calls: int
    per_s: float
    median_ms: float
    p95_ms: float
    worst_ms: float


class PageFigures(msgspec.Struct, frozen=True):
    people: int
    timings: list[Timing]
    sent_before: int
    sent_after: int  # it was under load
    peaks_mb: list[tuple[str, float]]  # of each process, up to the last mail

    @property
    def together_mb(self) -> float:
        return sum(peak for _, peak in self.peaks_mb)


async def measure_pages(people: int, say: Callable[[str], None]) -> PageFigures:
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder, held_port() as port:
        async with Installation(Path(folder)) as installation, installation.parts() as parts:
            say(f"{people:,} people join")
            await installation.people(parts, people)
            await counts.fold(parts.storage.tables, LIST)
            installation.overrides["POSTROOM_BIND"] = f"127.0.0.1:{port}"
            roles = [(role, await installation.start(role)) for role in ROLES]
            await until(lambda: is_listening(port), within_s=READY_S)
            ref = await installation.message(parts)
            await until(lambda: has_begun(installation), within_s=READY_S)
            before = await installation.arrived_number()
            timings = await _ask_for_pages(port, parts, ref, people, say)
            timings.append(await _sign_up(port, parts, say))
            after = await installation.arrived_number()
            say("waiting for the last mail, with one more sender")
            roles.append(("sender", await installation.start("sender")))
            await until(lambda: is_completed(parts, ref), within_s=RUN_S_MAX)
            peaks = [(name, role.peak_mb()) for name, role in roles]
            return PageFigures(people, timings, before, after, peaks)


async def _ask_for_pages(
    port: int, parts: Parts, ref: str, people: int, say: Callable[[str], None]
) -> list[Timing]:
    headers = f"Cookie: postroom={await session_of(parts)}\r\n"
    found = await messages.read(parts.storage.tables, ref)
    last = f"student{people - 1}"
    paths = {
        "overview": ["/admin"],
        "lists": ["/admin/lists"],
        "list": [f"/admin/lists/{LIST}"],
        "subscribers": [f"/admin/subscribers?list={LIST}"],
        "search": [f"/admin/subscribers?list={LIST}&q={last[:n]}" for n in range(1, len(last))],
        "messages": ["/admin/messages"],
        "message": [f"/admin/messages/{found.ref}"],
    }
    timings = []
    for what, choices in paths.items():
        say(f"asking for {what}")
        requests = (f"GET {path} HTTP/1.1\r\nHost: bench\r\n{headers}\r\n".encode()
                    for path in itertools.cycle(choices))  # fmt: skip
        timings.append(await timed(what, port, requests, PAGE_CALLERS, calls=PAGE_CALLS))
    return timings


async def _sign_up(port: int, parts: Parts, say: Callable[[str], None]) -> Timing:
    say("signing people up")
    key, _ = await keys.create(parts.storage.tables, "bench", (), parts.clock.now())
    requests = (sign_up_call(key, f"joiner{number}@contoso.edu") for number in itertools.count())
    return await timed("subscribe", port, requests, API_CALLERS, for_s=API_S)


def sign_up_call(key: str, address: str) -> bytes:
    body = json.dumps({"list": LIST, "email": address}).encode()
    head = (
        f"POST /api/v1/subscribe HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def timed(
    what: str,
    port: int,
    requests: Iterator[bytes],
    callers: int,
    *,
    calls: int | None = None,
    for_s: float = 3600.0,
) -> Timing:
    """So many calls, or for so long, from callers that wait for each answer."""
    taken: list[float] = []
    started = time.monotonic()

    async def caller() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() - started < for_s and (calls is None or len(taken) < calls):
            began = time.monotonic()
            writer.write(next(requests))
            status = await answer(reader)
            assert status in (200, 202), f"{what}: {status}"
            taken.append(time.monotonic() - began)
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    elapsed_s = time.monotonic() - started
    taken.sort()
    return Timing(
        what,
        len(taken),
        len(taken) / elapsed_s,
        statistics.median(taken) * 1000,
        taken[int(len(taken) * 0.95)] * 1000,
        taken[-1] * 1000,
    )


async def answer(reader: asyncio.StreamReader) -> int:
    """The status of the next answer, whose body is read and thrown away."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


async def session_of(parts: Parts) -> str:
    tables, now = parts.storage.tables, parts.clock.now()
    address = parse_address("owner@contoso.edu")
    user = User(
        address=address.typed,
        key=address.storage_key,
        role=Role.OWNER,
        password="",
        created_at=now,
        sessions_from=now,
    )
    await users.add(tables, user)
    return await sign_in.begin(tables, user, Browser("127.0.0.1", "bench"), now)


async def is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def has_begun(installation: Installation) -> bool:
    return await installation.arrived_number() > SENT_BEFORE
