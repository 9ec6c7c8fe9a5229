"""A site with one list that has a sign-up form, and somebody in front of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from postroom.domain.address import parse_address
from postroom.domain.consent import Consent
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import Subscriber
from postroom.flow import subscribe
from postroom.flow.render import Site
from postroom.records import consents, keys, lists, subscribers
from postroom.records.names import SINGLE_MAIL_QUEUE, STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.wakeup import WakeUps
from postroom.web.app import create_app
from postroom.web.context import WebContext
from tests.acting import acting

LIST = "contoso1"
PATH = f"/s/{LIST}"
ADDRESS = "student1@contoso.edu"
POSTMARK = re.compile(r'name="postmark" value="([^"]+)"')


class Clock:
    def __init__(self) -> None:
        self._now = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self.now().timestamp()

    def move(self, **time: float) -> None:
        self._now += timedelta(**time)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a page waits for nobody")


@dataclass
class Doorstep:
    """A site with one list that has a form, and somebody in front of it."""

    storage: MemoryStorage
    clock: Clock
    browser: httpx2.AsyncClient

    async def open(self) -> dict[str, str]:
        """The fields of the form as they are shown."""
        page = await self.browser.get(PATH)
        assert page.status_code == 200
        return {"email": "", "homepage": "", "postmark": postmark_in(page)}

    async def fill_in(self, email: str = ADDRESS, *, after_s: float = 10, **fields: str) -> Any:
        form = await self.open()
        self.clock.move(seconds=after_s)
        return await self.browser.post(PATH, data=form | {"email": email} | fields)

    async def call(self) -> tuple[Any, str]:
        """A client's site signs somebody up: the answer, and the id of its key."""
        key, kept = await keys.create(self.storage.tables, "portal", (LIST,), self.clock.now())
        sent, headers = {"list": LIST, "email": ADDRESS}, {"Authorization": f"Bearer {key}"}
        return await self.browser.post("/api/v1/subscribe", json=sent, headers=headers), kept.id

    async def join(self, email: str = ADDRESS) -> Subscriber:
        tables, now = self.storage.tables, self.clock.now()
        return await subscribe.add(
            acting(tables, now), LIST, parse_address(email), {}, verified=True
        )

    async def subscriber(self, email: str = ADDRESS) -> Subscriber | None:
        key = parse_address(email).storage_key
        found = await subscribers.find(self.storage.tables, LIST, key)
        return found[0] if found else None

    async def history(self) -> list[Consent]:
        key = parse_address(ADDRESS).storage_key
        return (await consents.history(self.storage.tables, LIST, key)).events

    async def mails(self) -> int:
        return await self.storage.queues.length(SINGLE_MAIL_QUEUE)


def postmark_in(page: Any) -> str:
    found = POSTMARK.search(page.text)
    assert found
    return found[1]


def is_thanks(answer: Any) -> bool:
    return (answer.status_code, answer.headers.get("location")) == (303, f"{PATH}/thanks")


@asynccontextmanager
async def open_doorstep(folder: Path) -> AsyncIterator[Doorstep]:
    """With the list `closed` beside it, which has no form."""
    clock = Clock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    for name, public in ((LIST, True), ("closed", False)):
        made = MailingList(
            name=name,
            description="History <b>news</b>",
            sender="a@contoso.edu",
            created_at=clock.now(),
            public_form=public,
        )
        await lists.create(storage.tables, made)
    links = Site("https://post.contoso.edu", "a secret")
    app = create_app(WebContext(storage, clock, WakeUps(folder / "bells"), links))
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=True, client=("192.0.2.7", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as browser:
        yield Doorstep(storage, clock, browser)
