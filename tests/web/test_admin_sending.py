"""A message on its way, on the admin pages: books, people, pause, cancel, retry, decide."""

from __future__ import annotations

import csv
import io
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State
from postroom.domain.message import Books, Revive, Status
from postroom.domain.user import Role
from postroom.records import archive, batches, messages
from postroom.records.recipients import Recipient
from tests.web.drafts import GOOD, stored, written
from tests.web.office import NOW
from tests.web.signed_in import Worker, at_work, notice_in


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def going_out(editor: Worker, status: Status = Status.PROCESSING, **more: Any) -> str:
    """The path of a message with a batch of two: one failed, one held."""
    tables = editor.office.storage.tables
    path = await written(editor)
    ref = path.rpartition("/")[2]
    found = await messages.find_live(tables, ref)
    assert found
    people = [Delivery(at, f"key{at}", f"=student{at}@contoso.edu", f"guid{at}") for at in range(2)]
    recipients = [Recipient(one.key, one.address, one.guid, "") for one in people]
    await batches.write_batches(tables, found[0], [recipients])
    ledger = Ledger(ref=ref, batch=0, states="fh", first="key0", last="key1")
    await batches.insert_ledgers(tables, [ledger])
    ended = DeliveryEnd(State.FAILED, "550 5.1.1 mailbox unavailable", NOW)
    await archive.write(tables, ledger, dict(enumerate(people)), {0: ended})
    message = msgspec.structs.replace(
        found[0],
        status=status,
        due_at=NOW,
        queuing_at=NOW,
        batches=1,
        audience=2,
        fanned_out=True,
        batches_requeued=1,
        books=Books(failed=1, held=1, doubts=1),
        **more,
    )
    await messages.replace(tables, message, found[1])
    return path


async def test_a_message_on_its_way_shows_books_that_balance(editor: Worker) -> None:
    page = (await editor.get(await going_out(editor))).text
    assert "1 + 1 =" in page
    assert "<strong>2</strong> recipients, all accounted for." in page
    assert 'sse-connect="' in page
    assert "Reload" in page  # without script


async def test_people_are_listed_by_outcome_with_the_servers_words(editor: Worker) -> None:
    path = await going_out(editor)
    page = (await editor.get(path, outcome="failed")).text
    assert "student0@contoso.edu" in page
    assert "550 5.1.1 mailbox unavailable" in page
    assert "student1@contoso.edu" not in page
    assert "student1@contoso.edu" in (await editor.get(path)).text  # the held come first


async def test_an_outcome_as_csv_is_safe_in_a_spreadsheet(editor: Worker) -> None:
    path = await going_out(editor)
    answer = await editor.get(f"{path}/people/export", outcome="failed")
    assert answer.content.startswith(BOM_UTF8)  # or it is read as Windows-1252
    rows = list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))
    assert [row["email"] for row in rows] == ["'=student0@contoso.edu"]
    assert rows[0]["words"] == "550 5.1.1 mailbox unavailable"
    everybody = await editor.get(f"{path}/people/export")
    assert len(everybody.text.splitlines()) == 3
    assert "attachment" in everybody.headers["content-disposition"]


async def test_pause_and_resume(editor: Worker) -> None:
    path = await going_out(editor)
    answer = await editor.post(f"{path}/pause")
    assert (answer.headers["location"], notice_in(answer)) == (path, "paused")
    assert (await stored(editor, path)).status is Status.PAUSED
    again = await editor.post(f"{path}/pause")
    assert again.status_code == 409
    assert "Only a message that is being sent can be paused" in again.text
    await editor.post(f"{path}/resume")
    assert (await stored(editor, path)).status is Status.QUEUING


async def test_cancelling_asks_first(editor: Worker) -> None:
    path = await going_out(editor)
    assert "Keep sending" in (await editor.get(f"{path}/cancel")).text
    assert (await stored(editor, path)).status is Status.PROCESSING
    await editor.post(f"{path}/cancel")
    assert (await stored(editor, path)).status is Status.CANCELLED


async def test_the_failed_are_retried(editor: Worker) -> None:
    path = await going_out(editor, Status.COMPLETED, completed_at=NOW)
    assert "Retry 1 failed" in (await editor.get(path)).text
    await editor.post(f"{path}/retry")
    assert (await stored(editor, path)).revive is Revive.FAILED


@pytest.mark.parametrize(
    ("choice", "revive"), [("again", Revive.HELD), ("sent", Revive.HELD_AS_SENT)]
)
async def test_the_held_are_decided_on_by_a_person_who_sees_how_many(
    editor: Worker, choice: str, revive: Revive
) -> None:
    path = await going_out(editor, Status.COMPLETED, completed_at=NOW)
    assert "1 held delivery" in (await editor.get(f"{path}/decide")).text
    assert (await editor.post(f"{path}/decide")).status_code == 422
    await editor.post(f"{path}/decide", held=choice)
    assert (await stored(editor, path)).revive is revive


async def test_a_second_click_on_send_leads_to_the_message_being_sent(editor: Worker) -> None:
    """The scheduler may be quicker than the second click."""
    path = await going_out(editor)
    before = await stored(editor, path)
    answer = await editor.post(f"{path}/send", etag="of the draft")
    assert (answer.headers["location"], notice_in(answer)) == (path, "sending")
    assert await stored(editor, path) == before


@pytest.mark.parametrize("page", ["write", "send", "schedule", "delete"])
async def test_a_message_being_sent_can_no_longer_be_edited(editor: Worker, page: str) -> None:
    path = await going_out(editor)
    assert (await editor.get(f"{path}/{page}")).headers["location"] == path
    before = await stored(editor, path)
    later = {"date": "2026-12-01", "time": "09:30", "zone": "UTC"}
    answer = await editor.post(f"{path}/{page}", **GOOD | later | {"etag": "any"})
    assert answer.status_code in (409, 422)
    assert await stored(editor, path) == before
