"""Kill the web and the scheduler while a provider posts events: each counts once, none is lost.

`python -m tests.process.webhook_bar 20000 20` is the whole bar; the default run has a small one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from postroom.domain.delivery import BATCH_DELIVERIES_MAX
from postroom.domain.delivery_token import delivery_tokens
from postroom.domain.feedback import FeedbackKind
from postroom.records import feedback, messages, subscribers
from postroom.records.secrets import installation_secret
from postroom.wiring import Parts
from postroom_bench.installation import LIST, Installation, Process, until
from postroom_bench.ports import held_port
from tests.webhook_posts import SendGrid, sendgrid_event

POST_EVENTS = 100
DEAD_EVERY = 50  # of the recipients one is reported as dead
WITHIN_S = 300.0


async def run(folder: Path, people: int, kills: int) -> dict[str, float]:
    """Send a message, then report about everybody while processes die; the figures."""
    account = SendGrid()
    with held_port() as port:
        async with Installation(folder) as installation:
            return await run_in(installation, account, port, people, kills)


async def run_in(
    installation: Installation, account: SendGrid, port: int, people: int, kills: int
) -> dict[str, float]:
    installation.overrides |= {
        "POSTROOM_BIND": f"127.0.0.1:{port}",
        "POSTROOM_URL": f"http://127.0.0.1:{port}",
        "POSTROOM_SENDGRID_WEBHOOK_KEY": account.verification_key,
        "POSTROOM_LEASE_S": "4",
    }
    async with installation.parts() as parts:
        await installation.people(parts, people)
        ref = await installation.message(parts)
        drain = await installation.start("drain")
        await until(lambda: is_sent(parts, ref), within_s=WITHIN_S)
        await drain.end()
        posts = await posts_about(parts, ref, people)
        took_s, killed = await post_all(installation, account, port, posts, kills)
        await until(lambda: is_quiet(parts), within_s=WITHIN_S)
        return await checked(parts, ref, people) | {
            "kills": killed,
            "events_per_s": people / took_s,
        }


async def is_sent(parts: Parts, ref: str) -> bool:
    found = await messages.find(parts.storage.tables, ref)
    return found is not None and found.completed_at is not None


async def is_quiet(parts: Parts) -> bool:
    return await feedback.shards_with_events(parts.storage.tables) == []


async def posts_about(parts: Parts, ref: str, people: int) -> list[list[dict[str, object]]]:
    """One event for each delivery, in posts of a hundred."""
    secret = (await installation_secret(parts.storage.tables)).encode()
    events = []
    for number in range(people):
        batch, position = divmod(number, BATCH_DELIVERIES_MAX)
        token = delivery_tokens(secret, ref, batch, [position])[position]
        is_dead = number % DEAD_EVERY == 0
        event = sendgrid_event("bounce" if is_dead else "delivered", number, delivery=token)
        if is_dead:
            event |= {"type": "bounce", "reason": "550 5.1.1 No such user", "status": "5.1.1"}
        events.append(event)
    return [events[at : at + POST_EVENTS] for at in range(0, people, POST_EVENTS)]


async def post_all(
    installation: Installation,
    account: SendGrid,
    port: int,
    posts: list[list[dict[str, object]]],
    kills: int,
) -> tuple[float, int]:
    """Post until everything is answered 200, as a provider does; kill both roles meanwhile."""
    web = await installation.start("web")
    scheduler = await installation.start("scheduler")
    killed = 0
    every = max(1, len(posts) // (kills + 1))
    began = time.monotonic()
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", timeout=WITHIN_S
    ) as provider:
        for number, events in enumerate(posts):
            request = account.post(events, datetime.now(UTC))
            posting = asyncio.create_task(post(provider, request.body, dict(request.headers)))
            if number % every == every - 1 and killed < kills:
                killed += 1
                web = await replaced(installation, web, "web")
            if number % (3 * every) == 0:
                scheduler = await replaced(installation, scheduler, "scheduler")
            await posting
    return time.monotonic() - began, killed


async def replaced(installation: Installation, role: Process, name: str) -> Process:
    await role.kill()
    return await installation.start(name)


async def post(provider: httpx2.AsyncClient, body: bytes, headers: dict[str, str]) -> None:
    async def is_answered() -> bool:
        try:
            answer = await provider.post("/webhooks/sendgrid", content=body, headers=headers)
        except httpx2.TransportError:
            return False
        return answer.status_code == 200

    await until(is_answered, within_s=WITHIN_S)


async def checked(parts: Parts, ref: str, people: int) -> dict[str, float]:
    tables = parts.storage.tables
    summary = await feedback.find_summary(tables, ref)
    dead = -(-people // DEAD_EVERY)
    assert summary.count(FeedbackKind.BOUNCED) == dead, summary.kinds
    assert summary.count(FeedbackKind.DELIVERED) == people - dead, summary.kinds
    assert summary.classes == {"dead": dead}
    gone = [one async for one in subscribers.everyone(tables, LIST) if one.inactive_reason]
    assert len(gone) == dead
    return {"delivered": people - dead, "dead": dead}


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        print(asyncio.run(run(Path(place), int(sys.argv[1]), int(sys.argv[2]))))
