"""Test mode: every page says that nothing is sent, and what was kept is never called sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.message import Books, Status
from postroom.domain.user import Role
from postroom.records import messages
from tests.web.office import NOW, open_office
from tests.web.people import join
from tests.web.signed_in import Worker, sign_in_as
from tests.web.test_admin_outbox import first_path, keep
from tests.web.test_admin_sending import going_out

STRIP = "no mail server is set up, so emails are kept here instead of being sent"


@asynccontextmanager
async def owner_at(folder: Path, **more: Any) -> AsyncIterator[Worker]:
    async with open_office(folder, **more) as office:
        worker = await sign_in_as(office, Role.OWNER)
        async with worker.browser:
            yield worker


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    """In test mode."""
    async with owner_at(tmp_path, has_outbox=True) as worker:
        yield worker


@pytest_asyncio.fixture
async def sending(tmp_path: Path) -> AsyncIterator[Worker]:
    """With a mail server, and mails kept before it was set up."""
    server = "mail.contoso.edu:587"
    async with owner_at(tmp_path, has_kept_mails=True, mail_server=server) as worker:
        await keep(worker, 3)
        yield worker


async def completed(owner: Worker, **more: Any) -> str:
    return await going_out(owner, Status.COMPLETED, completed_at=NOW, **more)


@pytest.mark.parametrize("path", ["/admin", "/admin/lists", "/admin/messages", "/admin/outbox"])
async def test_every_page_says_so_and_where_to_set_up_sending(owner: Worker, path: str) -> None:
    page = (await owner.get(path)).text
    assert STRIP in page
    assert '<a href="/admin/sending">Set up sending</a>' in page
    assert "POSTROOM_TRANSPORT=smtp://" in (await owner.get("/admin/sending")).text


async def test_no_page_says_so_with_a_mail_server(sending: Worker) -> None:
    assert STRIP not in (await sending.get("/admin")).text
    page = (await sending.get("/admin/sending")).text
    assert "Emails are sent through the mail server <strong>mail.contoso.edu:587</strong>" in page


async def test_what_was_kept_is_not_called_sent(owner: Worker) -> None:
    path = await completed(owner, is_test=True)
    page = (await owner.get(path)).text
    assert "in the test mailbox" in page
    assert 'aria-label="0 of 2 sent"' not in page
    assert '<span class="quiet">in the test mailbox</span>' in (await owner.get("/admin")).text
    assert (
        '<span class="quiet">in the test mailbox</span>'
        in (await owner.get("/admin/messages")).text
    )


async def test_what_is_about_to_start_is_not_called_sent(owner: Worker) -> None:
    path = await going_out(owner, Status.PENDING)
    tables = owner.office.storage.tables
    found = await messages.find_live(tables, path.rpartition("/")[2])
    assert found
    waiting = msgspec.structs.replace(found[0], queuing_at=None, books=Books())
    await messages.replace(tables, waiting, found[1])
    page = (await owner.get(path)).text
    assert "in the test mailbox" in page
    assert "Delivery reports" not in page


async def test_what_was_kept_stays_kept_when_a_mail_server_is_set_up(sending: Worker) -> None:
    assert "in the test mailbox" in (await sending.get(await completed(sending, is_test=True))).text
    page = (await sending.get(await completed(sending))).text
    assert "in the test mailbox" not in page
    assert "test mailbox" not in page


async def test_who_may_resume_a_test_is_warned_that_people_will_get_it(
    owner: Worker, sending: Worker
) -> None:
    warning = "emails that are still queued will be sent to real people"
    for worker, is_warned in ((owner, False), (sending, True)):
        path = await going_out(worker, Status.PAUSED, is_test=True)
        assert (warning in (await worker.get(path)).text) is is_warned
        assert warning not in (await worker.get(await completed(worker, is_test=True))).text


# --- The test mailbox ---------------------------------------------------------------------------


async def test_the_mailbox_says_how_many_it_has(owner: Worker) -> None:
    await keep(owner, 31)
    assert "31 emails." in (await owner.get("/admin/outbox")).text


async def test_what_was_kept_can_be_read_and_deleted_with_a_mail_server(sending: Worker) -> None:
    menu = '<a href="/admin/outbox">'
    assert menu in (await sending.get("/admin/lists")).text
    page = (await sending.get("/admin/outbox")).text
    assert "they were never sent" in page
    assert (await sending.get(await first_path(sending))).status_code == 200
    answer = await sending.post("/admin/outbox/empty")
    page = (await sending.get(answer.headers["location"])).text
    assert "A mail server is set up, so emails are sent." in page
    assert menu not in page


# --- First steps --------------------------------------------------------------------------------


async def steps_done(owner: Worker) -> int:
    page = (await owner.get("/admin")).text
    assert "Send your first message in five minutes" in page
    return page.count('<li class="done">')


async def test_first_steps_get_their_ticks(owner: Worker) -> None:
    assert await steps_done(owner) == 1  # a list
    await join(owner, "ada@contoso.edu", verified=True)
    assert await steps_done(owner) == 2
    await completed(owner, is_test=True)
    assert await steps_done(owner) == 4  # written, sent; a mail server is left


async def test_first_steps_are_over_with_the_first_message_that_was_sent(sending: Worker) -> None:
    assert await steps_done(sending) == 2  # a list, a mail server
    await completed(sending)
    assert "Send your first message" not in (await sending.get("/admin")).text


async def test_books_of_the_overview_are_not_called_sent_either(owner: Worker) -> None:
    await going_out(owner, is_test=True)
    assert "in the test mailbox" in (await owner.get("/admin")).text
