"""Imports on the admin pages: three plain choices, a second file that changes people, slips."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.consent import source_text
from postroom.domain.user import Role
from postroom.records import consents
from postroom.records.names import SINGLE_MAIL_QUEUE
from tests.web.importing import (
    CHOICE,
    GOOD,
    at_work,
    brought_in,
    gone_person,
    looked_over,
    settled,
    stored,
    uploaded,
)
from tests.web.office import LIST
from tests.web.signed_in import Worker

KEEP = {"purpose": "keep", "basis": ""}


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


# --- The form -----------------------------------------------------------------------------------


async def test_nothing_is_chosen_for_the_person_and_what_is_required_is_marked(
    editor: Worker,
) -> None:
    path = await uploaded(editor, GOOD)
    page = (await editor.get(f"{path}/columns")).text
    for purpose in ("confirmed", "ask", "keep", "suppress"):
        assert f'name="purpose" value="{purpose}" required>' in page
    assert '<label class="form-label required" for="basis">' in page
    assert '<option value="leave" selected>' in page
    unsaid = {name: value for name, value in CHOICE.items() if name != "purpose"}
    answer = await editor.post(f"{path}/columns", **unsaid)
    assert answer.status_code == 422
    assert "Choose what to do with these people." in answer.text


@pytest.mark.parametrize(
    ("field", "value"), [("basis", " "), ("purpose", "x"), ("email", "9"), ("name-1", "A b")]
)
async def test_after_a_mistake_the_page_opens_at_the_field(
    editor: Worker, field: str, value: str
) -> None:
    path = await uploaded(editor, GOOD)
    answer = await editor.post(f"{path}/columns", **CHOICE | {field: value})
    assert answer.status_code == 422
    focused = [tag for tag in answer.text.split("<") if " autofocus" in tag]
    assert len(focused) == 1
    assert f'id="{field}"' in focused[0]


@pytest.mark.parametrize("purpose", ["ask", "keep", "suppress"])
async def test_only_people_imported_as_confirmed_need_a_basis(editor: Worker, purpose: str) -> None:
    _path, job = await looked_over(editor, GOOD, purpose=purpose, basis="")
    assert job.is_rehearsed


# --- People who are there already ---------------------------------------------------------------


async def test_an_import_without_a_confirmation_is_no_dead_end(editor: Worker) -> None:
    await gone_person(editor, "eve@contoso.edu")
    file = GOOD + "eve@contoso.edu,Eve,\n"
    assert (await brought_in(editor, file, **KEEP)).added == 2
    path, job = await looked_over(editor, file)
    assert (job.added, job.already, job.confirmed, job.unsubscribed) == (0, 2, 2, 1)
    page = (await editor.get(path)).text
    assert "would be confirmed" in page
    assert f"Import into {LIST}" in page
    ada = await stored(editor, "ada@contoso.edu")
    assert ada
    assert not ada.verified
    await editor.post(f"{path}/start")
    assert (await settled(editor, path)).confirmed == 2
    ada = await stored(editor, "ada@contoso.edu")
    eve = await stored(editor, "eve@contoso.edu")
    assert ada
    assert eve
    assert (ada.verified, eve.verified) == (True, False)
    events = (await consents.history(editor.office.storage.tables, LIST, ada.key)).events
    assert [(each.event, str(source_text(each.source))) for each in events] == [
        ("imported", "import of people.csv"),
        ("confirmed", "import of people.csv: signed up at the conference 2026"),
    ]


async def test_fields_of_who_is_there_are_changed_only_if_asked_to(editor: Worker) -> None:
    await brought_in(editor, GOOD)
    file = GOOD.replace("Ada", "Ada L.").replace("Bob,", "Bob,Wien")
    path, job = await looked_over(editor, file)
    assert (job.already, job.updated) == (2, 0)
    page = (await editor.get(path)).text
    assert "There is nothing to import" in page
    assert "disabled>Add 0 people" in page
    assert (await brought_in(editor, file, existing="fill")).updated == 1
    ada, bob = await stored(editor, "ada@contoso.edu"), await stored(editor, "bob@contoso.edu")
    assert ada
    assert bob
    assert (ada.attributes["first_name"], bob.attributes["city"]) == ("Ada", "Wien")
    path, job = await looked_over(editor, file, existing="overwrite")
    assert "would be updated" in (await editor.get(path)).text
    assert job.updated == 1
    await editor.post(f"{path}/start")
    await settled(editor, path)
    ada = await stored(editor, "ada@contoso.edu")
    assert ada
    assert ada.attributes["first_name"] == "Ada L."


async def test_people_are_asked_first_and_the_number_of_emails_is_named(editor: Worker) -> None:
    queues = editor.office.storage.queues
    path, job = await looked_over(editor, GOOD, purpose="ask", basis="")
    assert (job.added, job.asked) == (2, 2)
    assert f"Import into {LIST}, and send 2 confirmation emails" in (await editor.get(path)).text
    assert await queues.length(SINGLE_MAIL_QUEUE) == 0
    await editor.post(f"{path}/start")
    assert (await settled(editor, path)).asked == 2
    assert await queues.length(SINGLE_MAIL_QUEUE) == 2
    ada = await stored(editor, "ada@contoso.edu")
    assert ada
    assert (ada.verified, ada.asked_at is not None) == (False, True)


# --- What the page shows ------------------------------------------------------------------------


async def test_duplicate_corrected_and_mistyped_rows_are_reported(editor: Worker) -> None:
    rows = "ada@contoso.edu,,\nmailto:eve@contoso.edu,,\nfay@gmial.com,,\n"
    path, job = await looked_over(editor, GOOD + rows)
    assert (job.added, job.already, job.duplicates, job.corrected, job.mistyped) == (4, 0, 1, 1, 1)
    page = (await editor.get(path)).text
    for words in (
        "duplicates in the file",
        "addresses corrected",
        "may be misspelled",
        "Addresses to check",
    ):
        assert words in page
    assert "read as eve@contoso.edu" in page
    assert "Did you mean gmail.com?" in page


async def test_an_import_that_is_done_can_be_deleted_without_loading_the_page_again(
    editor: Worker,
) -> None:
    job = await brought_in(editor, GOOD)
    live = (await editor.get(f"/admin/imports/{job.id}/live")).text
    assert f'action="/admin/imports/{job.id}/discard"' in live
    assert "Delete import and report" in live
    page = (await editor.get(f"/admin/imports/{job.id}")).text
    assert page.count("/discard") == 1


async def test_unfinished_imports_are_found_from_the_menu_and_from_their_list(
    editor: Worker,
) -> None:
    path = await uploaded(editor, GOOD, "spring.csv")
    await brought_in(editor, GOOD)
    assert (
        '<a href="/admin/imports" aria-current="page">' in (await editor.get("/admin/imports")).text
    )
    for page in (f"/admin/lists/{LIST}", f"/admin/subscribers?list={LIST}"):
        text = (await editor.get(page)).text
        assert f'<a href="{path}">spring.csv</a>' in text
        assert "people.csv" not in text
