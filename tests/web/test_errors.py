"""What people and programs read when something fails, and what is written down of it."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog
from structlog.testing import capture_logs

from postroom.domain.errors import AlreadyThere, WrongState
from postroom.domain.mailing_list import MailingList
from postroom.domain.user import Role
from postroom.records import counts, lists
from postroom.storage.port import StorageGone, Unavailable
from postroom.web import security
from tests.web.drafts import written
from tests.web.office import ADDRESS, LIST, NOW
from tests.web.signed_in import OWN_PAGE, Worker, at_work

FOR_SUBSCRIBERS = ("the email", "public.css")


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER) as worker:
        yield worker


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    with capture_logs() as lines:
        yield lines
    structlog.configure(**before)


def is_for_administrators(page: str) -> bool:
    return "admin.css" in page and not any(words in page for words in FOR_SUBSCRIBERS)


def failing(error: Exception) -> Any:
    async def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


async def spoil(owner: Worker, table: str, partition: str, key: str) -> None:
    """As a newer version of the program would leave a row."""
    tables = owner.office.storage.tables
    row = await tables.get(table, partition, key)
    assert row
    await tables.upsert(table, partition, key, row.properties | {"Format": 99})


# --- Keys that are typed into the address -----------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        f"/admin/lists?after={ADDRESS}/",
        "/admin/lists?after=a%23b",
        f"/admin/lists?after={'x' * 600}",
        f"/admin/messages?after={'1' * 600}",
        "/admin/messages?after=%D9%A1",
        "/admin/messages?after=a/b",
        f"/admin/subscribers?after={ADDRESS}/",
    ],
)
async def test_a_page_that_begins_nowhere_is_not_found(owner: Worker, path: str) -> None:
    await lists.create(
        owner.office.storage.tables,
        MailingList(name="second", description="", sender="a@contoso.edu", created_at=NOW),
    )
    answer = await owner.browser.get(path)
    assert answer.status_code == 404
    assert is_for_administrators(answer.text)


async def test_a_message_cannot_be_saved_under_what_is_no_ref(owner: Worker) -> None:
    answer = await owner.post("/admin/messages/a%23b/write", subject="Mine", body="<p>Words</p>")
    assert answer.status_code == 409
    assert "Mine" in answer.text


# --- The database file is gone ----------------------------------------------------------------


async def test_a_database_that_is_gone_is_reported_to_administrators_and_programs(
    owner: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the path, and to subscribers as any trouble: they cannot fix it."""
    gone = failing(StorageGone("The database file /srv/postroom.db was deleted."))
    monkeypatch.setattr(owner.office.storage.tables, "get", gone)
    words = "deleted or replaced while Postroom was running. Stop all roles, restore the file"
    page = await owner.get("/admin/lists")
    assert (page.status_code, words in page.text) == (503, True)
    form = await owner.post("/admin/lists/new", name="contoso9", sender="a@contoso.edu")
    assert (form.status_code, words in form.text) == (503, True)
    assert 'value="contoso9"' in form.text
    headers = {"Authorization": f"Bearer prk_{'x' * 40}"}
    call = await owner.browser.get("/api/v1/lists", headers=headers)
    assert (call.status_code, words in call.json()["detail"]) == (503, True)
    ready = await owner.browser.get("/readyz")
    assert (ready.status_code, words in ready.json()["status"]) == (503, True)
    public = await owner.browser.get("/u/contoso1/0123")
    assert (public.status_code, words in public.text) == (503, False)
    for answer in (page, form, call, ready, public):
        assert "/srv" not in answer.text


# --- What nobody foresaw ----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/admin/lists", "/u/contoso1/0123", "/api/v1/lists"])
async def test_an_error_nobody_foresaw_is_answered_and_told_without_its_words(
    owner: Worker,
    logs: list[MutableMapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    error = ValueError(f"not a storage key: {ADDRESS}")
    for name in ("scan", "get"):
        allowed = getattr(owner.office.storage.tables, name)
        monkeypatch.setattr(owner.office.storage.tables, name, _but_sessions(allowed, error))
    headers = {"Authorization": f"Bearer prk_{'x' * 40}"} if "api" in path else None
    answer = await owner.browser.get(path, headers=headers)
    assert answer.status_code == 500
    [line] = [line for line in logs if line["event"] == "page_failed"]
    assert line["error"] == "ValueError"
    assert re.fullmatch(r"[a-z_/]+\.py:\d+", line["at"])
    assert ADDRESS not in repr(logs) + answer.text
    if path.startswith("/api"):
        assert answer.headers["content-type"] == "application/problem+json"
    else:
        assert is_for_administrators(answer.text) is path.startswith("/admin")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def _but_sessions(allowed: Any, error: Exception) -> Any:
    async def act(table: str, *more: Any, **named: Any) -> Any:
        is_key = any("key" in str(each) for each in more)
        if table == "service" and not is_key:
            return await allowed(table, *more, **named)
        raise error

    return act


async def test_a_stream_that_breaks_off_ends_and_is_reported_without_its_words(
    owner: Worker, logs: list[MutableMapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await owner.office.join(verified=True)
    allowed, calls = owner.office.storage.tables.scan, 0

    async def scan(*more: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise Unavailable(ADDRESS)
        return await allowed(*more, **named)

    monkeypatch.setattr(owner.office.storage.tables, "scan", scan)
    # The answer has no end, so that nobody takes the file for whole; the browser insists on one.
    with pytest.raises(AssertionError):
        await owner.get("/admin/subscribers/export", list=LIST)
    [line] = [line for line in logs if line["event"] == "page_failed"]
    assert line["error"] == "Unavailable"
    assert ADDRESS not in repr(logs)


# --- Rows of a newer version ------------------------------------------------------------------


async def test_a_list_of_a_newer_version_hides_none_of_the_others(owner: Worker) -> None:
    newer = MailingList(name="newer", description="", sender="a@contoso.edu", created_at=NOW)
    tables = owner.office.storage.tables
    await lists.create(tables, newer)
    await spoil(owner, "mailinglist", "newer", "mailinglist")
    found, _next = await lists.page(tables, limit=10)
    assert [each.name for each in found] == [LIST]
    assert LIST in (await owner.get("/admin/lists")).text


async def test_a_row_of_a_newer_version_says_try_again(owner: Worker) -> None:
    path = await written(owner)
    await spoil(owner, "mailinglist", LIST, "mailinglist")
    await spoil(owner, "message", f"m-{path.rpartition('/')[2]}", "message")
    for page in (f"/admin/lists/{LIST}", path):
        answer = await owner.get(page)
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert "Please try again" in answer.text
        assert is_for_administrators(answer.text)


# --- Pages for administrators -----------------------------------------------------------------


@pytest.mark.parametrize("error", [AlreadyThere("It is there."), WrongState("It is there.")])
async def test_what_cannot_be_done_now_is_reported_in_a_sentence(
    owner: Worker, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(counts, "read", failing(error))
    answer = await owner.get(f"/admin/lists/{LIST}")
    assert answer.status_code == 409
    assert "It is there." in answer.text
    assert is_for_administrators(answer.text)


async def test_every_failure_has_a_page_for_administrators(
    owner: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {"name": "x" * 70_000}
    answers = {
        404: await owner.get("/admin/nothing"),
        405: await owner.browser.put("/admin/lists", headers=OWN_PAGE),
        413: await owner.post("/admin/lists/new", **long),
    }
    monkeypatch.setattr(lists, "page", failing(Unavailable("no answer")))
    answers[503] = await owner.get("/admin/lists")
    for status, answer in answers.items():
        assert answer.status_code == status
        assert is_for_administrators(answer.text)
        assert "Go to the overview" in answer.text


async def test_a_page_that_takes_too_long_is_one_for_administrators(
    owner: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "page", failing(TimeoutError()))
    answer = await owner.get("/admin/lists")
    assert answer.status_code == 503
    assert is_for_administrators(answer.text)
    monkeypatch.setattr(security, "ORDINARY", security.RequestLimits(answer_s=0))
    answer = await owner.get("/admin/lists")
    assert answer.status_code == 503
    assert is_for_administrators(answer.text)
