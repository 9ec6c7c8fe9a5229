"""Pages from elsewhere, on the admin pages, over the web service and on the command line."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from postroom.domain.picture import ids_in
from postroom.records import media
from tests.picture_samples import jpeg_with_gps, png
from tests.web.drafts import said_by, stored
from tests.web.office import LIST
from tests.web.program import Program, problem
from tests.web.signed_in import OWN_PAGE, Worker, at_work

PAGE = b"""<html><head><title>Our news</title><meta charset="windows-1252">
<link rel="stylesheet" href="style.css"></head>
<body><h1>Gr\xfc\xdfe, {{ name }}</h1><script>x()</script>
<img src="images/a.png" alt="A"><img src="images/photo.jpg"><img src="images/gone.png">
<img src="images/bad.svg"></body></html>"""


def zipped(**more: bytes) -> bytes:
    files = {
        "export/index.html": PAGE,
        "export/style.css": b"h1 { color: #010203; background: url(images/a.png) }",
        "export/images/a.png": png(),
        "export/images/photo.jpg": jpeg_with_gps(),
        "export/images/bad.svg": b"<svg onload='x()'/>",
        **more,
    }
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path) as worker:
        yield worker


async def bring(editor: Worker, content: bytes, name: str, **fields: str) -> httpx2.Response:
    return await editor.browser.post(
        "/admin/messages/import",
        data={"list": LIST} | fields,
        files={"file": (name, content)},
        headers=OWN_PAGE,
    )


async def test_a_zip_becomes_a_draft_and_its_pictures_are_in_the_library(editor: Worker) -> None:
    answer = await bring(editor, zipped(), "export.zip")
    assert answer.status_code == 303, unescape(answer.text)
    path = answer.headers["location"].removesuffix("/imported")
    html, _text = await said_by(editor, path)
    assert html is not None
    assert "Grüße, {{ name }}" in html
    assert html.count("{{ site_url }}/m/") == 2
    assert "color: #010203" in html
    assert "<script" not in html
    message = await stored(editor, path)
    assert (message.subject, message.status) == ("Our news", "draft")
    found = (await media.find_all(editor.office.storage.tables, ids_in([html]))).values()
    assert sorted((each.name, each.alt) for each in found) == [("a.png", "A"), ("photo.jpg", "")]
    page = unescape((await editor.get(f"{path}/imported")).text)
    for sentence in (
        "2 pictures were added to the media library.",
        "Scripts were removed",
        "1 picture is missing and will not be shown: images/gone.png",
        "such as SVG: export/images/bad.svg",
    ):
        assert sentence in page
    assert (await editor.get(path)).status_code == 200


async def test_a_page_alone_becomes_a_draft(editor: Worker) -> None:
    answer = await bring(editor, b"<p>caf\xe9 <img src=a.png>", "news.htm", subject="Mine")
    path = answer.headers["location"].removesuffix("/imported")
    assert (await said_by(editor, path))[0] == "<p>café <img src=a.png>"
    assert (await stored(editor, path)).subject == "Mine"
    assert "a.png" in (await editor.get(f"{path}/imported")).text


async def test_a_zip_with_several_pages_asks_which(editor: Worker) -> None:
    content = zipped(**{"export/index.html": b"<p>1", "b/index.html": b"<p>2"})
    answer = await bring(editor, content, "x.zip", subject="Kept")
    assert answer.status_code == 422
    assert 'value="Kept"' in answer.text
    assert '<option value="b/index.html">' in answer.text
    answer = await bring(editor, content, "x.zip", page="b/index.html")
    path = answer.headers["location"].removesuffix("/imported")
    assert (await said_by(editor, path))[0] == "<p>2"


@pytest.mark.parametrize(
    ("content", "fields", "sentence"),
    [
        (b"", {}, "empty"),
        (b"just text", {}, "not an HTML page"),
        (b"PK\x03\x04 rest", {}, "damaged"),
        (zipped(**{"../x.html": b""}), {}, "outside the zip"),
        (b"<p>{{ name", {}, "never closed"),
        (b"<p>x", {"list": "nolist"}, "no list"),
        (b"<p>" + b"x" * (2 * 1024 * 1024), {}, "larger than 2 MB"),
    ],
)
async def test_what_cannot_be_brought_is_refused_with_a_sentence(
    editor: Worker, content: bytes, fields: dict[str, str], sentence: str
) -> None:
    answer = await bring(editor, content, "x.zip", subject="Kept", **fields)
    assert answer.status_code == 422
    assert sentence in unescape(answer.text)
    assert 'value="Kept"' in answer.text


async def test_a_form_without_a_file_is_refused(editor: Worker) -> None:
    answer = await bring(editor, b"", "")
    assert answer.status_code == 422
    assert "Choose a file." in answer.text
    assert (await editor.get("/admin/messages/import", list=LIST)).status_code == 200


async def test_a_program_brings_a_zip_once(program: Program) -> None:
    sent = {"list": "contoso1", "file": base64.b64encode(zipped()).decode()}
    first = await program.call("POST", "/messages/import", sent, idempotency_key="one")
    assert first.status_code == 201, first.text
    assert (first.json()["subject"], first.json()["format"]) == ("Our news", "html")
    assert "2 pictures were added to the media library." in first.json()["notes"]
    again = await program.call("POST", "/messages/import", sent, idempotency_key="one")
    assert again.json() == first.json()
    assert len(await program.pages("/messages")) == 1


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"file": "%"}, "file"),
        ({"file": base64.b64encode(b"text").decode()}, "file"),
        ({"file": base64.b64encode(zipped()).decode(), "page": "none.html"}, "page"),
        ({"file": base64.b64encode(zipped(**{"a/index.htm": b""})).decode()}, "page"),
    ],
)
async def test_what_a_program_cannot_bring_is_named(
    program: Program, members: dict[str, str], field: str
) -> None:
    told = problem(
        await program.call("POST", "/messages/import", {"list": "contoso1"} | members), 422
    )
    assert told["field"] == field
