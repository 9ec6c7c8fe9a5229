"""A browser page of somebody who is signed in already: the cookie is put there, nothing typed."""

from __future__ import annotations

from playwright.async_api import Page

from postroom.actions import sign_in
from postroom.actions.sign_in import Browser
from postroom.domain.address import parse_address
from postroom.domain.user import Role, User
from postroom.records import users
from tests.browser.running_site import RunningSite
from tests.web.signed_in import HASH


async def sign_in_page(site: RunningSite, page: Page, role: Role = Role.OWNER) -> None:
    tables, now = site.parts.storage.tables, site.parts.clock.now()
    address = parse_address(f"{role.value}@contoso.edu")
    found = await users.find(tables, address.storage_key)
    user = found[0] if found else None
    if user is None:
        user = User(
            address=address.typed,
            key=address.storage_key,
            role=role,
            password=HASH,
            created_at=now,
            sessions_from=now,
        )
        await users.add(tables, user)
    token = await sign_in.begin(tables, user, Browser("127.0.0.1", "Chromium · a test"), now)
    await page.context.add_cookies([{"name": "postroom", "value": token, "url": site.url}])
