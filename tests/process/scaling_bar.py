"""Watch the number of senders follow the queues, from none to the maximum and back to none.

`python -m tests.process.scaling_bar 100000 300` is the whole bar: a message to 100,000 people, then
sign-ups alone; after each, the number must not change for 300 seconds. It prints when each number
of senders was first seen, in seconds after the work appeared.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from postroom.act import Act
from postroom.domain.address import parse_address
from postroom.flow import subscribe
from postroom.wiring import Parts
from postroom_bench.descendants import descendants_named
from postroom_bench.installation import LIST, Installation, is_completed, until
from postroom_bench.pages import is_listening
from postroom_bench.ports import held_port

SENDERS_MAX = 4
SIGN_UPS = 20_000
SIGN_UPS_TOGETHER = 50
LOOK_EVERY_S = 0.1
WITHIN_S = 600.0
STARTED_S = 120.0
STOPPED_S = 60.0


class SendersSeen:
    """How many senders of one `serve` run, and every change of that number."""

    def __init__(self, serve_pid: int) -> None:
        self._serve_pid = serve_pid
        self.changes: list[tuple[float, int]] = []  # seconds since `begin`, senders
        self._began = time.monotonic()

    def begin(self) -> None:
        self._began = time.monotonic()
        self.changes = [(0.0, self.now())]

    def now(self) -> int:
        return len(descendants_named(self._serve_pid, "pr:sender"))

    async def watch_until(self, is_done: Callable[[], Awaitable[bool]]) -> None:
        async def look() -> bool:
            number = self.now()
            if number != self.changes[-1][1]:
                self.changes.append((time.monotonic() - self._began, number))
            return await is_done()

        await until(look, within_s=WITHIN_S, every_s=LOOK_EVERY_S)

    async def watch_down_to_none(self, quiet_s: float) -> None:
        """Until there are none, and have been none for so long."""

        async def is_quiet() -> bool:
            since_s = time.monotonic() - self._began - self.changes[-1][0]
            return self.changes[-1][1] == 0 and len(self.changes) > 1 and since_s > quiet_s

        await self.watch_until(is_quiet)


async def run(folder: Path, people: int, quiet_s: float) -> None:
    with held_port() as port:
        settings = {
            "POSTROOM_BIND": f"127.0.0.1:{port}",
            "POSTROOM_SENDERS_MIN": "0",
            "POSTROOM_SENDERS_MAX": str(SENDERS_MAX),
        }
        installation = Installation(folder, overrides=settings)
        async with installation, installation.parts() as parts:
            await installation.people(parts, people)
            serve = await installation.start("serve")
            seen = SendersSeen(serve.pid)
            await until(lambda: is_listening(port), within_s=STARTED_S)
            await watch_message(installation, parts, seen, quiet_s)
            await watch_sign_ups(installation, parts, seen, quiet_s)
            assert await serve.terminate(STOPPED_S) == 0


async def watch_message(
    installation: Installation, parts: Parts, seen: SendersSeen, quiet_s: float
) -> None:
    seen.begin()
    ref = await installation.message(parts)
    await seen.watch_until(lambda: is_completed(parts, ref))
    print("message:", seen.changes, flush=True)
    await seen.watch_down_to_none(quiet_s)
    print("message, afterwards:", seen.changes, flush=True)


async def watch_sign_ups(
    installation: Installation, parts: Parts, seen: SendersSeen, quiet_s: float
) -> None:
    before = await installation.arrived_number()
    seen.begin()
    act = Act(parts.storage, parts.clock, parts.clock.now(), wake=parts.wakeups.ring)

    async def sign_up(number: int) -> None:
        await subscribe.sign_up(act, LIST, parse_address(f"joiner{number}@contoso.edu"), {})

    async def sign_all_up() -> None:
        for start in range(0, SIGN_UPS, SIGN_UPS_TOGETHER):
            await asyncio.gather(*map(sign_up, range(start, start + SIGN_UPS_TOGETHER)))

    async def are_all_confirmed() -> bool:
        return await installation.arrived_number() >= before + SIGN_UPS

    signing_up = asyncio.create_task(sign_all_up())
    await seen.watch_until(are_all_confirmed)
    await signing_up
    print("sign-ups:", seen.changes, flush=True)
    await seen.watch_down_to_none(quiet_s)
    print("sign-ups, afterwards:", seen.changes, flush=True)


if __name__ == "__main__":
    with TemporaryDirectory(prefix="postroom-scaling-") as temporary:
        asyncio.run(run(Path(temporary), int(sys.argv[1]), float(sys.argv[2])))
