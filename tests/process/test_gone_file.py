"""The database file is deleted or replaced under a running `serve`."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest_asyncio

from postroom.records import keys
from postroom.storage.sqlite.file_watch import CHECK_EVERY_S
from postroom_bench.installation import LIST, Installation, Process, until

SENTENCE = (
    "The database file was deleted or replaced while Postroom was running. "
    "Stop all roles, restore the file, and start again."
)
ROLES = {"supervisor", "web", "scheduler", "sender"}
WITHIN_S = 120.0  # far more than it takes: machines are busy


class Answer(NamedTuple):
    status: int
    content: dict[str, Any]


class Site:
    """`serve` with one list, and a program that signs people up."""

    def __init__(self, installation: Installation, serve: Process, port: int, key: str) -> None:
        self.installation = installation
        self.serve = serve
        self._url = f"http://127.0.0.1:{port}"
        self._key = key

    @property
    def file(self) -> Path:
        return self.installation.folder / "postroom.db"

    async def get(self, path: str) -> Answer:
        return await asyncio.to_thread(self._ask, urllib.request.Request(self._url + path))

    async def subscribe(self, name: str) -> Answer:
        body = json.dumps({"list": LIST, "email": f"{name}@contoso.edu"}).encode()
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/api/v1/subscribe", body, headers)
        return await asyncio.to_thread(self._ask, request)

    async def is_ready(self) -> bool:
        return (await self.get("/readyz")).status == 200

    async def have_all_opened_the_file(self) -> bool:
        """A role that opens it later would take its replacement for the file it knows."""
        return {line["name"] for line in self.events("role_started")} == ROLES

    def events(self, name: str) -> list[dict[str, str]]:
        return [line for line in self.serve.lines() if line["event"] == name]

    def _ask(self, request: urllib.request.Request) -> Answer:
        try:
            with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
                return Answer(answer.status, json.load(answer))
        except urllib.error.HTTPError as refused:
            return Answer(refused.code, json.load(refused))
        except OSError:
            return Answer(0, {})


@pytest_asyncio.fixture
async def site(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[Site]:
    async with Installation(tmp_path) as installation:
        installation.overrides["POSTROOM_BIND"] = f"127.0.0.1:{unused_tcp_port}"
        async with installation.parts() as parts:
            await installation.people(parts, 1)
            key, _ = await keys.create(parts.storage.tables, "portal", (), parts.clock.now())
        serve = await installation.start("serve")
        site = Site(installation, serve, unused_tcp_port, key)
        await until(site.is_ready, within_s=WITHIN_S)
        await until(site.have_all_opened_the_file, within_s=WITHIN_S)
        yield site


async def test_a_sign_up_into_a_deleted_database_is_refused_and_readiness_says_why(
    site: Site,
) -> None:
    assert (await site.subscribe("ada")).status == 202
    for path in site.installation.folder.glob("postroom.db*"):
        path.unlink()
    refused = await site.subscribe("bob")
    assert refused.status == 503
    assert refused.content["detail"] == SENTENCE
    ready = await site.get("/readyz")
    assert (ready.status, ready.content["status"]) == (503, SENTENCE)
    assert (await site.get("/healthz")).status == 200
    assert not site.file.exists(), "a role made a new one"


async def test_every_role_notices_within_seconds_and_says_so_once(site: Site) -> None:
    assert CHECK_EVERY_S <= 5
    backup = site.file.with_name("backup.db")
    backup.write_bytes(site.file.read_bytes())
    backup.replace(site.file)

    async def have_all_noticed() -> bool:
        await site.get("/readyz")
        return len(site.events("database_file_gone")) >= len(ROLES)

    await until(have_all_noticed, within_s=WITHIN_S)
    content = site.file.read_bytes()
    assert (await site.subscribe("ada")).content["detail"] == SENTENCE
    assert await site.serve.terminate(within_s=WITHIN_S) == 0, site.serve.log.read_text()
    assert len(site.events("database_file_gone")) == len(ROLES)
    assert site.file.read_bytes() == content


async def test_it_continues_when_the_file_is_put_back(site: Site) -> None:
    away = site.file.with_name("away.db")
    site.file.rename(away)
    assert (await site.subscribe("ada")).status == 503
    away.rename(site.file)
    await until(site.is_ready, within_s=WITHIN_S)
    assert (await site.subscribe("ada")).status == 202
