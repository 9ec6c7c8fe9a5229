"""What came back for a message, on the admin pages: numbers, reasons, domains, people; pauses."""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.feedback import FeedbackKind
from postroom.domain.message import Books, Status
from postroom.domain.user import Role
from postroom.records import feedback, messages
from postroom.web.admin.messages import feedback as page_module
from postroom.web.pages import percent
from postroom.web.security import limits_for
from tests.web import returned
from tests.web.drafts import stored
from tests.web.signed_in import Worker, at_work

SELF_PAUSED = {"pause_cause": returned.CAUSE, "is_self_paused": True}


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def shown(worker: Worker, path: str, **more: str) -> str:
    answer = await worker.get(path, **more)
    assert answer.status_code == 200
    return unescape(re.sub(r"\s+", " ", answer.text))


# --- What came back ----------------------------------------------------------------------------


async def test_a_message_shows_what_came_back_with_its_share(editor: Worker) -> None:
    path = await returned.sent_to(editor, 12)
    assert "Nothing so far." in await shown(editor, path)
    await returned.everything(editor, path)
    page = await shown(editor, path)
    for title, number, share in (
        ("Delivered", 6, "50%"),
        ("Bounced", 5, "42%"),
        ("Reported as spam", 1, "8.3%"),
    ):
        assert f"<dt>{title}</dt><dd><strong>{number}</strong>" in page
        assert share in page
    assert "<dt>Opened</dt><dd>2</dd>" in page
    assert f'href="{path}/feedback"' in page


async def test_a_message_of_test_mode_has_nothing_to_come_back(editor: Worker) -> None:
    page = await shown(editor, await returned.sent_to(editor, 1, is_test=True))
    assert "Delivery reports" not in page


async def test_bounces_are_shown_by_reason_with_the_servers_words(editor: Worker) -> None:
    path = await returned.sent_to(editor, 12)
    await returned.everything(editor, path)
    answer = await editor.get(f"{path}/feedback")
    assert "550 5.1.1 &lt;b&gt;mailbox&lt;/b&gt; unavailable" in answer.text  # as text, not as HTML
    page = await shown(editor, f"{path}/feedback")
    assert page.index("no such mailbox") < page.index("mailbox full")  # the most frequent first
    for words in (
        "address does not exist",
        "temporary problem",
        "refused because of the sender or the content",
    ):
        assert words in page
    assert returned.BLOCKED.words in page


async def test_domains_are_bars_that_add_up_and_numbers(editor: Worker) -> None:
    path = await returned.sent_to(editor, 12)
    await returned.everything(editor, path)
    answer = await editor.get(f"{path}/feedback")
    bars = re.findall(r'<svg class="books thin".*?</svg>', answer.text, re.DOTALL)
    assert len(bars) == 3
    for bar in bars:
        drawn = re.findall(r'<rect class="is-\w+" x="[\d.]+" width="([\d.]+)"', bar)
        assert sum(map(float, drawn)) == pytest.approx(1000, abs=0.05)
    assert "style=" not in answer.text  # the policy forbids it
    summary = await feedback.find_summary(editor.office.storage.tables, path.rpartition("/")[2])
    assert summary.by_domain[0].domain == "contoso.edu"  # the most troubles
    assert 'aria-label="2 of 5 bounced"' in answer.text


async def test_more_domains_than_fit_are_under_a_fold(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "DOMAINS_SHOWN", 1)
    path = await returned.sent_to(editor, 12)
    await returned.everything(editor, path)
    assert "2 more domains</summary>" in await shown(editor, f"{path}/feedback")


async def test_who_bounced_is_listed_page_by_page_and_linked(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "BOUNCES_A_PAGE", 4)
    path = await returned.sent_to(editor, 12)
    await returned.everything(editor, path)
    seen: list[str] = []
    where = f"{path}/feedback"
    for _page in range(2):
        page = (await editor.get(where)).text
        rows = re.findall(r'<a href="(/admin/subscribers/[^"]+)">(reader[^<]+)</a>', page)
        seen += [address for _person, address in rows]
        following = re.search(r'href="([^"]+after=[^"]+)#bounces"', page)
        where = unescape(following[1]) if following else ""
    assert not where
    assert seen == [returned.address_at(at) for at in (0, 6, 7, 8, 9, 10)]
    person = await editor.get(rows[0][0])
    assert person.status_code == 200
    assert rows[0][1] in person.text


async def test_no_address_is_in_any_link(editor: Worker) -> None:
    path = await returned.sent_to(editor, 12)
    await returned.everything(editor, path)
    page = (await editor.get(f"{path}/feedback")).text
    assert not [link for link in re.findall(r'href="([^"]*)"', page) if "@" in unescape(link)]


@pytest.mark.parametrize("cursor", ["x", "to:", "summary", "to:0000000:00:bounced'"])
async def test_a_cursor_that_is_not_ours_is_not_found(editor: Worker, cursor: str) -> None:
    path = await returned.sent_to(editor, 1)
    assert (await editor.get(f"{path}/feedback", after=cursor)).status_code == 404


async def test_who_bounced_as_csv_is_safe_in_a_spreadsheet(editor: Worker) -> None:
    path = await returned.sent_to(editor, 12)
    await returned.everything(editor, path)
    answer = await editor.get(f"{path}/feedback/export")
    assert answer.content.startswith(BOM_UTF8)
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))
    assert len(rows) == 6
    assert rows[1]["email"] == returned.address_at(6)
    found = (rows[1]["what"], rows[1]["class"], rows[1]["reason"], rows[1]["status"])
    assert found == ("bounced", "dead", "no_such_user", "5.1.1")
    assert rows[5]["class"] == ""  # nobody classified it
    assert limits_for(f"{path}/feedback/export").answer_s is None  # it may be long


async def test_a_message_that_does_not_exist_has_no_feedback(editor: Worker) -> None:
    assert (await editor.get("/admin/messages/634852858215726983/feedback")).status_code == 404


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "–"), (0, 9, "0%"), (9, 9, "100%"), (1, 3, "33%"), (1, 1000, "0.1%"), (5, 99, "5.1%")],
)
def test_a_share_has_a_decimal_where_it_matters(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text


# --- Paused by itself ----------------------------------------------------------------------------


async def test_a_message_paused_automatically_shows_why_and_what_to_do(editor: Worker) -> None:
    path = await returned.sent_to(editor, 3, Status.PAUSED, **SELF_PAUSED)
    page = await shown(editor, path)
    assert "30 of 120 emails were refused because of the sender or the content" in page
    assert returned.CAUSE.words in page
    assert "postroom doctor --domain" in page
    assert 'id="act-resume"' in page
    assert "Postroom paused this message" in await shown(editor, f"{path}/feedback")


async def test_the_overview_alerts_until_the_message_is_resumed(editor: Worker) -> None:
    path = await returned.sent_to(editor, 3, Status.PAUSED, **SELF_PAUSED)
    assert "“New lectures” was paused automatically: 30 of 120 emails" in await shown(
        editor, "/admin"
    )
    assert (await editor.post(f"{path}/resume")).status_code == 303
    assert "was paused automatically" not in await shown(editor, "/admin")
    assert "Postroom paused this message" not in await shown(editor, path)


async def test_the_overview_alerts_until_the_message_is_cancelled(editor: Worker) -> None:
    path = await returned.sent_to(editor, 3, Status.PAUSED, **SELF_PAUSED)
    assert "was paused automatically" in await shown(editor, "/admin")
    assert (await editor.post(f"{path}/cancel")).status_code == 303
    assert "was paused automatically" not in await shown(editor, "/admin")


async def test_a_later_pause_by_a_person_is_not_called_our_own(editor: Worker) -> None:
    path = await returned.sent_to(editor, 3, Status.PAUSED, **SELF_PAUSED)
    tables = editor.office.storage.tables
    await editor.post(f"{path}/resume")
    ref = path.rpartition("/")[2]
    found = await messages.find_live(tables, ref)
    assert found
    going = msgspec.structs.replace(found.value, books=Books(sent=2, queued=1))
    await messages.replace(tables, going, found.etag)
    assert (await editor.post(f"{path}/pause")).status_code == 303
    message = await stored(editor, path)
    assert (message.status, message.self_pause) == (Status.PAUSED, None)
    assert message.pause_cause == returned.CAUSE  # these refusals stay known
    assert "was paused automatically" not in await shown(editor, "/admin")


async def test_a_complaint_after_delivery_counts_as_both(editor: Worker) -> None:
    path = await returned.sent_to(editor, 1)
    await returned.come_back(editor, path, FeedbackKind.DELIVERED, 0)
    await returned.come_back(editor, path, FeedbackKind.COMPLAINED, 0, why=returned.SPAM)
    page = await shown(editor, f"{path}/feedback")
    assert "reported it as spam" in page
    assert "Bounces by reason" not in page
