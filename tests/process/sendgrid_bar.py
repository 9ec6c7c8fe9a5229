"""Kill senders while they send through SendGrid: nobody lost, and with `hold` nobody twice.

The stub is busy, fails and loses replies, and reports what it took to the webhook, as SendGrid
does. `python -m tests.process.sendgrid_bar 20000 20` is the whole bar; the default run has a small
one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from postroom.domain.message import OnDoubt
from postroom.records import recipient_outcomes
from postroom.wiring import Parts
from postroom_bench.installation import Installation, books, until
from postroom_bench.ports import held_port
from tests.process.webhook_bar import post, replaced
from tests.provider_stubs.sendgrid import KEY, SendGridStub
from tests.provider_stubs.server import Faults
from tests.webhook_posts import SendGrid

POST_EVENTS = 200
AT_SPEED = 300  # mails after a start, before the next kill
WITHIN_S = 600.0


async def run(folder: Path, people: int, kills: int, on_doubt: OnDoubt) -> dict[str, int]:
    """Send a message while senders die; return the figures once everybody has an outcome."""
    account = SendGrid()
    faults = Faults(seed=people, throttled=0.05, error=0.02, lost=0.01)
    with held_port() as port:
        async with SendGridStub(faults) as stub, Installation(folder) as installation:
            installation.overrides |= {
                "POSTROOM_TRANSPORT": f"sendgrid:?url={stub.url}",
                "POSTROOM_SENDGRID_KEY": KEY,
                "POSTROOM_SENDGRID_WEBHOOK_KEY": account.verification_key,
                "POSTROOM_BIND": f"127.0.0.1:{port}",
                "POSTROOM_URL": f"http://127.0.0.1:{port}",
                "POSTROOM_LEASE_S": "4",
                "POSTROOM_RETRY_FIRST_S": "1",
                "POSTROOM_DOUBT_WAIT_S": "30",
            }
            return await run_in(installation, stub, account, port, people, kills, on_doubt)


async def run_in(
    installation: Installation,
    stub: SendGridStub,
    account: SendGrid,
    port: int,
    people: int,
    kills: int,
    on_doubt: OnDoubt,
) -> dict[str, int]:
    async with installation.parts() as parts:
        await installation.people(parts, people)
        await installation.start("web")
        await installation.start("scheduler")
        ref = await installation.message(parts, on_doubt)
        async with reports(stub, account, port):
            await kill_senders(installation, stub, kills)
            await until(lambda: is_over(parts, ref, stub, on_doubt), within_s=WITHIN_S)
        return await checked(parts, ref, stub, on_doubt)


@asynccontextmanager
async def reports(stub: SendGridStub, account: SendGrid, port: int) -> AsyncIterator[None]:
    """Meanwhile, post an event about every mail the stub takes, twice for some."""
    reporting = asyncio.create_task(report_forever(stub, account, port))
    try:
        yield
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


async def report_forever(stub: SendGridStub, account: SendGrid, port: int) -> None:
    reported = 0

    async def is_more() -> bool:
        return len(stub.accepted) > reported

    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
        while True:
            await until(is_more, within_s=WITHIN_S)
            stub.now_s = datetime.now(UTC).timestamp()
            first = max(0, reported - 1)  # the last one again
            events = stub.events("processed")[first:][:POST_EVENTS]
            request = account.post(events, datetime.now(UTC))
            await post(client, request.body, dict(request.headers))
            reported = first + len(events)


async def kill_senders(installation: Installation, stub: SendGridStub, kills: int) -> None:
    sender = await installation.start("sender")
    for _ in range(kills):
        enough = len(stub.accepted) + AT_SPEED

        async def is_at_speed(enough: int = enough) -> bool:
            return len(stub.accepted) >= enough

        await until(is_at_speed, within_s=WITHIN_S, every_s=0.005)
        sender = await replaced(installation, sender, "sender")


async def is_over(parts: Parts, ref: str, stub: SendGridStub, on_doubt: OnDoubt) -> bool:
    """Nothing is open, and every report has been dealt with."""
    message = await books(parts, ref)
    if not message.audience or message.books.open:
        return False
    return on_doubt is OnDoubt.RESEND or message.books.sent == len(stub.arrived())


async def checked(parts: Parts, ref: str, stub: SendGridStub, on_doubt: OnDoubt) -> dict[str, int]:
    message = await books(parts, ref)
    arrived = stub.arrived()
    outcomes = {
        each.address: each.outcome
        async for each in recipient_outcomes.all_outcomes(parts.storage.tables, message)
    }
    sent = {address for address, outcome in outcomes.items() if outcome == "sent"}
    assert message.books.total == message.audience == len(outcomes)
    assert stub.bad_calls == []
    assert sent == arrived.keys()  # nobody is down as sent without a mail, nor the other way round
    twice = sum(count - 1 for count in arrived.values())
    if on_doubt is OnDoubt.HOLD:
        assert twice == 0
        assert len(sent) + message.books.held == message.audience
    else:
        assert len(sent) == message.audience
        assert twice <= message.books.doubts
    return {
        "sent": len(sent),
        "held": message.books.held,
        "twice": twice,
        "doubts": message.books.doubts,
        "calls": stub.calls,
    }


if __name__ == "__main__":
    for policy in OnDoubt:
        with TemporaryDirectory() as place:
            figures = asyncio.run(run(Path(place), int(sys.argv[1]), int(sys.argv[2]), policy))
            print(policy, figures)
