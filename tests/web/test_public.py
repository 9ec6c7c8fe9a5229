"""Subscriber pages: GET shows, POST acts, links reveal nothing, one click needs no cookie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from postroom.domain.address import parse_address
from postroom.domain.subscriber import InactiveReason, Subscriber
from postroom.flow import subscribe
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.storage.port import Unavailable
from postroom.web import security
from tests.acting import acting
from tests.web.office import ADDRESS, LIST, NOW, Office, open_office

ONE_CLICK = b"List-Unsubscribe=One-Click"
MULTIPART = (
    b'--x\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--x--\r\n'
)
STRANGER = "0123456789abcdef0123456789abcdef"
OTHER_REASONS = [why for why in InactiveReason if why is not InactiveReason.UNSUBSCRIBED]


@pytest_asyncio.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as office:
        yield office


async def test_a_scanner_that_follows_every_link_changes_nothing(office: Office) -> None:
    verified = await office.join(verified=True)
    for path in (
        office.leave_path(verified.guid),
        office.leave_path(verified.guid) + "/left",
        office.leave_path(verified.guid) + "/kept",
        office.leave_path(verified.guid) + "/asked",
        office.confirm_path(verified.guid),
    ):
        assert (await office.browser.get(path)).status_code == 200
        assert (await office.browser.head(path)).status_code == 200
    assert await office.subscriber() == verified


async def test_a_scanner_does_not_confirm_for_anybody(office: Office) -> None:
    asked = await office.join(verified=False)
    page = await office.browser.get(office.confirm_path(asked.guid))
    assert "Confirm" in page.text
    assert not (await office.subscriber()).verified


async def test_the_page_names_the_list_and_the_masked_address(office: Office) -> None:
    subscriber = await office.join(verified=True)
    page = await office.browser.get(office.leave_path(subscriber.guid))
    assert "History &lt;b&gt;news&lt;/b&gt;" in page.text
    assert "s•••••1@contoso.edu" in page.text
    assert "student1" not in page.text


async def test_the_button_leaves_and_the_page_after_says_so(office: Office) -> None:
    path = office.leave_path((await office.join(verified=True)).guid)
    answer = await office.browser.post(path, data={"leave": "yes"})
    assert (answer.status_code, answer.headers["location"]) == (303, path + "/left")
    assert "You’ve unsubscribed" in (await office.browser.get(path + "/left")).text
    assert (await office.subscriber()).inactive_reason is InactiveReason.UNSUBSCRIBED
    assert "Already unsubscribed" in (await office.browser.get(path)).text


async def test_who_unsubscribed_by_mistake_is_asked_to_confirm_again(office: Office) -> None:
    left = office.leave_path((await office.join(verified=True)).guid)
    await office.browser.post(left, data={"leave": "yes"})
    assert f'action="{left}/again"' in (await office.browser.get(f"{left}/left")).text
    for _click in range(2):
        answer = await office.browser.post(f"{left}/again")
        assert answer.status_code == 303
    back = await office.subscriber()
    assert (back.inactive_reason, back.verified) == (None, False)
    assert await office.storage.queues.length(SINGLE_MAIL_QUEUE) == 1
    assert "Check your inbox" in (await office.browser.get(f"{left}/left")).text
    await office.browser.post(office.confirm_path(back.guid))
    assert (await office.subscriber()).verified
    assert "Nothing changed" in (await office.browser.get(f"{left}/left")).text


async def test_an_old_link_sends_one_confirmation_however_often_it_is_used(office: Office) -> None:
    left = office.leave_path((await office.join(verified=True)).guid)
    for _turn in range(3):
        await office.browser.post(left, data={"leave": "yes"})
        await office.browser.post(f"{left}/again")
    assert await office.storage.queues.length(SINGLE_MAIL_QUEUE) == 1
    page = await office.browser.get(f"{left}/left")
    assert "You’ve unsubscribed" in page.text
    assert f"{left}/again" not in page.text


@pytest.mark.parametrize(
    "why", [why for why in InactiveReason if why is not InactiveReason.UNSUBSCRIBED], ids=str
)
async def test_only_people_who_unsubscribed_may_undo_it(
    office: Office, why: InactiveReason
) -> None:
    one = await office.join(verified=True)
    await subscribe.leave(acting(office.storage, NOW), LIST, one.guid, why)
    left = office.leave_path(one.guid)
    await office.browser.post(left, data={"leave": "yes"})
    assert f"{left}/again" not in (await office.browser.get(f"{left}/left")).text
    await office.browser.post(f"{left}/again")
    assert (await office.subscriber()).inactive_reason is why
    assert await office.storage.queues.length(SINGLE_MAIL_QUEUE) == 0


async def test_nobody_subscribes_by_a_link_that_was_never_sent(office: Office) -> None:
    answer = await office.browser.post(office.leave_path(STRANGER) + "/again")
    page = await office.browser.get(answer.headers["location"])
    assert "Nothing to unsubscribe" in page.text
    assert await office.storage.queues.length(SINGLE_MAIL_QUEUE) == 0


async def come_back(office: Office) -> Subscriber:
    """Somebody who left is on the list again, confirmed, under another GUID."""
    tables, address = office.storage.tables, parse_address(ADDRESS)
    return await subscribe.add(
        acting(tables, NOW), LIST, address, {}, verified=True, bring_back=True
    )


async def test_the_link_of_an_old_mail_unsubscribes_who_came_back(office: Office) -> None:
    old = office.leave_path((await office.join(verified=True)).guid)
    await office.browser.post(old, data={"leave": "yes"})
    back = await come_back(office)
    assert office.leave_path(back.guid) != old
    assert "Unsubscribe?" in (await office.browser.get(old)).text
    await office.browser.post(old, data={"leave": "yes"})
    assert (await office.subscriber()).inactive_reason is InactiveReason.UNSUBSCRIBED


async def test_one_click_on_an_old_mail_unsubscribes_who_came_back(office: Office) -> None:
    old = office.leave_path((await office.join(verified=True)).guid)
    for _ in range(2):
        answer = await office.browser.post(old, data={"List-Unsubscribe": "One-Click"})
        assert answer.text == "Unsubscribed."
        assert (await office.subscriber()).inactive_reason is InactiveReason.UNSUBSCRIBED
        await come_back(office)


async def test_an_unknown_link_claims_nothing(office: Office) -> None:
    await office.join(verified=True)
    path = office.leave_path(STRANGER)
    assert "Nothing to unsubscribe" in (await office.browser.get(path)).text
    answer = await office.browser.post(path, data={"List-Unsubscribe": "One-Click"})
    assert "link is unknown" in answer.text


async def test_cancel_says_that_nothing_changed(office: Office) -> None:
    subscriber = await office.join(verified=True)
    page = await office.browser.get(office.leave_path(subscriber.guid))
    stay = office.leave_path(subscriber.guid) + "/kept"
    assert stay in page.text
    assert "Nothing changed" in (await office.browser.get(stay)).text
    assert await office.subscriber() == subscriber


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", ONE_CLICK),
        ("multipart/form-data; boundary=x", MULTIPART),
    ],
    ids=["urlencoded", "multipart"],
)
async def test_one_click_leaves_without_a_cookie_and_without_a_redirect(
    office: Office, kind: str, body: bytes
) -> None:
    path = office.leave_path((await office.join(verified=True)).guid)
    for words in ("Unsubscribed.", "Already unsubscribed."):
        answer = await office.browser.post(path, content=body, headers={"content-type": kind})
        assert (answer.status_code, answer.text) == (200, words)
        assert "set-cookie" not in answer.headers
    assert (await office.subscriber()).inactive_reason is InactiveReason.UNSUBSCRIBED


@pytest.mark.parametrize("body", [b"", b"List-Unsubscribe=Maybe", b"x=1"])
async def test_a_post_that_is_neither_click_nor_button_changes_nothing(
    office: Office, body: bytes
) -> None:
    subscriber = await office.join(verified=True)
    answer = await office.browser.post(
        office.leave_path(subscriber.guid),
        content=body,
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert "Unsubscribe?" in answer.text
    assert await office.subscriber() == subscriber


@pytest.mark.parametrize(
    "path",
    [
        f"/u/{LIST}/{STRANGER}",
        f"/u/nolist/{STRANGER}",
        f"/u/{LIST}/..%2f..%2fx",
        f"/u/a%23b/{STRANGER}",
        f"/u/{LIST}/%00",
    ],
)
async def test_a_wrong_link_reveals_nothing(office: Office, path: str) -> None:
    await office.join(verified=True)
    shown = await office.browser.get(path)
    assert shown.status_code in (200, 404)
    assert "contoso.edu" not in shown.text
    clicked = await office.browser.post(path, data={"List-Unsubscribe": "One-Click"})
    assert clicked.status_code in (200, 404)


async def test_a_link_outlives_its_list(office: Office) -> None:
    subscriber = await office.join(verified=True)
    await office.storage.tables.delete("mailinglist", LIST, "mailinglist")
    path = office.leave_path(subscriber.guid)
    assert "Unsubscribe?" in (await office.browser.get(path)).text
    answer = await office.browser.post(path, data={"List-Unsubscribe": "One-Click"})
    assert answer.status_code == 200


async def test_confirming_welcomes_and_a_second_time_too(office: Office) -> None:
    path = office.confirm_path((await office.join(verified=False)).guid)
    answer = await office.browser.post(path)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert (await office.subscriber()).verified
    assert "Welcome" in (await office.browser.get(path)).text
    assert (await office.browser.post(path)).status_code == 303


async def test_a_wrong_token_confirms_nobody(office: Office) -> None:
    path = office.confirm_path((await office.join(verified=False)).guid)
    for wrong in (path[:-1] + ("0" if path[-1] != "0" else "1"), path + "0"):
        assert "no longer valid" in (await office.browser.get(wrong)).text
        assert "no longer valid" in (await office.browser.post(wrong)).text
    assert not (await office.subscriber()).verified


@pytest.mark.parametrize("path", ["/", f"/u/{LIST}/{STRANGER}", "/nothing", "/static/public.css"])
async def test_every_answer_carries_strict_headers(office: Office, path: str) -> None:
    answer = await office.browser.get(path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["strict-transport-security"].startswith("max-age=")
    is_static = path.startswith("/static")
    assert ("no-store" in answer.headers["cache-control"]) is not is_static


async def test_no_page_has_script_or_anything_from_elsewhere(office: Office) -> None:
    subscriber = await office.join(verified=True)
    for path in ("/", office.leave_path(subscriber.guid), office.confirm_path(subscriber.guid)):
        page = (await office.browser.get(path)).text
        assert "<script" not in page
        assert "http" not in page
        assert len(page) < 20_000


async def test_without_https_the_browser_is_not_told_to_insist_on_it(tmp_path: Path) -> None:
    async with open_office(tmp_path, "http://127.0.0.1:8025") as office:
        assert "strict-transport-security" not in (await office.browser.get("/")).headers


async def test_a_body_that_is_too_large_is_refused_while_it_comes(office: Office) -> None:
    subscriber = await office.join(verified=True)

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 1024

    answer = await office.browser.post(
        office.leave_path(subscriber.guid),
        content=endless(),
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code in (400, 413)
    assert await office.subscriber() == subscriber


async def test_storage_that_fails_gives_a_page_that_says_try_again(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(*_: Any) -> None:
        raise Unavailable("busy")

    monkeypatch.setattr(office.storage.tables, "get", get)
    answer = await office.browser.get(office.leave_path(STRANGER))
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert "try again" in answer.text.lower()
    assert (await office.browser.get("/readyz")).status_code == 503
    assert (await office.browser.get("/healthz")).status_code == 200


async def test_storage_that_is_slow_gives_the_same_page_after_a_bounded_time(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(office.storage.tables, "get", get)
    monkeypatch.setattr(security, "ORDINARY", security.RequestLimits(answer_s=0.01))
    assert (await office.browser.get(office.leave_path(STRANGER))).status_code == 503


async def test_a_page_that_is_not_there_says_so(office: Office) -> None:
    answer = await office.browser.get("/nothing")
    assert answer.status_code == 404
    assert "Page not found" in answer.text


async def test_it_is_ready_when_storage_answers(office: Office) -> None:
    assert (await office.browser.get("/readyz")).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_whoever_only_asks_for_the_head_learns_it_as_well(office: Office, path: str) -> None:
    assert (await office.browser.head(path)).status_code == 200


async def test_a_list_row_of_a_newer_version_keeps_nobody_from_leaving_or_confirming(
    office: Office,
) -> None:
    subscriber, tables = await office.join(verified=False), office.storage.tables
    row = await tables.get("mailinglist", LIST, "mailinglist")
    assert row
    await tables.upsert("mailinglist", LIST, "mailinglist", row.properties | {"Format": 99})
    confirm, leave = office.confirm_path(subscriber.guid), office.leave_path(subscriber.guid)
    assert "Confirm" in (await office.browser.get(confirm)).text
    assert (await office.browser.post(confirm)).status_code == 303
    assert "Unsubscribe?" in (await office.browser.get(leave)).text
    answer = await office.browser.post(leave, data={"List-Unsubscribe": "One-Click"})
    assert (answer.status_code, answer.text) == (200, "Unsubscribed.")
    assert (await office.subscriber()).inactive_reason is InactiveReason.UNSUBSCRIBED


@pytest.mark.parametrize("charset", ["iso-8859-1", "undefined", "us-ascii"])
async def test_one_click_leaves_whatever_charset_it_names(office: Office, charset: str) -> None:
    path = office.leave_path((await office.join(verified=True)).guid)
    kind = {"content-type": f'multipart/form-data; charset={charset}; boundary="x"'}
    assert (await office.browser.post(path, content=MULTIPART, headers=kind)).status_code == 200
    assert (await office.subscriber()).inactive_reason is InactiveReason.UNSUBSCRIBED
