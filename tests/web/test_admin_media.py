"""The media library: pages, the files everybody can load, and pictures in the block editor."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

from postroom.actions import manage_media
from postroom.domain.errors import BadInput
from postroom.domain.message import Status
from postroom.domain.picture import UPLOADS_MAX, Picture
from postroom.domain.user import Role
from postroom.flow import compose
from postroom.flow.compose import Draft
from postroom.records import audit, media, messages
from postroom.storage.port import KeysAcross, Page
from tests import picture_samples as samples
from tests.acting import acting
from tests.clock import MovableClock
from tests.web.drafts import GOOD, fields_in, said_by
from tests.web.office import LIST, NOW
from tests.web.signed_in import OWN_PAGE, Worker, at_work, notice_in, sign_in_as
from tests.web.test_admin_blocks import new_form, order, pressed, saved

MEDIA = "/admin/media"
PHOTO = samples.encoded(samples.photo(1500, 500), "JPEG")


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def uploaded(editor: Worker, *files: tuple[str, bytes]) -> httpx2.Response:
    parts = [("pictures", file) for file in files]
    return await editor.browser.post(f"{MEDIA}/upload", files=parts, headers=OWN_PAGE)


async def added(editor: Worker, content: bytes = PHOTO, name: str = "view.jpg") -> Picture:
    answer = await uploaded(editor, (name, content))
    assert (answer.status_code, notice_in(answer)) == (303, "picture-added"), answer.text
    found = await media.read(
        editor.office.storage.tables, answer.headers["location"].rpartition("/")[2]
    )
    return found.value


async def pictures_in_library(editor: Worker) -> list[Picture]:
    tables = editor.office.storage.tables
    found, _after = await media.page(tables, MovableClock(), "", limit=100, after=None)
    return found


# --- Files that everybody can load --------------------------------------------------------------


async def test_a_file_is_public_kept_for_a_year_and_sniffed_by_nobody(editor: Worker) -> None:
    picture = await added(editor)
    anybody = editor.office.browser
    answer = await anybody.get(picture.path)
    assert answer.status_code == 200
    assert samples.opened(answer.content).size == (1200, 400)
    headers = answer.headers
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert headers["content-type"] == "image/jpeg"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "cross-origin"
    assert "set-cookie" not in headers
    assert "default-src 'none'" in headers["content-security-policy"]
    small = await anybody.get(picture.small_path)
    assert samples.opened(small.content).size == (600, 200)
    head = await anybody.head(picture.path)
    assert head.status_code == 200
    assert head.headers["content-length"] == headers["content-length"]
    for known in (headers["etag"], f"W/{headers['etag']}", f'"a", {headers["etag"]}', "*"):
        again = await anybody.get(picture.path, headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == headers["etag"]
    other = await anybody.get(picture.path, headers={"if-none-match": '"other"'})
    assert other.status_code == 200


async def test_nothing_else_of_the_container_is_served(editor: Worker) -> None:
    picture = await added(editor)
    blobs = editor.office.storage.blobs
    await blobs.put("secret.jpg", b"secret")
    await blobs.put("media/secret.jpg", b"secret")
    await blobs.put(f"media/{picture.id}-600.html", b"secret")
    await blobs.put(f"media/{picture.id}-600.jpg/x.jpg", b"secret")
    name = picture.path.removeprefix("/m/")
    for path in (
        "secret.jpg",
        "../secret.jpg",
        "..%2Fsecret.jpg",
        "%2e%2e/secret.jpg",
        f"{picture.id}-600.html",
        f"{picture.id}-600.jpg/x.jpg",
        f"{picture.id}-600.jpg%2Fx.jpg",
        f"{picture.id}-601.jpg",
        f"{picture.id}-600.png",
        f"{name}%00",
        f"{name}%0A",
        name.upper(),
        f"media/{name}",
        "",
    ):
        answer = await editor.office.browser.get(f"/m/{path}")
        assert answer.status_code == 404, path
        assert b"secret" not in answer.content
        assert answer.headers["cache-control"] == "no-store"


# --- Uploads ------------------------------------------------------------------------------------


async def test_several_pictures_are_added_at_once(editor: Worker) -> None:
    files = [(f"{number}.png", samples.png(20 + number)) for number in range(3)]
    answer = await uploaded(editor, *files)
    assert answer.status_code == 303
    assert (notice_in(answer), answer.headers["location"]) == ("pictures-added", MEDIA)
    again = await uploaded(editor, *files)
    assert again.status_code == 303
    assert {each.name for each in await pictures_in_library(editor)} == {"0.png", "1.png", "2.png"}
    page = (await editor.get(MEDIA)).text
    assert page.count("What does it show?") == 3


HOSTILE = {
    "empty.png": (b"", "empty"),
    "logo.svg": (samples.svg(), "SVG pictures can contain scripts"),
    "page.jpg": (b"<html>" + samples.SCRIPT, "This picture cannot be read"),
    "bomb.png": (samples.png_with_dimensions(30_000, 30_000), "too many pixels"),
    "frames.gif": (samples.gif_with_frames(1000), "animation"),
    "half.jpg": (PHOTO[:3000], "damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_bad_file_is_named_beside_the_field(editor: Worker, name: str) -> None:
    content, words = HOSTILE[name]
    answer = await uploaded(editor, (name, content), ("good.png", samples.png()))
    page = unescape(answer.text)
    assert answer.status_code == 422
    mistake = re.search(r'id="pictures-mistake"[^>]*>(.*?)</div>', page)
    assert mistake
    assert mistake[1].startswith(f"{name}: ")
    assert words in mistake[1]
    assert "1 picture was added" in mistake[1]
    assert [each.name for each in await pictures_in_library(editor)] == ["good.png"]


async def test_the_name_of_a_file_decides_nothing(editor: Worker) -> None:
    picture = await added(editor, samples.png(), "..\\..\\photo.exe")
    assert picture.name == "photo.exe"
    answer = await editor.office.browser.get(picture.path)
    assert answer.headers["content-type"] == "image/png"


async def test_no_file_and_too_many_files_are_refused(editor: Worker) -> None:
    nothing = await editor.post(f"{MEDIA}/upload")
    assert nothing.status_code == 422
    assert "Choose one or more pictures" in nothing.text
    many = await uploaded(editor, *[("a.png", samples.png())] * (UPLOADS_MAX + 1))
    assert many.status_code == 422
    assert f"at most {UPLOADS_MAX}" in many.text
    assert not await pictures_in_library(editor)


async def test_a_viewer_looks_but_changes_nothing(editor: Worker) -> None:
    picture = await added(editor)
    viewer = await sign_in_as(editor.office, Role.VIEWER)
    async with viewer.browser:
        page = await viewer.get(MEDIA)
        assert "view.jpg" in page.text
        assert "Add pictures" not in page.text
        assert (await viewer.get(f"{MEDIA}/{picture.id}")).status_code == 200
        for path in (f"{MEDIA}/{picture.id}", f"{MEDIA}/{picture.id}/delete", f"{MEDIA}/upload"):
            assert (await viewer.post(path, alt="x")).status_code == 403


async def test_a_picture_is_described_and_found(editor: Worker) -> None:
    picture = await added(editor)
    await added(editor, samples.png(), "other.png")
    path = f"{MEDIA}/{picture.id}"
    answer = await editor.post(path, alt=" A view of the lake ", back="library")
    assert (answer.headers["location"], notice_in(answer)) == (MEDIA, "saved")
    page = (await editor.get(MEDIA, q="LAKE view")).text
    assert "view.jpg" in page
    assert "other.png" not in page
    assert "No picture found" in (await editor.get(MEDIA, q="nothing")).text
    for wrong in ({"name": " ", "alt": "x"}, {"name": "x", "alt": "x" * 301}):
        refused = await editor.post(path, **wrong)
        assert refused.status_code == 422
        assert wrong["alt"] in refused.text
    theirs = await editor.post(path, name="mine.jpg", alt="Mine", etag="old")
    assert theirs.status_code == 409
    assert "A view of the lake" in theirs.text
    entries = [row async for row in _audit_entries(editor)]
    assert any("view.jpg" in each and "change" in each for each in entries)


async def _audit_entries(editor: Worker) -> AsyncIterator[str]:
    found = await editor.office.storage.tables.scan(audit.TABLE, KeysAcross())
    for row in found.rows:
        yield " ".join(map(str, row.properties.values()))


async def test_pages_of_pictures_follow_each_other(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.web.admin.media.PAGE_PICTURES", 2)
    for number in range(3):
        await added(editor, samples.png(20 + number), f"{number}.png")
    first = (await editor.get(MEDIA)).text
    following = re.search(r'href="(/admin/media\?after=[^"]+)"', first)
    assert following
    second = (await editor.get(following[1])).text
    names = [name for name in ("0.png", "1.png", "2.png") if name in second]
    assert len(names) == 1
    assert names[0] not in first


# --- Uses and deletion --------------------------------------------------------------------------


async def test_a_picture_in_use_is_deleted_only_by_somebody_who_knows(editor: Worker) -> None:
    picture = await added(editor)
    storage = editor.office.storage
    body = f'<img src="{{{{ site_url }}}}{picture.path}" alt="View">'
    path = (await editor.post("/admin/messages/write", **GOOD | {"body": body})).headers["location"]
    ref = path.rpartition("/")[2]
    page = (await editor.get(f"{MEDIA}/{picture.id}")).text
    assert f"/admin/messages/{ref}" in page
    await compose.give_time(acting(storage, NOW), ref, NOW + timedelta(days=1))
    delete = f"{MEDIA}/{picture.id}/delete"
    asked = (await editor.get(delete)).text
    assert "an empty frame with the alt text" in asked
    assert f"/admin/messages/{ref}" in asked
    etag = (await media.read(storage.tables, picture.id)).etag
    refused = await editor.post(delete, etag=etag)
    assert refused.status_code == 409
    assert "Delete it anyway" in refused.text
    assert (await editor.post(delete, etag="old")).status_code == 409
    done = await editor.post(delete, etag=etag, anyway="yes")
    assert (done.headers["location"], notice_in(done)) == (MEDIA, "deleted")
    assert (await editor.office.browser.get(picture.path)).status_code == 404
    assert (await editor.post(delete, etag=etag)).status_code == 303
    checks = (await editor.get(path)).text
    assert "no longer in the media library" in checks


async def test_a_picture_is_guarded_by_messages_behind_many_drafts(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage_media, "USES_MAX", 3)
    picture = await added(editor)
    storage = editor.office.storage
    html = f'<img src="{{{{ site_url }}}}{picture.path}" alt="View">'
    for number in range(4):
        act = acting(storage, NOW + timedelta(minutes=number))
        draft = Draft(list_name=LIST, subject=f"{number}", html=html)
        made = await compose.compose(act, draft)
        if number == 0:  # the oldest one, so the last to be looked into
            await compose.give_time(act, made.ref, NOW + timedelta(days=1))
    delete = f"{MEDIA}/{picture.id}/delete"
    assert "Delete it anyway" in (await editor.get(delete)).text
    etag = (await media.read(storage.tables, picture.id)).etag
    assert (await editor.post(delete, etag=etag)).status_code == 409
    assert (await editor.post(delete, etag=etag, anyway="yes")).status_code == 303


async def test_a_picture_is_guarded_by_a_message_that_was_cancelled_half_way(
    editor: Worker,
) -> None:
    picture = await added(editor)
    storage = editor.office.storage
    html = f'<img src="{{{{ site_url }}}}{picture.path}" alt="View">'
    draft = Draft(list_name=LIST, subject="x", html=html)
    made = await compose.compose(acting(storage, NOW), draft)
    found, etag = await messages.read_with_etag(storage.tables, made.ref)
    cancelled = msgspec.structs.replace(found, status=Status.CANCELLED)
    await messages.replace(storage.tables, cancelled, etag)
    etag = (await media.read(storage.tables, picture.id)).etag
    delete = f"{MEDIA}/{picture.id}/delete"
    assert (await editor.post(delete, etag=etag)).status_code == 409


async def test_a_full_library_takes_no_more(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full when one of sixteen equal parts is, so only that part is counted."""
    monkeypatch.setattr(media, "PICTURES_MAX", 32)
    tables = editor.office.storage.tables
    read = 0
    scan = tables.scan

    async def counting(*args: Any, **named: Any) -> Page:
        nonlocal read
        page = await scan(*args, **named)
        read += len(page.rows)
        return page

    monkeypatch.setattr(tables, "scan", counting)
    refused: list[str] = []
    for number in range(100):
        read = 0
        try:
            content = samples.png(20 + number, 20)
            await manage_media.add(acting(editor.office.storage, NOW), content, "Ada")
        except BadInput as error:
            refused.append(str(error))
        assert read <= 2
    assert 100 - 32 <= len(refused) < 90  # a part may be full before the others
    assert "holds about 32 pictures" in refused[0]


# --- In the block editor ------------------------------------------------------------------------


async def picture_block(editor: Worker) -> tuple[dict[str, str], str, str]:
    """A new message with a picture block that is about to be chosen: fields, its id, the page."""
    before = await new_form(editor)
    answer = await editor.post("/admin/messages/blocks", **before | {"op": "add:picture"})
    fields = fields_in(answer.text)
    (block,) = set(order(fields)) - set(order(before))
    return fields, block, answer.text


async def test_a_new_picture_block_offers_the_library(editor: Worker) -> None:
    picture = await added(editor)
    await editor.post(f"{MEDIA}/{picture.id}", alt="A view")
    fields, block, page = await picture_block(editor)
    assert fields["picture_for"] == block
    assert f'value="picture:{block}:{picture.id}"' in page
    fields = await pressed(editor, fields, f"picture:{block}:{picture.id}")
    assert fields[f"{block}-src"] == picture.path
    assert fields[f"{block}-alt"] == "A view"
    assert fields[f"{block}-width"] == "0"
    assert "picture_for" not in fields
    path = await saved(editor, fields)
    html, _text = await said_by(editor, path)
    assert html
    image = re.search(rf"<img[^>]*{re.escape(picture.path)}[^>]*>", html)
    assert image
    assert 'alt="A view"' in image[0]
    assert 'width="600"' in image[0]  # half of the file's 1200 pixels
    assert path in (await editor.get(f"{MEDIA}/{picture.id}")).text
    shown = (await editor.get(f"{path}/mail")).text
    assert f"{editor.office.site.url}{picture.path}" in shown


async def test_a_picture_is_uploaded_where_it_is_used(editor: Worker) -> None:
    fields, block, _page = await picture_block(editor)
    fields |= {f"{block}-alt": "A square"}
    file = {"picture_file": ("square.png", samples.png(200, 100))}
    answer = await editor.browser.post(
        "/admin/messages/blocks",
        data=fields | {"op": f"upload:{block}"},
        files=file,
        headers=OWN_PAGE,
    )
    fields = fields_in(answer.text)
    (picture,) = await pictures_in_library(editor)
    assert (picture.name, picture.alt) == ("square.png", "A square")
    assert fields[f"{block}-src"] == picture.path
    assert fields[f"{block}-width"] == "200"  # not enlarged
    assert f'<img class="picture-small" src="{picture.path}"' in answer.text


async def test_a_bad_file_in_a_block_keeps_everything_typed(editor: Worker) -> None:
    fields, block, _page = await picture_block(editor)
    fields |= {"subject": "Typed", f"{block}-alt": "Typed, too"}
    file = {"picture_file": ("logo.svg", samples.svg())}
    for path in ("/admin/messages/blocks", "/admin/messages/write"):
        answer = await editor.browser.post(path, data=fields, files=file, headers=OWN_PAGE)
        page = unescape(answer.text)
        assert re.search(r'id="picture_file-mistake"[^>]*>SVG pictures', page)
        again = fields_in(answer.text)
        assert again["subject"] == "Typed"
        assert again[f"{block}-alt"] == "Typed, too"
        assert again["picture_for"] == block
    assert answer.status_code == 422


async def test_saving_with_a_chosen_file_uploads_it(editor: Worker) -> None:
    fields, _block, _page = await picture_block(editor)
    file = {"picture_file": ("a.png", samples.png())}
    answer = await editor.browser.post(
        "/admin/messages/write", data=fields | {"subject": "Hello"}, files=file, headers=OWN_PAGE
    )
    assert answer.status_code == 303, unescape(answer.text)
    (picture,) = await pictures_in_library(editor)
    html, _text = await said_by(editor, answer.headers["location"])
    assert picture.path in (html or "")


async def test_articles_and_the_logo_choose_in_the_same_way(editor: Worker) -> None:
    picture = await added(editor, samples.png(100, 50), "logo.png")
    fields = await pressed(editor, await new_form(editor), "add:articles")
    block = order(fields)[-1]
    fields = await pressed(editor, fields, f"choose:{block}-0")
    assert fields["picture_for"] == f"{block}-0"
    fields = await pressed(editor, fields, f"picture:{block}-0:{picture.id}")
    assert fields[f"{block}-0-src"] == picture.path
    fields = await pressed(editor, fields, "choose:theme")
    fields = await pressed(editor, fields, f"picture:theme:{picture.id}")
    assert fields["theme-logo-src"] == picture.path
    assert fields["theme-logo-width"] == "100"
    for place in ("b99", f"{block}-9", block, "theme-0"):
        wrong = await editor.post(
            "/admin/messages/blocks", **fields | {"op": f"picture:{place}:{picture.id}"}
        )
        assert wrong.status_code == 200
    gone = await pressed(editor, fields, f"picture:theme:{'0' * 39}")
    assert gone["theme-logo-src"] == picture.path


async def test_the_library_is_searched_from_a_block(editor: Worker) -> None:
    for number in range(14):
        await added(editor, samples.png(20 + number), f"picture {number}.png")
    fields, block, page = await picture_block(editor)
    assert len(re.findall(rf'value="picture:{block}:', page)) == 12
    older = re.search(rf'value="(choose:{block}:[^"]+)"', page)
    assert older
    answer = await editor.post("/admin/messages/blocks", **fields | {"op": older[1]})
    assert len(re.findall(rf'value="picture:{block}:', answer.text)) == 2
    words = {"op": f"choose:{block}", "find_picture": "13"}
    answer = await editor.post("/admin/messages/blocks", **fields | words)
    assert len(re.findall(rf'value="picture:{block}:', answer.text)) == 1
    closed = await pressed(editor, fields, "choose:")
    assert "picture_for" not in closed


async def test_templates_choose_pictures_too(editor: Worker) -> None:
    picture = await added(editor)
    created = await editor.post("/admin/templates/new", title="Ours", **{"from": "letter"})
    path = created.headers["location"]
    page = (await editor.get(path)).text.replace('id="template-form"', 'id="message"')
    fields = fields_in(page)
    answer = await editor.post(f"{path}/blocks", **fields | {"op": f"picture:theme:{picture.id}"})
    fields = fields_in(answer.text.replace('id="template-form"', 'id="message"'))
    assert fields["theme-logo-src"] == picture.path
    assert (await editor.post(path, **fields)).status_code == 303
    assert path in (await editor.get(f"{MEDIA}/{picture.id}")).text
    assert picture.path in (await editor.get(f"{path}/preview")).text


# --- Checks -------------------------------------------------------------------------------------


async def test_a_missing_alt_text_is_filled_from_the_library(editor: Worker) -> None:
    picture = await added(editor)
    await editor.post(f"{MEDIA}/{picture.id}", alt="A view")
    fields, block, _page = await picture_block(editor)
    fields = await pressed(editor, fields, f"picture:{block}:{picture.id}")
    fields[f"{block}-alt"] = ""
    answer = await editor.post("/admin/messages/preview", **fields)
    assert f'value="fix:alt:{block}"' in answer.text
    fields = await pressed(editor, fields, f"fix:alt:{block}")
    assert fields[f"{block}-alt"] == "A view"
    answer = await editor.post("/admin/messages/preview", **fields)
    assert "fix:alt" not in answer.text


async def test_heavy_pictures_are_named(editor: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.writing.block_checks.PICTURE_BYTES_MAX", 1000)
    monkeypatch.setattr("postroom.writing.block_checks.PICTURES_BYTES_MAX", 2000)
    monkeypatch.setattr("postroom.web.message_checks.PICTURES_BYTES_MAX", 2000)
    picture = await added(editor)
    fields, block, _page = await picture_block(editor)
    fields = await pressed(editor, fields, f"picture:{block}:{picture.id}")
    answer = await editor.post("/admin/messages/preview", **fields)
    assert "This picture has" in answer.text
    assert "The pictures total" in answer.text
    body = f'<img src="{{{{ site_url }}}}{picture.path}" alt="View">'
    typed = {"list": LIST, "subject": "x", "kind": "html", "body": body}
    answer = await editor.post("/admin/messages/preview", **typed)
    assert "The pictures of the media library total" in answer.text


async def test_a_deleted_picture_is_named_by_the_checks(editor: Worker) -> None:
    picture = await added(editor)
    fields, block, _page = await picture_block(editor)
    fields = await pressed(editor, fields, f"picture:{block}:{picture.id}")
    storage = editor.office.storage
    etag = (await media.read(storage.tables, picture.id)).etag
    await manage_media.delete(acting(storage, NOW), picture.id, etag)
    answer = await editor.post("/admin/messages/preview", **fields)
    assert "This picture is no longer in the media library" in answer.text
