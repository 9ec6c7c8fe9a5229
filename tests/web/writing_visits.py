"""Somebody who opens the pages on which messages are written, with every kind of block."""

from __future__ import annotations

import httpx2

from postroom.domain.block import KIND_TITLES
from postroom.domain.message import PauseCause, Status
from tests.web import returned
from tests.web.drafts import fields_in, stored
from tests.web.office import LIST
from tests.web.people import join
from tests.web.signed_in import OWN_PAGE
from tests.web.visitor import Visit


async def in_blocks(visit: Visit) -> None:
    """The block editor with every kind of block and finding, templates, the page in a browser."""
    owner = visit.owner
    page = (await owner.get("/admin/messages/new", list=LIST)).text
    # Without the words of the template, which are nobody's text of ours.
    fields = {
        name: "Ada" if name.endswith("-text") else "" if name.endswith("-place") else value
        for name, value in fields_in(page, subject="Ada").items()
    }
    for kind in KIND_TITLES:
        answer = await owner.post("/admin/messages/blocks", **fields | {"op": f"add:{kind}"})
        fields = fields_in(answer.text)
    visit.read("every block", answer.text)
    headers = {"HX-Request": "true"} | OWN_PAGE
    part = await owner.browser.post(
        "/admin/messages/blocks", data=fields | {"op": "undo"}, headers=headers
    )
    visit.read("only the blocks", part.text)
    last = fields["shape"].count('"kind"')
    for op in ("nothing:x", "undo", "snippet", f"columns:b{last}:3", "add:text:b99", "fix:x"):
        await visit.post("/admin/messages/blocks", 200, **fields | {"op": op})
    await visit.post("/admin/messages/blocks", 200, **fields | {"op": "undo", "shape": "x"})
    await visit.post("/admin/messages/preview", 200, **fields | {"theme-text": "#eeeeee"})
    wrong = {"theme-width": "1", "preview_text": "x" * 300, "language": "?"}
    await visit.post("/admin/messages/write", 422, **fields | wrong)
    typed = {"list": LIST, "subject": "Ada", "kind": "html", "text": ""}
    body = "<img src=https://contoso.edu/a.png width=900><a href='http://localhost'>Ada</a>{Ada}}"
    body += '<p style="color:#ddd">Ada</p>'
    await visit.post("/admin/messages/preview", 200, **typed | {"body": body})
    await visit.post("/admin/messages/preview", 200, **typed | {"body": "<p>{{ Ada }"})
    await visit.post(
        "/admin/messages/blocks", 200, **typed | {"body": body, "op": "fix:body:alt:9"}
    )
    await visit.get("/admin/messages/import")
    answer = await owner.browser.post(
        "/admin/messages/import",
        data={"list": LIST, "subject": "Ada"},
        files={"file": ("Ada.htm", b"<p>Ada</p><script></script><form onclick=x>")},
        headers=OWN_PAGE,
    )
    await visit.get(answer.headers["location"])
    answer = await owner.browser.post(
        "/admin/messages/import", data={"list": LIST}, files={"file": ("a", b"")}, headers=OWN_PAGE
    )
    visit.read("an empty file", answer.text)
    await visit.get("/admin/templates")
    await visit.get("/admin/templates/new", kind="snippet")
    await visit.post("/admin/templates/new", 422, title="")
    for kind, title in (("snippet", "Ada"), ("template", "Ada")):
        answer = await owner.post("/admin/templates/new", title=title, kind=kind)
        await visit.get(answer.headers["location"])
    kept = answer.headers["location"]
    await visit.get("/admin/templates")
    await visit.get(f"{kept}/delete")
    await visit.post(f"{kept}/delete", 409, etag="old")
    fields = fields_in((await owner.get(kept)).text.replace("template-form", "message"))
    await visit.post(kept, 422, **fields | {"title": "", "theme-width": "1"})
    await visit.post(kept, 409, **fields | {"etag": "old", "theme-width": "500"})
    await owner.get("/admin/messages/new", list=LIST)
    await visit.as_anybody("/v/1/2", 404)


async def with_attachments(visit: Visit) -> None:
    """A message with files, each refusal of a file, and a server that takes no such emails."""
    owner = visit.owner
    for people in (0, 1):
        if people:
            await join(owner, "ada2@contoso.edu")
        answer = await _attach(visit, "/admin/messages/write", b"x" * 6_000_000, attach="add")
        path = answer.headers["location"].partition("/write")[0]
        await visit.get(f"{path}/write")
        await visit.get(path)
        await visit.get(f"{path}/look")
    [file] = (await stored(owner, path)).attachments
    await visit.get(f"{path}/attachments/0", 404)
    visit.seen.add(f"{path}/attachments/{file.id}")
    for content in (b"", b"x" * 11_000_000):
        answer = await _attach(visit, f"{path}/write", content)
        visit.read("a refused file", answer.text)
    for notice in ("attach", "remove"):
        page = (await owner.get(f"{path}/write")).text
        files = {notice: file.id}
        await owner.post(f"{path}/write", **fields_in(page) | files)
        await visit.get(f"{path}/write")
    too_large = PauseCause(0, 0, "550 5.1.1 mailbox unavailable", is_too_large=True)
    paused = {"pause_cause": too_large, "is_self_paused": True}
    stuck = await returned.sent_to(owner, 3, Status.PAUSED, **paused)
    await visit.get(stuck)
    await visit.get("/admin")


async def _attach(visit: Visit, path: str, content: bytes, **more: str) -> httpx2.Response:
    page = (await visit.owner.get(path.replace("messages/write", "messages/new"), kind="html")).text
    fields = fields_in(page, subject="Ada", body="<p>Ada</p>") | more
    files = {"attachments": ("Ada", content, "")}
    return await visit.owner.browser.post(path, data=fields, files=files, headers=OWN_PAGE)
