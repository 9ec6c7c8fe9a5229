"""Two webs on one storage, each with what it would have on a machine of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from starlette.types import ASGIApp, Message

from postroom.domain.mailing_list import MailingList
from postroom.flow.render import Site
from postroom.records import lists
from postroom.records.names import STORAGE_NAMES
from postroom.records.secrets import installation_secret
from postroom.storage.azure.storage import AzureStorage
from postroom.storage.counting import CountingStorage
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage
from postroom.storage.sqlite.storage import SqliteStorage
from postroom.wakeup import WakeUps
from postroom.web.app import create_app
from postroom.web.context import WebContext
from tests.clock import START, MovableClock, soon
from tests.contract.azurite import azurite
from tests.web.office import LIST
from tests.web.signed_in import OWN_PAGE

URL = "https://post.contoso.edu"


@dataclass
class Web:
    storage: CountingStorage
    app: ASGIApp
    client: httpx2.AsyncClient

    def browser(self, other: httpx2.AsyncClient | None = None) -> httpx2.AsyncClient:
        """One that is sent here, new or with the cookies of another."""
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.app),
            base_url=URL,
            headers=OWN_PAGE,
            cookies=other.cookies if other else None,
        )

    async def subscribe(self, key: str, email: str) -> int:
        """The status of the answer."""
        response = await self.client.post(
            "/api/v1/subscribe",
            json={"list": LIST, "email": email},
            headers={"Authorization": f"Bearer {key}"},
        )
        return response.status_code

    @property
    def calls(self) -> int:
        """Of storage, so far."""
        made = self.storage.calls
        return made.reads + made.writes + made.batches + made.queue_calls + made.blob_calls


@dataclass
class TwoWebs:
    one: Web
    two: Web
    clock: MovableClock


@asynccontextmanager
async def two_webs(engine: str, folder: Path) -> AsyncIterator[TwoWebs]:
    clock = MovableClock(short_s=-1.0)  # every sleep waits until it is moved
    first, second = await _open_twice(engine, folder, clock)
    try:
        made = MailingList(name=LIST, description="", sender="a@contoso.edu", created_at=START)
        await lists.create(first.tables, made)
        async with (
            _web(first, folder / "1", clock) as one,
            _web(second, folder / "2", clock) as two,
        ):
            yield TwoWebs(one, two, clock)
    finally:
        await first.close()
        if second is not first:
            await second.close()


async def _open_twice(engine: str, folder: Path, clock: MovableClock) -> tuple[Storage, Storage]:
    """As two processes would."""
    if engine == "memory":
        storage = MemoryStorage(clock, STORAGE_NAMES)
        return storage, storage
    if engine == "sqlite":
        file = folder / "postroom.db"
        return await SqliteStorage.open(file, clock, STORAGE_NAMES), await SqliteStorage.open(
            file, clock, STORAGE_NAMES
        )
    emulator, prefix = azurite(), f"w{secrets.token_hex(6)}"
    clock.followers.append(emulator.move)
    first = await AzureStorage.open(emulator.account, clock, STORAGE_NAMES, prefix=prefix)
    return first, await AzureStorage.open(emulator.account, clock, STORAGE_NAMES, prefix=prefix)


@asynccontextmanager
async def _web(storage: Storage, folder: Path, clock: MovableClock) -> AsyncIterator[Web]:
    """In service, as a server would have it."""
    counted = CountingStorage(storage)
    site = Site(URL, await installation_secret(storage.tables))
    app = create_app(WebContext(counted, clock, WakeUps(folder / "bells"), site))
    transport = httpx2.ASGITransport(app=app)
    async with (
        _in_service(app),
        httpx2.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield Web(counted, app, client)


@asynccontextmanager
async def _in_service(app: ASGIApp) -> AsyncIterator[None]:
    """The lifespan protocol of ASGI."""
    told: asyncio.Queue[Message] = asyncio.Queue()
    said: asyncio.Queue[Message] = asyncio.Queue()
    serving = asyncio.ensure_future(app({"type": "lifespan"}, told.get, said.put))
    for event in ("startup", "shutdown"):
        told.put_nowait({"type": f"lifespan.{event}"})
        async with asyncio.timeout(60):
            assert (await said.get())["type"] == f"lifespan.{event}.complete"
        if event == "startup":
            yield
    await soon(serving)
