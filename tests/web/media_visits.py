"""Somebody who opens the pages of the media library, and chooses pictures in the block editor."""

from __future__ import annotations

from datetime import timedelta

from postroom.actions import manage_media
from postroom.flow import compose
from postroom.records import media
from tests import picture_samples as samples
from tests.acting import acting
from tests.web.drafts import GOOD, fields_in
from tests.web.office import LIST, NOW
from tests.web.signed_in import OWN_PAGE
from tests.web.visitor import Visit

MEDIA = "/admin/media"


async def at_media(visit: Visit) -> None:
    owner = visit.owner
    storage = owner.office.storage
    await visit.get(MEDIA)
    await visit.post(f"{MEDIA}/upload", 422)
    files = [
        ("pictures", ("Ada", samples.png())),
        ("pictures", ("Ada", samples.svg())),
    ]
    refused = await owner.browser.post(f"{MEDIA}/upload", files=files, headers=OWN_PAGE)
    visit.read("a refused picture", refused.text)
    act = acting(storage, NOW)
    moving = await manage_media.add(act, samples.animation(3), "Ada")
    picture = await manage_media.add(act, samples.encoded(samples.photo(), "JPEG"), "Ada", "Ada")
    await visit.get(MEDIA)
    await visit.get(MEDIA, q="nothing")
    await visit.get(MEDIA, after=picture.id)
    await visit.get(f"{MEDIA}/{moving.id}")
    path = f"{MEDIA}/{picture.id}"
    await visit.get(f"{path}/delete")
    await visit.post(path, 422, name="", alt="x" * 301)
    await visit.post(path, 422, name="Ada", alt="x" * 301)
    await visit.post(path, 409, name="Ada", alt="Ada Ada", etag="old")
    body = f'<img src="{{{{ site_url }}}}{picture.path}" alt="Ada">'
    answer = await owner.post("/admin/messages/write", **GOOD | {"body": body, "subject": "Ada"})
    ref = answer.headers["location"].rpartition("/")[2]
    await visit.get(f"{path}/delete")
    await compose.give_time(acting(storage, NOW), ref, NOW + timedelta(days=1))
    await visit.get(path)
    await visit.get(f"{path}/delete")
    await visit.post(f"{path}/delete", 409, etag="old")
    etag = (await media.read(storage.tables, picture.id)).etag
    await visit.post(f"{path}/delete", 409, etag=etag)
    await visit.get(f"/m/{picture.id}-1.jpg", 404)


async def at_choosing(visit: Visit) -> None:
    owner = visit.owner
    storage = owner.office.storage
    for number in range(13):
        content = samples.png(20 + number)
        picture = await manage_media.add(acting(storage, NOW), content, "Ada", "Ada")
    page = (await owner.get("/admin/messages/new", list=LIST)).text
    fields = fields_in(page, subject="Ada")
    chosen = {
        "shape": '[{"id":"b1","kind":"picture"},{"id":"b2","kind":"articles"}]',
        "b1-src": picture.path,
        "b2-0-title": "Ada",
        "b2-0-src": picture.path,
        "theme-logo-src": picture.path,
    }
    for op in ("choose:b1", "choose:b2-0", "choose:theme", "picture:b9:1", "picture:b1:1"):
        await visit.post("/admin/messages/blocks", 200, **fields | chosen | {"op": op})
    nothing = chosen | {"op": "choose:b1", "find_picture": "nothing"}
    await visit.post("/admin/messages/blocks", 200, **fields | nothing)
    await visit.post("/admin/messages/preview", 200, **fields | chosen)
    nowhere = f"/m/{'0' * 39}-600.jpg"
    gone = chosen | {name: nowhere for name in chosen if name.endswith("-src")}
    await visit.post("/admin/messages/preview", 200, **fields | gone)
