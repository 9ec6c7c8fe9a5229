"""Somebody who opens the pages on which messages are written, with every kind of block."""

from __future__ import annotations

from postroom.domain.block import KIND_TITLES
from tests.web.drafts import fields_in
from tests.web.office import LIST
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
    await visit.get("/admin/templates")
    await visit.get("/admin/templates/new", kind="snippet")
    await visit.post("/admin/templates/new", 422, title="")
    for kind, title in (("template", "Ada"), ("snippet", "Ada")):
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
