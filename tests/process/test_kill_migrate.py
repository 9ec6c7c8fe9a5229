"""kill -9 of a migration from a file to Azure and back, as people would type it."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from aiohttp import web

from postroom.bench.house import LIST, House, until
from postroom.clock import WallClock
from postroom.migration import state
from postroom.storage.azure.account import Account
from postroom.storage.port import KeysWithin, Storage
from postroom.wiring.engines import opened_storage, with_storage
from tests.contract.azurite import azurite
from tests.contract.faulty_azure import faulty_azure

PEOPLE = 3_000
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


async def kill_on_the_way(house: House, storage: Storage, *options: str) -> None:
    """Once something new has arrived."""
    before = await rows_of_list(storage)
    migration = await house.start("migrate", *options)
    await until(lambda: has_more(storage, before), within_s=RUN_S_MAX, every_s=0.01)
    await migration.kill()
    assert await state.find(storage.tables), "it was through already"


async def has_more(storage: Storage, before: int) -> bool:
    return await rows_of_list(storage) > min(before, 900)


def asks_for_a_second_page(request: web.Request) -> bool:
    return "NextPartitionKey" in request.query


async def finish(house: House, *options: str) -> dict[str, object]:
    migration = await house.start("migrate", *options, "--json")
    assert await migration.wait(within_s=RUN_S_MAX) == 0, migration.log.read_text()
    found: dict[str, object] = json.loads(migration.printed.read_text())
    return found


@pytest.mark.timeout(240)
async def test_a_migration_killed_on_the_way_there_and_back_loses_nothing(tmp_path: Path) -> None:
    prefix, clock = f"k{secrets.token_hex(6)}", WallClock()
    async with House(tmp_path) as house:
        async with house.parts() as parts:
            await house.people(parts, PEOPLE)
            await house.message(parts)
        house.overrides["THERE"] = address_of(azurite().account)
        there = ("--to", "env:THERE", "--to-prefix", prefix)
        back = (
            "--from",
            "env:THERE",
            "--from-prefix",
            prefix,
            "--to",
            f"sqlite:///{tmp_path}/b.db",
        )
        ours = house.settings()
        account = with_storage(ours, house.overrides["THERE"], prefix)
        file = with_storage(ours, f"sqlite:///{tmp_path}/b.db", None)
        async with opened_storage(account, clock) as storage:
            await kill_on_the_way(house, storage, *there)
        first = await finish(house, *there)
        async with faulty_azure() as (azure, passing):
            house.overrides["THERE"] = address_of(passing)
            azure.holds = asks_for_a_second_page  # a file is written too fast to be caught at it
            async with opened_storage(file, clock) as storage:
                await kill_on_the_way(house, storage, *back)
            azure.holds = lambda _request: False
            last = await finish(house, *back)
        assert first["parts"] == last["parts"]
        assert first["equal"]
        assert last["moved"]
        refused = await house.start("serve")
        assert await refused.wait(within_s=RUN_S_MAX) == 3
        assert "was moved to Azure's emulator" in refused.log.read_text()
