"""The outbox like a mail client: read every mail every way, and delete them all."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.user import Role
from postroom.transport.outbox import OutboxLane
from tests.letters import Letter
from tests.web.office import NOW, open_office
from tests.web.signed_in import Worker, at_work, notice_in, sign_in_as

SOURCE = (
    b"From: a@contoso.edu\r\nTo: student1@contoso.edu\r\n"
    b"Subject: =?utf-8?q?Caf=C3=A9?= number %d\r\nMIME-Version: 1.0\r\n"
    b'Content-Type: multipart/alternative; boundary="b"\r\n\r\n'
    b"--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nPlain words <here>\r\n"
    b"--b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
    b"<!doctype html><p>Rich words</p><script>alert(1)</script>\r\n--b--\r\n"
)


@dataclass(frozen=True)
class KeptMail(Letter):
    position: int = 0
    recipient: str = "student1@contoso.edu"
    sender: str = "a@contoso.edu"

    def source(self, *, eight_bit: bool) -> bytes:
        return SOURCE % self.position


class NoWatch:
    def may_hand_over(self) -> bool:
        return True

    def handing_over(self, positions: object) -> None:
        return

    def returned(self, positions: object) -> None:
        return

    def answered(self, outcomes: object) -> None:
        return


class Later:
    """A millisecond later every time it is asked."""

    def __init__(self) -> None:
        self._ms = 0

    def now(self) -> datetime:
        self._ms += 1
        return NOW + timedelta(milliseconds=self._ms)

    def monotonic(self) -> float:
        return self._ms / 1000

    async def sleep(self, seconds: float) -> None:
        return


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with open_office(tmp_path, has_outbox=True) as office:
        worker = await sign_in_as(office, Role.OWNER)
        async with worker.browser:
            yield worker


async def keep(worker: Worker, count: int) -> None:
    lane = OutboxLane(worker.office.storage, Later())
    await lane.send([KeptMail(number) for number in range(count)], NoWatch())


async def first_path(worker: Worker) -> str:
    page = (await worker.get("/admin/outbox")).text
    found = re.search(r'href="(/admin/outbox/[0-9]{13}-[0-9a-f]{16})"', page)
    assert found
    return found[1]


async def test_mails_are_listed_newest_first_in_pages(owner: Worker) -> None:
    await keep(owner, 35)
    page = (await owner.get("/admin/outbox")).text
    assert page.index("Café number 34") < page.index("Café number 33")
    assert "number 4<" not in page
    next_ = re.findall(r'href="(/admin/outbox\?after=[^"]+)"', page)[0]
    assert "number 4<" in (await owner.get(next_)).text


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("html", "<iframe"),
        ("text", "Plain words &lt;here&gt;"),
        ("headers", "Café number 0"),
        ("source", "=?utf-8?q?Caf=C3=A9?="),
    ],
)
async def test_a_mail_is_shown_every_way(owner: Worker, view: str, words: str) -> None:
    await keep(owner, 1)
    assert words in (await owner.get(await first_path(owner), view=view)).text


async def test_html_is_shown_only_inside_a_sandbox(owner: Worker) -> None:
    await keep(owner, 1)
    path = await first_path(owner)
    page = (await owner.get(path)).text
    assert "Rich words" not in page
    assert 'sandbox="allow-popups allow-popups-to-escape-sandbox"' in page
    frame = await owner.get(f"{path}/html")
    assert "<p>Rich words</p>" in frame.text
    assert frame.text.startswith('<!doctype html><base target="_blank">')
    policy = frame.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-popups allow-popups-to-escape-sandbox;")
    assert "script-src" not in policy  # default-src 'none'


async def test_deleting_all_asks_first_and_leaves_nothing(owner: Worker) -> None:
    await keep(owner, 3)
    assert "Delete every email" in (await owner.get("/admin/outbox/empty")).text
    assert "number 0" in (await owner.get("/admin/outbox")).text
    answer = await owner.post("/admin/outbox/empty")
    assert (answer.headers["location"], notice_in(answer)) == ("/admin/outbox", "emptied")
    assert "No emails yet" in (await owner.get("/admin/outbox")).text
    names, _ = await owner.office.storage.blobs.list("outbox/")
    assert names == []


async def test_only_an_owner_deletes_them(owner: Worker) -> None:
    await keep(owner, 1)
    editor = await sign_in_as(owner.office, Role.EDITOR)
    async with editor.browser:
        assert (await editor.get("/admin/outbox")).status_code == 200
        assert (await editor.post("/admin/outbox/empty")).status_code == 403


async def test_a_viewer_reads_no_mail_whose_links_would_let_them_act(owner: Worker) -> None:
    await keep(owner, 1)
    path = await first_path(owner)
    viewer = await sign_in_as(owner.office, Role.VIEWER)
    async with viewer.browser:
        for each in ("/admin/outbox", path, f"{path}/html"):
            assert (await viewer.get(each)).status_code == 403
        assert "/admin/outbox" not in (await viewer.get("/admin/lists")).text


@pytest.mark.parametrize("key", ["x", "1234567890123-0123456789abcdef", "..%2Fsecret"])
async def test_a_key_of_no_mail_is_not_found(owner: Worker, key: str) -> None:
    assert (await owner.get(f"/admin/outbox/{key}")).status_code == 404
    assert (await owner.get(f"/admin/outbox/{key}/html")).status_code == 404


async def test_there_is_no_outbox_where_mails_really_go_out(tmp_path: Path) -> None:
    async with at_work(tmp_path, Role.OWNER) as worker:
        assert (await worker.get("/admin/outbox")).status_code == 404
        assert "/admin/outbox" not in (await worker.get("/admin")).text
