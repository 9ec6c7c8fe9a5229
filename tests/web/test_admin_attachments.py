"""Attachments on the pages: added, shown with their weight, downloaded, removed; without script."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from postroom.actions import attach_files
from postroom.domain.attachment import ATTACHED_BYTES_MAX, HEAVY_BYTES
from postroom.domain.user import Role
from postroom.records import attachments
from postroom.storage.port import Unavailable
from tests.web.drafts import GOOD, etag_of, fields_in, stored, written
from tests.web.office import LIST
from tests.web.people import join
from tests.web.signed_in import OWN_PAGE, Worker, at_work, notice_in, sign_in_as


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


PDF = ("Plan „Herbst“.pdf", b"%PDF-1.7 plan", "application/pdf")
TXT = ("words.txt", b"<script>alert(1)</script>", "text/html")  # whatever the browser says


async def save(
    editor: Worker, path: str, *files: tuple[str, bytes, str], **fields: str
) -> httpx2.Response:
    """The form as a browser sends it; without files, one empty part."""
    sent = [("attachments", file) for file in files or (("", b"", "application/octet-stream"),)]
    return await editor.browser.post(path, data=fields, files=sent, headers=OWN_PAGE)


async def with_files(editor: Worker, *files: tuple[str, bytes, str]) -> str:
    answer = await save(editor, "/admin/messages/write", *files, **GOOD | {"attach": "add"})
    assert answer.status_code == 303, answer.text
    assert notice_in(answer) == "files-attached"
    path: str = answer.headers["location"]
    assert path.endswith("/write#attachments")
    return path.removesuffix("/write#attachments")


async def test_files_are_attached_to_a_new_message_and_the_form_comes_back(editor: Worker) -> None:
    path = await with_files(editor, PDF, TXT)
    message = await stored(editor, path)
    assert [each.name for each in message.attachments] == [PDF[0], TXT[0]]
    assert [each.media_type for each in message.attachments] == ["application/pdf", "text/plain"]
    page = (await editor.get(f"{path}/write")).text
    assert PDF[0] in page
    assert "13 bytes" in page
    assert "Up to 10 files, 10.0 MiB in total" in page


@pytest.mark.parametrize("kind", ["html", "markdown", "mjml", "blocks"])
async def test_every_format_can_have_them(editor: Worker, kind: str) -> None:
    if kind == "blocks":
        page = (await editor.get("/admin/messages/new", list=LIST)).text
        fields = fields_in(page, subject="News")
    else:
        body = "<mjml><mj-body></mj-body></mjml>" if kind == "mjml" else "Words"
        fields = GOOD | {"kind": kind, "body": body}
    answer = await save(editor, "/admin/messages/write", PDF, **fields | {"attach": "add"})
    assert answer.status_code == 303, answer.text
    page = (await editor.get(answer.headers["location"].partition("#")[0])).text
    assert PDF[0] in page


async def test_saving_attaches_as_well_and_a_second_click_attaches_nothing_twice(
    editor: Worker,
) -> None:
    path = await written(editor)
    page = (await editor.get(f"{path}/write")).text
    fields = fields_in(page)
    for _click in range(2):
        answer = await save(editor, f"{path}/write", PDF, **fields)
        assert answer.headers["location"] == path
    assert len((await stored(editor, path)).attachments) == 1


async def test_two_editors_attach_and_remove_at_the_same_time(editor: Worker) -> None:
    path = await with_files(editor, ("old.txt", b"old", ""))
    [old] = (await stored(editor, path)).attachments
    pages = [fields_in((await editor.get(f"{path}/write")).text) for _editor in range(3)]
    one = await save(editor, f"{path}/write", PDF, **pages[0] | {"attach": "add"})
    other = await save(editor, f"{path}/write", TXT, **pages[1] | {"attach": "add"})
    assert [notice_in(one), notice_in(other)] == ["files-attached", "files-attached"]
    names = [each.name for each in (await stored(editor, path)).attachments]
    assert names == ["old.txt", PDF[0], TXT[0]]
    removed = await save(editor, f"{path}/write", **pages[2] | {"remove": old.id})
    assert notice_in(removed) == "file-removed"
    assert len((await stored(editor, path)).attachments) == 2


async def test_files_are_attached_at_the_second_try_after_storage_failed(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await written(editor)
    fields = fields_in((await editor.get(f"{path}/write")).text)
    with monkeypatch.context() as broken:
        broken.setattr(attachments, "put", _unavailable)
        answer = await save(editor, f"{path}/write", PDF, **fields)
        assert answer.status_code == 503
    again = fields_in(answer.text)
    assert (await save(editor, f"{path}/write", PDF, **again)).status_code == 303
    assert len((await stored(editor, path)).attachments) == 1


async def test_files_are_attached_once_if_storage_answered_too_late(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another editor has attached something meanwhile, so the form is older than the message."""
    path = await written(editor)
    page = (await editor.get(f"{path}/write")).text
    await save(editor, f"{path}/write", TXT, **fields_in(page) | {"attach": "add"})
    real = attach_files._replace

    async def late(*args: Any) -> None:
        await real(*args)
        raise Unavailable("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(attach_files, "_replace", late)
        answer = await save(editor, f"{path}/write", PDF, **fields_in(page))
        assert answer.status_code == 503
    again = fields_in(answer.text)
    assert (await save(editor, f"{path}/write", PDF, **again)).status_code == 303
    names = [each.name for each in (await stored(editor, path)).attachments]
    assert names == [TXT[0], PDF[0]]


async def _unavailable(*_args: object) -> None:
    raise Unavailable("no answer")


async def test_a_file_is_removed(editor: Worker) -> None:
    path = await with_files(editor, PDF, TXT)
    [first, second] = (await stored(editor, path)).attachments
    fields = fields_in((await editor.get(f"{path}/write")).text)
    answer = await save(editor, f"{path}/write", **fields | {"remove": first.id})
    assert answer.headers["location"] == f"{path}/write#attachments"
    assert (await stored(editor, path)).attachments == (second,)
    assert await editor.office.storage.blobs.get(f"{path[-18:]}-{first.id}.attachment") is None


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (("setup.exe", b"MZ", ""), "Gmail and Outlook block files that end in .exe"),
        (("empty.pdf", b"", ""), "is empty"),
        (("large.pdf", b"x" * (ATTACHED_BYTES_MAX + 1), ""), "may be at most 10 MiB"),
    ],
)
async def test_a_refused_file_keeps_what_was_typed_and_says_why(
    editor: Worker, file: tuple[str, bytes, str], sentence: str
) -> None:
    path = await written(editor)
    fields = fields_in((await editor.get(f"{path}/write")).text) | {"subject": "Typed words"}
    for where in ("/admin/messages/write", f"{path}/write"):
        answer = await save(editor, where, file, **fields)
        assert answer.status_code == 422
        assert sentence in answer.text
        assert "Typed words" in answer.text
        assert "Please choose them again" in answer.text
    assert (await stored(editor, path)).subject == GOOD["subject"]


async def test_the_files_must_fit_beside_those_that_are_there(editor: Worker) -> None:
    big = ("big.bin", b"x" * (ATTACHED_BYTES_MAX - 10), "")
    path = await with_files(editor, big)
    fields = fields_in((await editor.get(f"{path}/write")).text) | {"subject": "Typed words"}
    answer = await save(editor, f"{path}/write", PDF, **fields)
    assert answer.status_code == 422
    assert "may be at most 10 MiB" in answer.text
    assert (await stored(editor, path)).subject == GOOD["subject"]  # nothing was saved


async def test_somebody_elses_change_is_shown_and_the_files_are_asked_for_again(
    editor: Worker,
) -> None:
    path = await written(editor)
    fields = fields_in((await editor.get(f"{path}/write")).text)
    await editor.post(f"{path}/write", **fields | {"subject": "Theirs"})
    answer = await save(editor, f"{path}/write", PDF, **fields | {"subject": "Ours"})
    assert answer.status_code == 409
    assert "Please choose them again" in answer.text
    assert not (await stored(editor, path)).attachments


async def test_the_page_says_what_it_means_for_all_recipients(editor: Worker) -> None:
    for number in range(3):
        await join(editor, f"student{number}@contoso.edu")
    path = await with_files(editor, ("a.bin", b"x" * 1024**2, ""))
    for page in (path, f"{path}/write", f"{path}/look"):
        text = (await editor.get(page)).text
        assert "1.4 MiB per email, 4.1 MiB for 3 recipients" in text


async def test_heavy_files_are_warned_about_and_a_link_is_suggested(editor: Worker) -> None:
    path = await with_files(editor, ("a.bin", b"x" * (HEAVY_BYTES + 1), ""))
    warning = "With the attachments, every email is 6.8 MiB"
    assert warning in (await editor.get(path)).text
    fields = fields_in((await editor.get(f"{path}/write")).text)
    assert warning in (await editor.post("/admin/messages/preview", **fields)).text


async def test_a_download_is_only_a_download(editor: Worker) -> None:
    path = await with_files(editor, PDF, TXT)
    page = (await editor.get(path)).text
    links = re.findall(rf'href="({path}/attachments/[0-9a-f]+)"', page)
    assert len(links) == 2
    viewer = await sign_in_as(editor.office, Role.VIEWER)
    async with viewer.browser:
        answers = [await viewer.get(link) for link in links]
        assert (await viewer.get(f"{path}/attachments/0")).status_code == 404
    assert [answer.content for answer in answers] == [PDF[1], TXT[1]]
    for answer in answers:
        assert answer.headers["content-disposition"].startswith("attachment; filename")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert (
        answers[0]
        .headers["content-disposition"]
        .endswith("filename*=UTF-8''Plan%20%E2%80%9EHerbst%E2%80%9C.pdf")
    )
    assert answers[1].headers["content-type"] == "text/plain"
    anybody = await editor.office.browser.get(links[0])
    assert anybody.status_code == 303


async def test_a_copy_has_them_too(editor: Worker) -> None:
    path = await with_files(editor, PDF)
    answer = await editor.post(f"{path}/copy")
    copy = answer.headers["location"].removesuffix("/write")
    message = await stored(editor, copy)
    [file] = message.attachments
    blobs = editor.office.storage.blobs
    assert await attachments.load(blobs, message.ref, file) == PDF[1]


async def test_autosave_leaves_them_alone(editor: Worker) -> None:
    path = await with_files(editor, PDF)
    page = (await editor.get(f"{path}/write")).text
    fields = fields_in(page) | {"subject": "Another subject", "etag": etag_of(page)}
    answer = await editor.post(f"{path}/autosave", **fields)
    assert answer.json()["state"] == "saved"
    message = await stored(editor, path)
    assert message.subject == "Another subject"
    assert [each.name for each in message.attachments] == [PDF[0]]


def test_script_never_sends_the_files_by_itself() -> None:
    root = Path(__file__).parents[2] / "src/postroom/web"
    script = (root / "static/admin.js").read_text(encoding="utf-8")
    assert '"attachments"' in script
    form = (root / "templates/admin/messages/form.html").read_text(encoding="utf-8")
    assert form.count('hx-params="not attachments"') == 2
