"""A program that uses the web service: the application over a model of storage, and keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from postroom.domain.access_key import Right
from postroom.domain.mailing_list import MailingList
from postroom.flow.render import Site
from postroom.records import keys, lists
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.wakeup import WakeUps
from postroom.web.app import create_app
from postroom.web.context import WebContext
from tests.clock import START, MovableClock

API = "/api/v1"
ADA, BOB = "ada@contoso.edu", "bob@contoso.edu"
EVERY_RIGHT = tuple(Right)


@dataclass
class Program:
    """Calls with a key that may do everything, unless it is told another one."""

    storage: MemoryStorage
    clock: MovableClock
    client: httpx2.AsyncClient
    key: str = ""

    async def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str
    ) -> httpx2.Response:
        """Headers are named as in Python: if_match for If-Match. A path may be a whole one."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        used = self.key if key is None else key
        if used:
            named["Authorization"] = f"Bearer {used}"
        where = path if path.startswith(API) else API + path
        return await self.client.request(method, where, json=body, headers=named)

    async def get(self, path: str, **more: Any) -> Any:
        response = await self.call("GET", path, **more)
        assert response.status_code == 200, response.text
        return response.json()

    async def make(self, path: str, body: Any, **more: Any) -> Any:
        response = await self.call("POST", path, body, **more)
        assert response.status_code == 201, response.text
        return response.json()

    async def etag(self, path: str) -> str:
        return str((await self.call("GET", path)).headers["etag"])

    async def pages(self, path: str) -> list[Any]:
        """Everything of a collection, page after page, as `next` and Link both say."""
        items: list[Any] = []
        link: str | None = path
        for _ in range(100):
            assert link is not None
            response = await self.call("GET", link)
            assert response.status_code == 200, response.text
            page = response.json()
            items += page["items"]
            if page["next"] is None:
                assert "link" not in response.headers
                return items
            target = response.links["next"]["url"]
            assert httpx2.URL(target).params["cursor"] == page["next"]
            link = target.removeprefix("https://post.contoso.edu")
        raise AssertionError("the pages never end")

    async def new_key(self, *list_names: str, rights: tuple[Right, ...] = EVERY_RIGHT) -> str:
        return (await keys.create(self.storage.tables, "program", list_names, START, rights))[0]


@asynccontextmanager
async def open_program(folder: Path, *list_names: str) -> AsyncIterator[Program]:
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    app = create_app(
        WebContext(storage, clock, WakeUps(folder), Site("https://post.contoso.edu", "s"))
    )
    for name in list_names:
        made = MailingList(name=name, description="", sender="a@contoso.edu", created_at=START)
        await lists.create(storage.tables, made)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        program = Program(storage, clock, client)
        program.key = await program.new_key()
        yield program


def problem(response: httpx2.Response, status: int) -> dict[str, Any]:
    """The body of a refusal, which always has the same shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = response.json()
    assert (told["status"], told["type"]) == (status, "about:blank")
    assert told["detail"].endswith(".")
    return told
