"""No list can have a name that hides its own pages."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import RESERVED_NAMES, check_new_list_name
from postroom.domain.user import Role
from postroom.web import admin
from postroom.web.public import links, sign_up_form
from postroom.web.signed_in import ADMIN
from tests.web.office import open_office
from tests.web.program import Program
from tests.web.signed_in import Worker, at_work

LIST_PARAMETERS = {"{list_name}", "{name}"}


def paths() -> Iterator[list[str]]:
    """Every web address, in its parts."""
    for module in admin.MODULES:
        yield from (
            (ADMIN + getattr(route, "path", "")).split("/") for route in module.router.routes
        )
    for router in (links.router, sign_up_form.router):
        yield from (getattr(route, "path", "").split("/") for route in router.routes)


def words_in_place_of_a_list(every: list[list[str]]) -> set[str]:
    """The fixed parts that stand where, in another address, a list's name stands."""
    places = {
        tuple(path[:number])
        for path in every
        for number, part in enumerate(path)
        if part in LIST_PARAMETERS and "limits" not in path  # there it is a domain
    }
    return {
        path[number]
        for path in every
        for number in range(1, len(path))
        if tuple(path[:number]) in places and re.fullmatch(r"\w+", path[number])
    }


async def test_every_word_that_stands_where_a_list_may_stand_is_reserved(tmp_path: Path) -> None:
    """Whoever adds such a page adds its word to RESERVED_NAMES."""
    async with open_office(tmp_path) as office:
        described = (await office.browser.get("/api/v1/openapi.json")).json()
    found = words_in_place_of_a_list([*paths(), *(path.split("/") for path in described["paths"])])
    assert "new" in found
    assert found <= RESERVED_NAMES


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "New", "NEW"])
def test_a_reserved_name_is_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(BadInput, match=f"“{name}” cannot be a list name"):
        check_new_list_name(name)


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def test_the_form_says_why_a_name_cannot_be(editor: Worker) -> None:
    answer = await editor.post("/admin/lists/new", name="new", sender="a@contoso.edu")
    assert answer.status_code == 422
    assert "“new” cannot be a list name" in answer.text
    answer = await editor.post("/admin/lists/new", name="CONTOSO1", sender="a@contoso.edu")
    assert answer.status_code == 422
    assert "There is already a list contoso1" in answer.text
    assert 'value="CONTOSO1"' in answer.text


async def test_the_web_service_refuses_it_as_well(program: Program) -> None:
    for name, status in (("new", 422), ("CONTOSO1", 409)):
        body = {"name": name, "from": "a@contoso.edu"}
        answer = await program.call("POST", "/lists", body)
        assert answer.status_code == status, answer.text
