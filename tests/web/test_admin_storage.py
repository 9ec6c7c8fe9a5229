"""The storage explorer: what an owner sees and changes, and what nobody sees."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.actions import sign_in
from postroom.domain.audit import AuditAction, AuditKind, AuditOutcome
from postroom.domain.user import Role
from postroom.feedback.webhooks.post import SubscriptionNotice
from postroom.records import keys, users, webhooks
from postroom.records.audit import TABLE as AUDIT
from postroom.records.names import MAIL_QUEUE, SINGLE_MAIL_QUEUE, TABLES
from postroom.records.queue_items import CLAIM_S, move_one
from postroom.records.secret_rows import MASK, SECRET_ROWS, row_data
from postroom.records.secrets import installation_secret
from postroom.storage.port import ClaimLost, KeysWithin, Row, Value
from postroom.web.admin.storage import tables as pages
from tests.clock import MovableClock
from tests.web.office import LIST, NOW
from tests.web.people import join
from tests.web.sent_forms import fields_of
from tests.web.signed_in import HASH, OWN_PAGE, Worker, at_work
from tests.web.storage_visits import link_in
from tests.web.test_admin_audit import entries

STORAGE = "/admin/storage"
SERVICE = f"{STORAGE}/tables/service"
ROWS = f"{SERVICE}/rows/"
QUEUE = f"{STORAGE}/queues/{MAIL_QUEUE}"
BLOBS = f"{STORAGE}/blobs"
PAGES_MAX = 400
LINK = re.compile(r'href="(/admin/(?:storage|audit|dead-letters)[^"]*)"')


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER) as worker:
        yield worker


async def put_row(owner: Worker, **properties: Value) -> str:
    """Put a row to edit, and return the path of its page."""
    await owner.office.storage.tables.upsert("service", "test", "row", properties)
    return link_in((await owner.get(SERVICE, partition="test")).text, ROWS)


async def row_of(owner: Worker) -> Row:
    row = await owner.office.storage.tables.get("service", "test", "row")
    assert row
    return row


async def newest_entry(owner: Worker) -> tuple[AuditKind, str, AuditAction, str, str]:
    entry = (await entries(owner.office.storage))[-1]
    return entry.kind, entry.name, entry.action, entry.before, entry.after


# --- Odd addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [f"{STORAGE}/blobs?skip={'9' * 5000}", f"{STORAGE}/blobs?skip=²", "/admin/media?after=a/b"],
)
async def test_a_page_with_an_odd_beginning_is_the_first_one(owner: Worker, path: str) -> None:
    assert (await owner.browser.get(path)).status_code == 200


async def test_an_export_with_an_invalid_key_leads_to_the_page_that_says_so(owner: Worker) -> None:
    answer = await owner.browser.get(f"{SERVICE}/export?partition=a/b")
    assert answer.status_code == 303
    shown = await owner.browser.get(answer.headers["location"])
    assert shown.status_code == 422
    assert "This is not a valid key" in shown.text


# --- Secrets ------------------------------------------------------------------------------------


async def secrets_in(owner: Worker) -> dict[str, str]:
    """Put one of every secret into storage; none of these texts may ever be shown."""
    tables = owner.office.storage.tables
    await installation_secret(tables)
    found = {"installation": "the installation's own secret", "password": HASH}
    await tables.upsert("service", "secret", "installation", {"Secret": found["installation"]})
    key, _known = await keys.create(tables, "portal", (), NOW)
    found |= {"key": key, "key hash": hashlib.sha256(key.encode()).hexdigest()}
    invitation = await sign_in.invite(tables, "eve@contoso.edu", Role.OWNER, NOW)
    found |= {"invitation": invitation, "invitation hash": users.token_hash(invitation)}
    [session] = await users.sessions_of(tables, owner.user, NOW)
    found["session hash"] = session.id
    url = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=secret-token"
    notice = SubscriptionNotice(
        topic="arn:aws:sns:eu-west-1:1:bounces", url=url, token="secret-token"
    )
    await webhooks.put_notice(tables, notice)
    return found | {"confirmation of a topic": "secret-token"}


async def test_no_secret_is_on_any_page_or_in_any_export(owner: Worker) -> None:
    """Walk everything that the explorer, the audit log and the dead letters link to."""
    hidden = await secrets_in(owner)
    waiting = [STORAGE, "/admin/audit", "/admin/dead-letters"]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        assert len(seen) < PAGES_MAX
        answer = await owner.browser.get(path)
        assert answer.status_code == 200, path
        text = unescape(answer.text)
        assert [name for name, secret in hidden.items() if secret in text] == [], path
        if "export" not in path:
            waiting += [unescape(each) for each in LINK.findall(answer.text)]
    for table in TABLES:
        assert f"{STORAGE}/tables/{table}/export" in seen
    assert sum(path.startswith(ROWS) for path in seen) >= 6


async def test_the_walk_would_find_a_secret(owner: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.records.secret_rows._BY_PLACE", {})
    monkeypatch.setattr("postroom.records.secret_rows._SECRET_NAMES", ())
    with pytest.raises(AssertionError):
        await test_no_secret_is_on_any_page_or_in_any_export(owner)


def test_commands_mask_by_the_same_list() -> None:
    for each in SECRET_ROWS:
        names = each.properties or {"Secret"}
        row = Row(each.partition, "f" * 64, dict.fromkeys(names, "hidden"), "1")
        data = row_data(each.table, row)
        if each.properties or each.all_properties:
            assert data["properties"] == dict.fromkeys(names, MASK)
        assert ("f" * 64 in str(data)) is not each.is_key_secret


async def test_a_secret_can_be_neither_changed_nor_added(owner: Worker) -> None:
    tables = owner.office.storage.tables
    user = link_in((await owner.get(SERVICE, partition="user")).text, ROWS)
    row = await tables.get("service", "user", owner.user.key)
    assert row
    form = fields_of((await owner.get(user)).text, user)
    assert "value-PasswordHash" not in form
    form |= {"value-PasswordHash": "mine", "type-PasswordHash": "text", "value-Address": "x"}
    form |= {"type-Address": "text"}
    assert (await owner.post(user, **form)).status_code == 303
    after = await tables.get("service", "user", owner.user.key)
    assert after
    assert after.properties == row.properties | {"Address": "x"}
    new = {"new-name-0": "PasswordHash", "new-type-0": "text", "new-value-0": "x"}
    page = await owner.post(user, **form | {"etag": after.etag} | new)
    assert page.status_code == 422
    assert await tables.get("service", "user", owner.user.key) == after


@pytest.mark.parametrize(("table", "partition"), [("service", "secret"), (AUDIT, "log")])
async def test_the_secret_of_the_installation_and_the_audit_log_are_locked(
    owner: Worker, table: str, partition: str
) -> None:
    await secrets_in(owner)
    await owner.post(f"{QUEUE}/put", body="an item")
    start = f"{STORAGE}/tables/{table}/rows/"
    row = link_in((await owner.get(f"{STORAGE}/tables/{table}", partition=partition)).text, start)
    page = await owner.get(row)
    assert "This row can be read, but not changed." in page.text
    before = await owner.office.storage.tables.scan(table, KeysWithin(partition))
    etag = before.rows[0].etag
    assert (await owner.post(row, etag=etag)).status_code in (409, 422)
    assert (await owner.post(f"{row}/delete", etag=etag)).status_code == 409
    new = {"partition": partition, "key": "mine"}
    assert (await owner.post(f"{STORAGE}/tables/{table}/new", **new)).status_code == 422
    after = await owner.office.storage.tables.scan(table, KeysWithin(partition))
    assert after.rows[-len(before.rows) :] == before.rows


# --- Tables -------------------------------------------------------------------------------------


async def test_rows_with_different_columns_stand_side_by_side_and_page_by_key(
    owner: Worker,
) -> None:
    await join(owner, "ada@contoso.edu", first_name="Ada")
    few = unescape((await owner.get(f"{STORAGE}/tables/mailinglist", partition=LIST)).text)
    for name in ("EmailAddress", "SubscriberGUID", "Verified", "Description"):
        assert f'<code class="data">{name}</code></th>' in few
    for number in range(70):
        await join(owner, f"student{number:02}@contoso.edu", first_name="Ada")
    first = unescape((await owner.get(f"{STORAGE}/tables/mailinglist", partition=LIST)).text)
    assert first.count("<tr>") == pages.ROWS_A_PAGE + 1
    seen = set(re.findall(r"tables/mailinglist/rows/([\w-]+)", first))
    path = link_in(first, f"{STORAGE}/tables/mailinglist?partition")
    for _page in range(20):
        page = (await owner.browser.get(unescape(path))).text
        more = set(re.findall(r"tables/mailinglist/rows/([\w-]+)", page))
        assert not more & seen
        seen |= more
        following = re.findall(r'href="([^"]*after=[^"]*)">Next', page)
        if not following:
            break
        path = following[0]
    assert len(seen) >= 140  # a row by address and one by GUID for each person, at least


async def test_ranges_prefixes_and_properties_filter(owner: Worker) -> None:
    await join(owner, "ada@contoso.edu")
    await join(owner, "eve@contoso.edu", verified=False)
    table = f"{STORAGE}/tables/mailinglist"

    async def found(**more: str) -> int:
        page = (await owner.get(table, partition=LIST, **more)).text
        return len(set(re.findall(r"tables/mailinglist/rows/([\w-]+)", page)))

    assert await found(prefix="email:") == 2
    assert await found(prefix="email:a") == 1
    assert await found(**{"from": "email:", "to": "email:b"}) == 1
    assert await found(prefix="email:", name="Verified", type="bool", value="false") == 1
    assert await found(name="Verified", type="text", value="false") == 0
    assert (await owner.get(table, name="Verified", type="bool", value="no")).status_code == 422
    assert "ada@" not in str((await owner.get(table)).url)


async def test_a_filter_that_matches_little_says_that_there_may_be_more(tmp_path: Path) -> None:
    class Hasty(MovableClock):
        """Every look at it takes longer than a search may."""

        def monotonic(self) -> float:
            self.move(1)
            return super().monotonic()

    async with at_work(tmp_path, Role.OWNER, clock=Hasty()) as owner:
        tables = owner.office.storage.tables
        tables._page_rows = 10
        for number in range(25):
            await tables.upsert("service", "many", f"{number:03}", {"Number": number})
        page = await owner.get(SERVICE, partition="many", name="Number", type="int", value="24")
        for _page in range(2):
            assert "Nothing found so far" in page.text
            [path] = re.findall(r'href="([^"]*)">Continue the search', page.text)
            page = await owner.browser.get(unescape(path))
        assert "024" in page.text


async def test_every_type_is_edited_as_what_it_is(owner: Worker) -> None:
    at = "2026-11-15T09:00:00Z"
    path = await put_row(owner, Text="5", Count=5, Share=0.5, Is=True, At=at, Old="x")
    form = {
        "etag": (await row_of(owner)).etag,
        "value-Text": "6", "type-Text": "text",
        "value-Count": "-7", "type-Count": "int",
        "value-Share": "0.25", "type-Share": "float",
        "value-Is": "false", "type-Is": "bool",
        "value-At": "2026-11-15 10:00+01:00", "type-At": "time",
        "value-Old": "x", "type-Old": "text", "remove-Old": "yes",
        "new-name-0": "New", "new-type-0": "int", "new-value-0": "1",
    }  # fmt: skip
    assert (await owner.post(path, **form)).status_code == 303
    assert (await row_of(owner)).properties == {
        "Text": "6", "Count": -7, "Share": 0.25, "Is": False, "At": at, "New": 1,
    }  # fmt: skip
    kind, name, action, before, after = await newest_entry(owner)
    assert (kind, name, action) == (AuditKind.ROW, "service / test / row", AuditAction.CHANGE)
    assert before == "Text: 5; Count: 5; Share: 0.5; Is: True; Old: x"
    assert after == "Text: 6; Count: -7; Share: 0.25; Is: False; New: 1"


async def test_an_edit_of_a_changed_row_is_refused_and_shown_field_by_field(
    owner: Worker,
) -> None:
    path = await put_row(owner, Text="old", Same="same", Gone="gone")
    form = {"etag": (await row_of(owner)).etag, "value-Text": "mine", "type-Text": "text"}
    form |= {"value-Same": "same", "type-Same": "text", "value-Gone": "gone", "type-Gone": "text"}
    await put_row(owner, Text="theirs", Same="same", More="more")
    answer = await owner.post(path, **form)
    assert answer.status_code == 409
    page = unescape(answer.text)
    assert "Somebody else changed this" in page
    assert re.search(r'id="value-Text-other">Current value: <strong>theirs<', page)
    assert re.search(r'id="value-Gone-other">Current value: <strong>–<', page)
    assert re.search(r'name="value-Text"[^>]*>\s*mine<', page)
    assert "value-Same-other" not in page
    assert (await row_of(owner)).properties["Text"] == "theirs"
    etag = (await row_of(owner)).etag
    assert (await owner.post(path, **form | {"etag": etag})).status_code == 303
    assert (await row_of(owner)).properties["Text"] == "mine"


async def test_a_second_click_is_no_conflict(owner: Worker) -> None:
    path = await put_row(owner, Text="old")
    form = {"etag": (await row_of(owner)).etag, "value-Text": "new", "type-Text": "text"}
    for _click in range(2):
        assert (await owner.post(path, **form)).status_code == 303


async def test_a_row_is_deleted_only_as_it_was_seen(owner: Worker) -> None:
    path = await put_row(owner, Text="old")
    etag = (await row_of(owner)).etag
    await put_row(owner, Text="theirs")
    refused = await owner.post(f"{path}/delete", etag=etag)
    assert refused.status_code == 409
    assert "theirs" in refused.text
    assert (await owner.post(f"{path}/delete", etag=(await row_of(owner)).etag)).status_code == 303
    assert await owner.office.storage.tables.get("service", "test", "row") is None
    assert (await newest_entry(owner))[2:4] == (AuditAction.DELETE, "Text: theirs")


async def test_a_row_is_created_once_with_types(owner: Worker) -> None:
    new = {"partition": "test", "key": "row", "new-name-0": "Is", "new-type-0": "bool"}
    assert (
        await owner.post(f"{SERVICE}/new", **new, **{"new-value-0": "maybe"})
    ).status_code == 422
    assert (await owner.post(f"{SERVICE}/new", **new, **{"new-value-0": "true"})).status_code == 303
    assert (await row_of(owner)).properties == {"Is": True}
    again = await owner.post(f"{SERVICE}/new", **new, **{"new-value-0": "false"})
    assert again.status_code == 422
    assert "There is already a row with these keys." in again.text
    assert (await owner.post(f"{SERVICE}/new", **new | {"key": "a/b"})).status_code == 422
    assert (await row_of(owner)).properties == {"Is": True}


# --- Queues -------------------------------------------------------------------------------------


async def test_an_item_is_put_moved_and_deleted_and_all_of_it_is_recorded(owner: Worker) -> None:
    queues = owner.office.storage.queues
    await owner.post(f"{QUEUE}/put", body="first")
    await owner.post(f"{QUEUE}/put", body="second")
    _first, second = await queues.peek(MAIL_QUEUE)
    moved = await owner.post(f"{QUEUE}/items/{second.id}/move", to=SINGLE_MAIL_QUEUE)
    assert moved.status_code == 303
    assert [item.body for item in await queues.peek(SINGLE_MAIL_QUEUE)] == ["second"]
    [first] = await queues.peek(MAIL_QUEUE)
    assert first.body == "first"
    assert (await owner.post(f"{QUEUE}/items/{first.id}/delete")).status_code == 303
    assert await queues.length(MAIL_QUEUE) == 0
    again = await owner.post(f"{QUEUE}/items/{first.id}/delete")
    assert again.status_code == 409
    assert "no longer waiting" in again.text
    found = await entries(owner.office.storage)
    assert [(each.action, each.outcome) for each in found] == [
        (AuditAction.PUT, AuditOutcome.DONE),
        (AuditAction.PUT, AuditOutcome.DONE),
        (AuditAction.MOVE, AuditOutcome.DONE),
        (AuditAction.DELETE, AuditOutcome.DONE),
        (AuditAction.DELETE, AuditOutcome.REFUSED),
    ]


async def test_an_item_is_never_on_neither_queue(
    owner: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = owner.office.storage.queues
    await queues.put(MAIL_QUEUE, "an item")
    [item] = await queues.peek(MAIL_QUEUE)

    async def die(_claim: object) -> None:
        raise ClaimLost("it took too long")

    with monkeypatch.context() as dying:
        dying.setattr(queues, "complete", die)
        with pytest.raises(ClaimLost):
            await move_one(queues, MAIL_QUEUE, item.id, SINGLE_MAIL_QUEUE)
    assert await queues.length(SINGLE_MAIL_QUEUE) == 1
    assert await queues.length(MAIL_QUEUE) == 1  # visible again after the claim
    assert timedelta(seconds=CLAIM_S) <= timedelta(minutes=1)


async def test_the_page_of_a_queue_shows_length_age_and_attempts(owner: Worker) -> None:
    queues = owner.office.storage.queues
    await queues.put(MAIL_QUEUE, *(f"item {number}" for number in range(40)))
    page = unescape((await owner.get(QUEUE)).text)
    assert "40 items. Shown, to be processed next: 32." in page
    assert page.count('<time datetime="2026-11-15T09:00:00+00:00"') == 32


# --- Blobs --------------------------------------------------------------------------------------


async def upload(owner: Worker, name: str, content: bytes, seen: str = "") -> int:
    answer = await owner.browser.post(
        f"{BLOBS}/upload",
        data={"name": name, "seen": seen},
        files={"file": ("page.htm", content, "text/html")},
        headers=OWN_PAGE,
    )
    return answer.status_code


SCRIPT = b"<script>alert(1)</script>"


async def test_a_blob_is_uploaded_shown_as_text_and_downloaded_as_an_attachment(
    owner: Worker,
) -> None:
    assert await upload(owner, "test/page.htm", SCRIPT) == 303
    path = link_in((await owner.get(BLOBS, prefix="test/")).text, f"{BLOBS}/")
    page = (await owner.browser.get(path)).text
    assert SCRIPT.decode() not in page
    assert "&lt;script&gt;" in page
    assert "page.htm" not in path
    answer = await owner.browser.get(f"{path}/download")
    assert answer.content == SCRIPT
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="page.htm"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_a_blob_is_replaced_and_deleted_only_as_it_was_seen(owner: Worker) -> None:
    blobs = owner.office.storage.blobs
    assert await upload(owner, "a.txt", b"first") == 303
    assert await upload(owner, "a.txt", b"second") == 409
    seen = hashlib.sha256(b"first").hexdigest()
    assert await upload(owner, "a.txt", b"second", seen) == 303
    assert await upload(owner, "a.txt", b"third", seen) == 409
    path = link_in((await owner.get(BLOBS, prefix="a.txt")).text, f"{BLOBS}/")
    assert (await owner.post(f"{path}/delete", seen=seen)).status_code == 409
    assert await blobs.get("a.txt") == b"second"
    now = hashlib.sha256(b"second").hexdigest()
    assert (await owner.post(f"{path}/delete", seen=now)).status_code == 303
    assert await blobs.get("a.txt") is None
    assert (await newest_entry(owner))[:3] == (AuditKind.BLOB, "a.txt", AuditAction.DELETE)


@pytest.mark.parametrize("name", ["", "ends/", "back\\slash", "x" * 2000])
async def test_a_name_that_storage_cannot_have_is_refused(owner: Worker, name: str) -> None:
    assert await upload(owner, name, b"x") == 422


async def test_many_blobs_come_in_pages(owner: Worker) -> None:
    for number in range(250):
        await owner.office.storage.blobs.put(f"many/{number:03}", b"")
    names: list[str] = []
    path = f"{BLOBS}?prefix=many/"
    for _page in range(5):
        page = (await owner.browser.get(unescape(path))).text
        names += re.findall(r">(many/\d+)<", page)
        following = re.findall(r'href="([^"]*)">Next page', page)
        if not following:
            break
        path = following[0]
    assert names == [f"many/{number:03}" for number in range(250)]


def test_the_export_of_a_row_is_one_line_of_json() -> None:
    row = Row("p", "k", {"Text": "a\nb"}, "1")
    assert b"\n" not in msgspec.json.encode(row_data("message", row))
