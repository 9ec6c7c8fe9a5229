"""The suppression list on the admin pages: look up, explain, add, import, export, remove, erase."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from html import unescape
from pathlib import Path

import httpx2
import msgspec
import pytest
import pytest_asyncio

from postroom.domain.address import parse_address
from postroom.domain.confirmation import ConfirmationAttempts, ConfirmationState
from postroom.domain.delivery_token import delivery_tokens, single_mail_token
from postroom.domain.seal import seal
from postroom.domain.suppression import Suppression, SuppressionReason, SuppressionScope
from postroom.domain.user import Role
from postroom.records import subscribers, suppressions
from tests.web.drafts import written
from tests.web.office import LIST, NOW
from tests.web.people import join, next_of, path_of, second_list, shown, stored
from tests.web.signed_in import OWN_PAGE, Worker, at_work, notice_in, sign_in_as

PATH = "/admin/suppression"
ADA, BEN = "ada@contoso.edu", "ben@contoso.edu"
WORDS = "550 5.1.1 mailbox unavailable"


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER) as worker:
        yield worker


def entry_path_of(worker: Worker, key: str) -> str:
    return f"{PATH}/{seal(worker.office.site.secret, 'suppression', key)}"


async def found(worker: Worker, address: str) -> Suppression | None:
    key = parse_address(address).storage_key
    row = await suppressions.find(worker.office.storage.tables, worker.office.site.secret, key)
    return row.value if row else None


async def add(worker: Worker, address: str, **fields: str) -> httpx2.Response:
    return await worker.post(f"{PATH}/new", **{"address": address, "scope": "bulk"} | fields)


async def upload(
    worker: Worker, content: str | bytes, name: str = "people.csv", **fields: str
) -> httpx2.Response:
    files = {"file": (name, content if isinstance(content, bytes) else content.encode())}
    data = {"scope": "bulk"} | fields
    return await worker.browser.post(
        f"{PATH}/import", data=data, files=files if name else None, headers=OWN_PAGE
    )


def every_suppression(secret: str, ref: str = "000000000000000001") -> Iterator[Suppression]:
    """An entry from every source that has words of its own."""
    token = delivery_tokens(secret.encode(), ref, 0, [0])[0]
    confirmation = single_mail_token(secret.encode(), "0" * 32)
    sources = ["smtp", "mailbox", "sendgrid", "user ada@contoso.edu", "key", "command line", "file"]
    for number, source in enumerate(sources):
        yield Suppression(
            key=ADA,
            address=ADA,
            scope=list(SuppressionScope)[number % 3],
            lists=LIST if number % 3 == 0 else "",
            reason=list(SuppressionReason)[number % len(SuppressionReason)],
            since=NOW,
            source=source,
            delivery=confirmation if number % 2 else token,
            status="5.1.1",
            words=WORDS,
            note="They asked",
        )


# --- Add, look up, explain --------------------------------------------------------------------


async def test_an_address_is_added_found_by_its_start_and_explained(owner: Worker) -> None:
    answer = await add(owner, "Ada@Contoso.EDU", note="asked by phone")
    assert notice_in(answer) == "suppressed"
    assert "ada" not in answer.headers["location"].lower()
    page = (await owner.get(answer.headers["location"])).text
    assert "Ada@contoso.edu" in page
    assert "asked by phone" in page
    assert "user owner@contoso.edu" in page
    await add(owner, BEN)
    assert shown((await owner.get(PATH)).text) == ["Ada@contoso.edu", BEN]
    assert shown((await owner.get(PATH, q="be")).text) == [BEN]
    assert "Not suppressed" in (await owner.get(PATH, q="zoe")).text
    assert "Not suppressed" in (await owner.get(PATH, q="a\x00@")).text


async def test_adding_widens_and_never_narrows(owner: Worker) -> None:
    await second_list(owner)
    for name in (LIST, "contoso2"):
        assert notice_in(await add(owner, ADA, scope="list", list=name)) == "suppressed"
    entry = await found(owner, ADA)
    assert entry
    assert entry.lists == f"{LIST},contoso2"
    assert notice_in(await add(owner, ADA, scope="all")) == "suppressed"
    assert notice_in(await add(owner, ADA, scope="bulk")) == "already-suppressed"
    entry = await found(owner, ADA)
    assert entry
    assert (entry.scope, entry.lists) == (SuppressionScope.ALL, "")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"address": "nobody"}, "no @"),
        ({"scope": "most"}, "Choose what is stopped"),
        ({"scope": "list"}, "at least one list"),
        ({"scope": "list", "list": "nolist"}, "no list nolist"),
        ({"scope": "list", "list": "no list"}, "list"),
        ({"note": "x" * 501}, "500 characters"),
    ],
)
async def test_a_mistake_brings_the_form_back_as_it_was(
    owner: Worker, fields: dict[str, str], words: str
) -> None:
    answer = await add(owner, **{"address": ADA, "note": "by phone"} | fields)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert words in unescape(answer.text)
    assert f'value="{fields.get("address", ADA)}"' in answer.text
    assert await found(owner, ADA) is None


async def test_the_list_comes_in_pages_that_name_nobody(owner: Worker) -> None:
    rows = "".join(f"student{number:03}@contoso.edu\n" for number in range(120))
    assert notice_in(await upload(owner, rows)) == "suppressions-imported"
    seen: list[str] = []
    path = PATH
    for _page in range(3):
        page = (await owner.get(path)).text
        seen += shown(page)
        path = next_of(page)
        assert "student" not in path
    assert seen == [f"student{number:03}@contoso.edu" for number in range(120)]
    assert "Next page" not in page


async def test_an_entry_links_to_its_message_and_shows_the_words_of_the_server(
    owner: Worker,
) -> None:
    ref = (await written(owner)).rpartition("/")[2]
    secret = owner.office.site.secret
    entry = next(every_suppression(secret, ref))
    await suppressions.put(owner.office.storage.tables, secret, ADA, entry, NOW)
    page = unescape((await owner.get(entry_path_of(owner, ADA))).text)
    assert f'href="/admin/messages/{ref}"' in page
    assert f"“{WORDS}”" in page
    assert "the mail server, while sending" in page
    gone = (await owner.get(entry_path_of(owner, BEN))).status_code
    assert (gone, (await owner.get(f"{PATH}/forged")).status_code) == (404, 404)


# --- Remove and erase ---------------------------------------------------------------------------


async def test_only_an_owner_removes_and_is_asked_once(owner: Worker) -> None:
    await add(owner, ADA)
    path = entry_path_of(owner, ADA)
    editor = await sign_in_as(owner.office, Role.EDITOR)
    async with editor.browser:
        page = (await editor.get(path)).text
        assert "Only an owner can remove" in page
        assert f"{path}/remove" not in page
        assert (await editor.post(f"{path}/remove")).status_code == 403
        assert (await editor.post(f"{PATH}/erase", address=ADA, sure="yes")).status_code == 403
    assert await found(owner, ADA)
    assert ADA in (await owner.get(f"{path}/remove")).text
    for _click in range(2):
        assert notice_in(await owner.post(f"{path}/remove")) == "unsuppressed"
    assert await found(owner, ADA) is None


async def test_erasing_needs_a_tick_and_is_found_by_the_whole_address_only(owner: Worker) -> None:
    await join(owner, ADA, first_name="Ada")
    await add(owner, ADA, note="Ada")
    assert (await owner.post(f"{PATH}/erase", address=ADA)).status_code == 422
    assert notice_in(await owner.post(f"{PATH}/erase", address=ADA, sure="yes")) == "erased"
    assert await stored(owner, ADA) is None
    assert shown((await owner.get(PATH)).text) == []
    assert "was erased" not in (await owner.get(PATH, q="ada@contoso")).text
    page = (await owner.get(PATH, q="ADA@contoso.edu")).text
    assert "was erased" in page
    assert "Erased person" in (await owner.get(entry_path_of(owner, ADA))).text
    assert ADA not in (await owner.get(f"{PATH}/export")).text


async def test_a_viewer_looks_up_and_changes_nothing(owner: Worker) -> None:
    await add(owner, ADA)
    viewer = await sign_in_as(owner.office, Role.VIEWER)
    async with viewer.browser:
        page = (await viewer.get(PATH)).text
        assert shown(page) == [ADA]
        assert not re.search(r"suppression/(new|import|erase)", page)
        for path in ("new", "import"):
            assert (await viewer.get(f"{PATH}/{path}")).status_code == 403
        assert (await add(viewer, BEN)).status_code == 403


# --- Files ------------------------------------------------------------------------------------


async def test_a_file_is_imported_and_exported_again(owner: Worker) -> None:
    rows = f"email,scope,note\n{ADA},all,=1+1\n{BEN},,\n"
    assert notice_in(await upload(owner, rows, scope="list", list=LIST)) == "suppressions-imported"
    entry = await found(owner, BEN)
    assert entry
    assert (entry.lists, entry.source) == (LIST, "file people.csv")
    answer = await owner.get(f"{PATH}/export")
    assert 'filename="suppression-2026-11-15.csv"' in answer.headers["content-disposition"]
    lines = answer.text.removeprefix("\ufeff").splitlines()
    assert lines[0] == "email,scope,reason,since,lists,source,status,words,note"
    assert lines[1].startswith(f"{ADA},all,imported,2026-11-15T09:00:00+00:00,,file people.csv")
    assert lines[1].endswith(",'=1+1")
    again = await upload(owner, answer.text)
    page = (await owner.get(again.headers["location"])).text
    assert "0 addresses were added. Already suppressed: 2." in page


async def test_bad_rows_are_shown_with_their_lines_and_the_others_are_suppressed(
    owner: Worker,
) -> None:
    answer = await upload(owner, f"email\n{ADA}\nnobody\n" + "x\n" * 60)
    assert answer.status_code == 422
    page = unescape(answer.text)
    assert "61 rows could not be read" in page
    assert "Line 3: nobody: " in page
    assert "1 added" in page
    assert await found(owner, ADA)


@pytest.mark.parametrize(
    ("content", "name", "fields", "words"),
    [
        ("", "", {}, "The form contains no file"),
        (b"PK\x03\x04", "people.xlsx", {}, "spreadsheet"),
        (ADA, "people.csv", {"scope": "list"}, "at least one list"),
        ("a" * (6 * 1024 * 1024), "people.csv", {}, "larger than 5 MiB"),
    ],
)
async def test_a_file_that_cannot_be_imported_is_refused_in_words(
    owner: Worker, content: str | bytes, name: str, fields: dict[str, str], words: str
) -> None:
    answer = await upload(owner, content, name, **fields)
    assert answer.status_code == 422
    assert words in unescape(answer.text)
    assert await found(owner, ADA) is None


# --- A person's page --------------------------------------------------------------------------


async def test_a_persons_page_says_that_they_are_suppressed_and_links_to_why(
    owner: Worker,
) -> None:
    await join(owner, ADA)
    path = await path_of(owner, ADA)
    assert "Suppressed" not in (await owner.get(path)).text.replace("Suppression", "")
    await add(owner, ADA, scope="list", list=LIST)
    page = (await owner.get(path)).text
    assert f"<strong>Suppressed</strong> for {LIST}: added by a person." in page
    assert entry_path_of(owner, ADA) in page
    assert "They are subscribed, but receive no messages." in page


@pytest.mark.parametrize("state", [ConfirmationState.REFUSED, ConfirmationState.GIVEN_UP])
async def test_a_confirmation_that_failed_can_be_sent_again(
    owner: Worker, state: ConfirmationState
) -> None:
    one = await join(owner, ADA, verified=False)
    path = await path_of(owner, ADA)
    await owner.post(f"{path}/ask")
    assert "Ask again later" in (await owner.get(path)).text
    row = await subscribers.find(owner.office.storage.tables, LIST, one.key)
    assert row
    tried = ConfirmationAttempts(state=state, count=1, first_at=NOW, last_at=NOW, words=WORDS)
    failed = msgspec.structs.replace(row.value, confirmation=tried)
    await subscribers.replace(owner.office.storage.tables, row.value, failed, row.etag)
    assert "Send again" in (await owner.get(path)).text
    assert notice_in(await owner.post(f"{path}/ask")) == "asked"
    page = (await owner.get(path)).text
    assert WORDS not in page
    assert "Ask again later" in page


async def test_nobody_is_asked_while_they_are_suppressed_for_all_email(owner: Worker) -> None:
    await join(owner, ADA, verified=False)
    await add(owner, ADA, scope="all")
    page = (await owner.get(await path_of(owner, ADA))).text
    assert "until an owner removes the address" in page
    assert "Send confirmation email" not in page
