"""An office with somebody signed in, and a browser that sends forms as browsers do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from postroom.actions import sign_in
from postroom.actions.sign_in import Browser
from postroom.clock import Clock
from postroom.domain.address import parse_address
from postroom.domain.user import Role, User
from postroom.records import users
from tests.web.office import NOW, Office, open_office

PASSWORD = "four words are good"
# Hashing takes its time; what the tests need of a user is a session.
HASH = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHRzb21lc2FsdA$c29tZWhhc2hzb21laGFzaHNvbWVoYXNo"
OWN_PAGE = {"sec-fetch-site": "same-origin"}


@dataclass
class Worker:
    """Somebody at work on the admin pages."""

    office: Office
    user: User
    browser: httpx2.AsyncClient

    async def get(self, path: str, **more: str) -> httpx2.Response:
        return await self.browser.get(path, params=more or None)

    async def post(self, path: str, **fields: str) -> httpx2.Response:
        """A form sent from one of our own pages."""
        return await self.browser.post(path, data=fields, headers=OWN_PAGE)


def notice_in(answer: httpx2.Response) -> str:
    """The word of the notice that comes with a redirect; empty if there is none."""
    cookie = answer.cookies.get("__Host-postroom-notice") or ""
    return cookie.partition("|")[0]


async def sign_in_as(office: Office, role: Role) -> Worker:
    """A user of this role, made if need be, with a cookie in a browser of their own."""
    tables = office.storage.tables
    address = parse_address(f"{role.value}@contoso.edu")
    found = await users.find(tables, address.storage_key)
    user = found[0] if found else await _made(office, address.typed, role)
    token = await sign_in.begin(tables, user, Browser("127.0.0.1", "a test"), NOW)
    browser = httpx2.AsyncClient(
        transport=office.browser._transport,
        base_url=office.site.url,
        cookies={"__Host-postroom": token},
    )
    return Worker(office, user, browser)


async def _made(office: Office, address: str, role: Role) -> User:
    key = parse_address(address).storage_key
    user = User(
        address=address, key=key, role=role, password=HASH, created_at=NOW, sessions_from=NOW
    )
    await users.add(office.storage.tables, user)
    return user


@asynccontextmanager
async def at_work(
    folder: Path, role: Role = Role.EDITOR, clock: Clock | None = None, **more: Any
) -> AsyncIterator[Worker]:
    async with open_office(folder, clock=clock, **more) as office:
        worker = await sign_in_as(office, role)
        async with worker.browser:
            yield worker
