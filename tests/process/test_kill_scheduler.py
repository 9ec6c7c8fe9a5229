"""kill -9 of the scheduler in the middle of a big fan-out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from postroom.domain.message import Status
from postroom.records import batches, messages
from postroom.wiring import Parts
from postroom_bench.installation import Installation, books, until

PEOPLE = 100_000
KILLS = 10


@pytest.mark.timeout(900)
async def test_ten_kills_in_a_fan_out_put_everybody_into_exactly_one_batch(tmp_path: Path) -> None:
    async with Installation(tmp_path) as installation, installation.parts() as parts:
        installation.overrides |= {"POSTROOM_LEASE_S": "1", "POSTROOM_ITEMS_AHEAD": "0"}
        await installation.people(parts, PEOPLE)
        ref = await installation.message(parts)
        for _ in range(KILLS):
            scheduler = await installation.start("scheduler")
            await wait_for_progress(parts, ref)
            await scheduler.kill()
        await installation.start("scheduler")
        await until(lambda: is_fanned_out(parts, ref), within_s=120)
        people = await everybody_in_batches(parts, ref)
        message = await books(parts, ref)
    assert len(people) == PEOPLE
    assert set(people.values()) == {1}
    assert message.audience == message.books.queued == PEOPLE


async def wait_for_progress(parts: Parts, ref: str) -> None:
    before = (await messages.read(parts.storage.tables, ref)).audience

    async def check() -> bool:
        message = await messages.read(parts.storage.tables, ref)
        return message.audience > before or message.fanned_out

    await until(check, within_s=120, every_s=0.01)


async def is_fanned_out(parts: Parts, ref: str) -> bool:
    return (await messages.read(parts.storage.tables, ref)).status is Status.PROCESSING


async def everybody_in_batches(parts: Parts, ref: str) -> Counter[str]:
    people: Counter[str] = Counter()
    message = await messages.read(parts.storage.tables, ref)
    for batch in range(message.batches):
        deliveries = await batches.load_deliveries(parts.storage.tables, ref, batch)
        people.update(delivery.address for delivery in deliveries.values())
    return people
