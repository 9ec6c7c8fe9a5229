"""kill -9 of a migration from a file to Azure and back, as people would type it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from aiohttp import web

from postroom.clock import WallClock
from postroom.migration import state
from postroom.storage.azure.account import Account
from postroom.storage.port import KeysWithin, Storage
from postroom.wiring.engines import opened_storage, with_storage
from postroom_bench.installation import LIST, Installation, until
from tests.contract.azurite import azurite
from tests.contract.faulty_azure import faulty_azure

PEOPLE = 2_000
RUN_S_MAX = 120.0


def address_of(account: Account) -> str:
    ports = {
        service: url.split(":")[2].split("/")[0]
        for service, url in (
            ("blob", account.blob_url),
            ("queue", account.queue_url),
            ("table", account.table_url),
        )
    }
    return "azure:emulator?" + "&".join(f"{name}={port}" for name, port in ports.items())


async def rows_of_list(storage: Storage) -> int:
    page = await storage.tables.scan("mailinglist", KeysWithin(LIST))
    return len(page.rows) + 1000 * (page.next is not None)


async def kill_on_the_way(installation: Installation, storage: Storage, *options: str) -> None:
    """Once something new has arrived."""
    before = await rows_of_list(storage)
    migration = await installation.start("migrate", *options)
    await until(lambda: has_more(storage, before), within_s=RUN_S_MAX, every_s=0.01)
    await migration.kill()
    assert await state.find(storage.tables), "it was through already"


async def has_more(storage: Storage, before: int) -> bool:
    return await rows_of_list(storage) > min(before, 900)


def asks_for_a_second_page(request: web.Request) -> bool:
    return "NextPartitionKey" in request.query


def writes_more_than(batches: int) -> Callable[[web.Request], bool]:
    """Whether a request is a further batch of rows, so that a migration stops half-way."""
    numbers = count(1)
    return lambda request: request.path.endswith("$batch") and next(numbers) > batches


async def finish(installation: Installation, *options: str) -> dict[str, object]:
    migration = await installation.start("migrate", *options, "--json")
    assert await migration.wait(within_s=RUN_S_MAX) == 0, migration.log.read_text()
    found: dict[str, object] = json.loads(migration.printed.read_text())
    return found


@pytest.mark.timeout(900)
async def test_a_migration_killed_on_the_way_there_and_back_loses_nothing(tmp_path: Path) -> None:
    prefix, clock = f"k{secrets.token_hex(6)}", WallClock()
    async with Installation(tmp_path) as installation:
        async with installation.parts() as parts:
            await installation.people(parts, PEOPLE)
            await installation.message(parts)
        there = ("--to", "env:THERE", "--to-prefix", prefix)
        back = (
            "--from",
            "env:THERE",
            "--from-prefix",
            prefix,
            "--to",
            f"sqlite:///{tmp_path}/b.db",
        )
        ours = installation.settings()
        account = with_storage(ours, address_of(azurite().account), prefix)
        file = with_storage(ours, f"sqlite:///{tmp_path}/b.db", None)
        # Held half-way, so that no machine is too fast or too busy to catch it at work.
        async with faulty_azure() as (azure, passing):
            installation.overrides["THERE"] = address_of(passing)
            azure.holds = writes_more_than(12)
            async with opened_storage(account, clock) as storage:
                await kill_on_the_way(installation, storage, *there)
            azure.holds = lambda _request: False
            first = await finish(installation, *there)
            azure.holds = asks_for_a_second_page
            async with opened_storage(file, clock) as storage:
                await kill_on_the_way(installation, storage, *back)
            azure.holds = lambda _request: False
            last = await finish(installation, *back)
        assert first["parts"] == last["parts"]
        assert first["equal"]
        assert last["moved"]
        refused = await installation.start("serve")
        assert await refused.wait(within_s=RUN_S_MAX) == 3
        assert "was moved to Azure's emulator" in refused.log.read_text()
