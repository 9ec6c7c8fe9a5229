"""A web application over a model of storage, and a browser without a face."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from postroom.clock import Clock
from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import Subscriber
from postroom.domain.texts import Language
from postroom.flow import subscribe
from postroom.flow.render import Site
from postroom.records import lists, subscribers
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.wakeup import WakeUps
from postroom.web.app import create_app
from postroom.web.context import WebContext
from tests.acting import acting

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
LIST = "contoso1"
ADDRESS = "student1@contoso.edu"


class Still:
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return self.now().timestamp()

    async def sleep(self, seconds: float) -> None:
        return


@dataclass
class Office:
    storage: MemoryStorage
    site: Site
    browser: httpx2.AsyncClient

    async def join(self, *, verified: bool) -> Subscriber:
        return await subscribe.add(
            acting(self.storage, NOW), LIST, parse_address(ADDRESS), {}, verified=verified
        )

    async def subscriber(self) -> Subscriber:
        key = parse_address(ADDRESS).storage_key
        found = await subscribers.find(self.storage.tables, LIST, key)
        assert found
        return found[0]

    def path(self, url: str) -> str:
        return url.removeprefix(self.site.url)

    def leave_path(self, guid: str) -> str:
        return self.path(self.site.unsubscribe_url(LIST, guid))

    def confirm_path(self, guid: str) -> str:
        return self.path(self.site.confirm_url(LIST, guid))


@asynccontextmanager
async def open_office(
    folder: Path,
    url: str = "https://post.contoso.edu",
    spoken: Sequence[Language] = (),
    clock: Clock | None = None,
    **more: Any,
) -> AsyncIterator[Office]:
    clock = clock or Still()
    storage, site = MemoryStorage(clock, STORAGE_NAMES), Site(url, "a secret")
    mailing_list = MailingList(
        name=LIST, description="History <b>news</b>", sender="a@contoso.edu", created_at=NOW
    )
    await lists.create(storage.tables, mailing_list)
    app = create_app(WebContext(storage, clock, WakeUps(folder / "bells"), site, **more), spoken)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=True)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as browser:
        yield Office(storage, site, browser)
