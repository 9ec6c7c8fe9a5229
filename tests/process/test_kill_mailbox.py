"""The reader of the bounce mailbox is killed again and again: each bounce counts once.

The full bar: `BOUNCES=2000 KILLS=20 ./dev test tests/process/test_kill_mailbox.py`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from postroom.domain.delivery_token import DeliveryId, delivery_tokens, parse_token
from postroom.domain.feedback import FeedbackKind
from postroom.records import batches, feedback, messages
from postroom.records.secrets import installation_secret
from postroom.wiring import Parts
from postroom_bench.installation import Installation, until
from tests import returned_mails as mails
from tests.contract.test_mailboxes import write_settled

BOUNCES = int(os.environ.get("BOUNCES", "300"))
KILLS = int(os.environ.get("KILLS", "4"))
FORGED = 20
RUN_S_MAX = 500.0


@asynccontextmanager
async def queued(folder: Path, mailbox: Path) -> AsyncIterator[tuple[Installation, Parts, str]]:
    """An installation with a message in the queue for everybody who will bounce."""
    async with Installation(folder) as installation:
        installation.overrides |= {"POSTROOM_ITEMS_AHEAD": "0"}  # nobody sends
        async with installation.parts() as parts:
            await installation.people(parts, BOUNCES)
            ref = await installation.message(parts)
            scheduler = await installation.start("scheduler")

            async def is_queued() -> bool:
                return (await messages.read(parts.storage.tables, ref)).is_fully_queued

            await until(is_queued, within_s=RUN_S_MAX)
            await scheduler.kill()
            installation.overrides |= {"POSTROOM_BOUNCE_MAILBOX": f"directory:{mailbox}"}
            yield installation, parts, ref


async def deliver(parts: Parts, ref: str, mailbox: Path) -> int:
    """Put one bounce for everybody into the mailbox, and some forged ones."""
    tables = parts.storage.tables
    secret = (await installation_secret(tables)).encode()
    delivered = 0
    for batch in range((await messages.read(tables, ref)).batches):
        people = await batches.load_deliveries(tables, ref, batch)
        for at, token in delivery_tokens(secret, ref, batch, list(people)).items():
            bounce = mails.report(token, people[at].address)
            write_settled(mailbox / f"{batch}-{at}.eml", bounce)
            if delivered < FORGED:
                forged = mails.report(mails.forged(token))
                write_settled(mailbox / f"forged-{delivered}.eml", forged)
            delivered += 1
    return delivered


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in os.scandir(folder)] if folder.is_dir() else []


async def recorded(parts: Parts, ref: str) -> set[str]:
    """The names of all bounces whose event waits or is counted."""
    tables = parts.storage.tables
    secret = (await installation_secret(tables)).encode()
    names: set[str] = set()
    for shard in feedback.SHARDS:
        rows, _more = await feedback.pending(tables, shard, limit=BOUNCES)
        for row in rows:
            delivery = parse_token(secret, feedback.event_of(row).delivery)
            assert isinstance(delivery, DeliveryId)
            names.add(f"{delivery.batch}-{delivery.position}.eml")
    for batch in range((await messages.read(tables, ref)).batches):
        counted = await feedback.find_counted(tables, ref, batch)
        names |= {f"{batch}-{at}.eml" for at in range(99) if counted.has(FeedbackKind.BOUNCED, at)}
    return names


async def test_a_reader_that_is_killed_counts_each_bounce_once(tmp_path: Path) -> None:
    mailbox = tmp_path / "bounces"
    mailbox.mkdir()
    processed = mailbox / "Postroom-processed"
    async with queued(tmp_path, mailbox) as (installation, parts, ref):
        assert await deliver(parts, ref, mailbox) == BOUNCES
        scheduler = await installation.start("scheduler")
        for kill in range(1, KILLS + 1):
            target = BOUNCES * kill // (KILLS + 1)

            async def has_moved(target: int = target) -> bool:
                return len(names_in(processed)) >= target

            await until(has_moved, within_s=RUN_S_MAX, every_s=0.01)
            await scheduler.kill()
            moved = set(names_in(processed))
            assert moved <= await recorded(parts, ref)
            waiting = {name for name in names_in(mailbox) if name[0].isdigit()}
            assert len(moved | waiting) == len(moved) + len(waiting) == BOUNCES
            scheduler = await installation.start("scheduler")

        async def is_over() -> bool:
            summary = await feedback.find_summary(parts.storage.tables, ref)
            is_counted = summary.count(FeedbackKind.BOUNCED) >= BOUNCES
            return is_counted and not any(name.endswith(".eml") for name in names_in(mailbox))

        await until(is_over, within_s=RUN_S_MAX)
        assert await scheduler.terminate(within_s=RUN_S_MAX) == 0
        summary = await feedback.find_summary(parts.storage.tables, ref)
        assert summary.kinds == {"bounced": BOUNCES}
        assert len(names_in(processed)) == BOUNCES
        assert len(names_in(mailbox / "Postroom-unknown")) == FORGED
