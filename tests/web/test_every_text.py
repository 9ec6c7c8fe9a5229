"""Nothing that people read is fixed in English: in a language of brackets, all stands in brackets.

Every page is visited, in every state that has words of its own; a template that was not shown, or
a page of the route table that was not opened, fails the test.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from fastapi.routing import APIRoute
from jinja2.utils import LRUCache

from postroom.actions import sign_in
from postroom.domain.texts import ENGLISH
from postroom.domain.user import Role
from postroom.web import admin, pages
from postroom.web.public import links, sign_up_form
from postroom.web.signed_in import ADMIN
from postroom.web.templating import TEMPLATES
from tests.web.office import NOW, Office, open_office
from tests.web.pseudo import OPEN, PSEUDO, untranslated
from tests.web.signed_in import OWN_PAGE, sign_in_as
from tests.web.visitor import Visit
from tests.web.visits import VISITS

# The source of a mail and its headers, and places that are a program's or the browser's to read.
NO_PAGES = re.compile(r"/(live|export|download|html|mail|write|blocks|preview)$")
# Here are sentences that were written down as somebody read them: in reports, and in consents,
# which the storage explorer shows as well.
KEPT = re.compile(r"/admin/(imports|subscribers|storage)/")


@pytest_asyncio.fixture
async def visit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Visit]:
    """In a house that speaks in brackets first, with templates that nobody has loaded yet."""
    for module in (pages, links):
        monkeypatch.setattr(module._pages, "cache", LRUCache(400))
    more: dict[str, Any] = {"has_outbox": True, "spoken": [PSEUDO, ENGLISH]}
    async with open_office(tmp_path, **more) as office:
        first_start = await pages_of_the_first_start(office)
        owner = await sign_in_as(office, Role.OWNER)
        async with owner.browser:
            yield Visit(owner, first_start)


async def pages_of_the_first_start(office: Office) -> list[str]:
    """What is shown only as long as there is no account."""
    link = f"/admin/welcome/{await sign_in.first_link(office.storage.tables, NOW)}"
    wrong = {"address": "nobody", "password": "short"}
    answers = [
        await office.browser.get("/admin/sign-in"),
        await office.browser.get(link),
        await office.browser.post(link, data=wrong, headers=OWN_PAGE),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 422]
    return [answer.text for answer in answers]


async def test_every_text_of_every_page_can_be_translated(visit: Visit) -> None:
    for look in VISITS:
        await look(visit)
    assert not visit.english, "\n".join(visit.english)
    assert sorted(unopened(visit)) == []
    assert sorted(unshown()) == []
    assert [path async for path in still_in_brackets(visit)] == []


async def still_in_brackets(visit: Visit) -> AsyncIterator[str]:
    """Pages that keep something of the first reader's language for the next one."""
    for path in sorted(visit.seen):
        page = await visit.owner.browser.get(path, headers={"accept-language": "en"})
        assert page.is_redirect or '<html lang="en">' in page.text or "/live" in path, path
        if OPEN in page.text and not KEPT.match(path):
            yield path


def unopened(visit: Visit) -> Iterator[str]:
    patterns = [f"{ADMIN}{path}" for module in admin.MODULES for path in _paths(module.router)]
    patterns += [path for module in (links, sign_up_form) for path in _paths(module.router)]
    for pattern in patterns:
        expression = re.compile(re.sub(r"\{\w+\}", "[^/]+", pattern))
        if not NO_PAGES.search(pattern) and not any(map(expression.fullmatch, visit.seen)):
            yield pattern


def _paths(router: Any) -> Iterator[str]:
    for route in router.routes:
        assert isinstance(route, APIRoute)
        if "GET" in (route.methods or ()):
            yield route.path


def unshown() -> set[str]:
    """Templates of pages that no visit has rendered."""
    shown = {name for module in (pages, links) for _loader, name in module._pages.cache or ()}
    known = {str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*.html")}
    return {name for name in known - shown if not name.startswith("mails/")}


# --- The check can fail -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("<p>⟦Saved.⟧</p>", []),
        ("<p>⟦It goes to <b>ada</b>.⟧ eve · 12</p>", []),
        ("<p>⟦Saved.⟧ Twice</p>", ["Twice"]),
        ("<title>Lists</title>", ["Lists"]),
        ("<p>⟦It goes to <b>ada</b>.⟧ <b>draft</b></p>", ["draft"]),
        ('<input placeholder="not imported">', ["not imported"]),
        ('<svg aria-label="1 of 2"></svg><svg aria-label="⟦1 of 2⟧"></svg>', ["1 of 2"]),
        ("<pre>curl it</pre><code>code</code><script>f()</script>", []),
    ],
)
def test_the_check_finds_what_is_outside_of_brackets(page: str, found: list[str]) -> None:
    assert untranslated(page, ["eve"]) == found
