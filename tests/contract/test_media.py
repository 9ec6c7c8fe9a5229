"""The media library on every engine: one picture for the same bytes, uses, deletion, orphans."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from postroom.act import Act
from postroom.actions import manage_media, manage_templates
from postroom.domain.block import BlockDocument, PictureBlock
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.mailing_list import MailingList
from postroom.domain.message_template import TemplateKind
from postroom.domain.picture import Picture
from postroom.flow import compose, sweep
from postroom.flow.compose import Draft, Revision
from postroom.records import lists, media, messages, templates
from postroom.storage.port import Conflict, Storage
from tests import picture_samples as samples
from tests.clock import MovableClock


def act_on(storage: Storage, clock: MovableClock) -> Act:
    return Act(storage, clock, clock.now())


async def create_list(act: Act) -> None:
    row = MailingList(
        name="contoso", description="", sender="a@contoso.edu", created_at=act.clock.now()
    )
    await lists.create(act.tables, row)


async def files_of(storage: Storage) -> list[str]:
    return (await storage.blobs.list("media/"))[0]


async def test_the_same_bytes_are_one_picture(storage: Storage, clock: MovableClock) -> None:
    act = act_on(storage, clock)
    content = samples.encoded(samples.photo(900, 300), "JPEG")
    first = await manage_media.add(act, content, "C:\\pictures\\view.jpg", " A  view ")
    again = await manage_media.add(act, content, "other.jpg")
    assert again == first == (await media.read(storage.tables, first.id)).value
    assert (first.name, first.alt) == ("view.jpg", "A view")
    names = [path.removeprefix("/m/") for path in (first.small_path, first.path)]
    assert await files_of(storage) == [f"media/{name}" for name in sorted(names, key=len)]
    for name, file in zip(names, first.files, strict=True):
        loaded = await media.load_file(storage.blobs, name)
        assert loaded
        assert len(loaded) == file.size


async def test_two_uploads_at_once_are_one_picture(storage: Storage, clock: MovableClock) -> None:
    act = act_on(storage, clock)
    content = samples.png()
    both = await asyncio.gather(*(manage_media.add(act, content, "a.png") for _ in range(2)))
    assert both[0] == both[1]
    found, after = await media.page(storage.tables, clock, "", limit=10, after=None)
    assert (found, after) == ([both[0]], None)


async def test_a_refused_picture_leaves_nothing(storage: Storage, clock: MovableClock) -> None:
    with pytest.raises(BadInput, match="SVG"):
        await manage_media.add(act_on(storage, clock), samples.svg(), "logo.png")
    assert not await files_of(storage)
    assert await media.page(storage.tables, clock, "", limit=10, after=None) == ([], None)


async def test_pictures_are_found_by_name_and_alt_text(
    storage: Storage, clock: MovableClock
) -> None:
    made: list[Picture] = []
    for number in range(5):
        clock.move(1)
        alt = "Our ÉTÉ house" if number % 2 else "A garden"
        content = samples.png(20 + number)
        made.insert(
            0, await manage_media.add(act_on(storage, clock), content, f"{number}.png", alt)
        )
    first, after = await media.page(storage.tables, clock, "", limit=2, after=None)
    second, after = await media.page(storage.tables, clock, "", limit=2, after=after)
    third, after = await media.page(storage.tables, clock, "", limit=2, after=after)
    assert (first, second, third, after) == (made[:2], made[2:4], made[4:], None)
    found, _after = await media.page(storage.tables, clock, "été HOUSE", limit=9, after=None)
    assert [each.name for each in found] == ["3.png", "1.png"]
    found, _after = await media.page(storage.tables, clock, "4.PNG garden", limit=9, after=None)
    assert [each.name for each in found] == ["4.png"]


async def test_a_changed_picture_is_changed_once(storage: Storage, clock: MovableClock) -> None:
    act = act_on(storage, clock)
    picture = await manage_media.add(act, samples.png(), "a.png")
    etag = (await media.read(storage.tables, picture.id)).etag
    changed = await manage_media.describe(act, picture.id, "b.png", "A square", etag)
    assert (changed.value.name, changed.value.alt) == ("b.png", "A square")
    with pytest.raises(Conflict):
        await manage_media.describe(act, picture.id, "c.png", "", etag)
    with pytest.raises(BadInput):
        await manage_media.describe(act, picture.id, "c.png", "x" * 301, changed.etag)


async def test_uses_are_found_and_guard_the_picture(storage: Storage, clock: MovableClock) -> None:
    act = act_on(storage, clock)
    await create_list(act)
    picture = await manage_media.add(act, samples.png(), "a.png")
    other = await manage_media.add(act, samples.png(30), "b.png")
    html = f'<img src="{{{{ site_url }}}}{picture.path}" alt="">'
    draft = await compose.compose(act, Draft(list_name="contoso", subject="One", html=html))
    document = BlockDocument(blocks=[PictureBlock(id="b1", src=picture.path)])
    template = await manage_templates.create(act, TemplateKind.TEMPLATE, "Ours", document)

    uses = await manage_media.uses_of(storage, picture.id)
    assert [each.ref for each in uses.messages] == [draft.ref]
    assert uses.templates == [template]
    assert not uses.seen_by_recipients
    assert not (await manage_media.uses_of(storage, other.id)).messages

    await compose.give_time(act, draft.ref, clock.now() + timedelta(hours=1))
    etag = (await media.read(storage.tables, picture.id)).etag
    with pytest.raises(WrongState, match="scheduled or have been sent"):
        await manage_media.delete(act, picture.id, etag)

    stored = await messages.read_with_etag(storage.tables, draft.ref)
    await compose.edit(storage, draft.ref, Revision(html="<p>Words</p>"), stored.etag)
    stored_template = await templates.read(storage.tables, template.id)
    await manage_templates.edit(act, template.id, "Ours", BlockDocument(), stored_template.etag)
    uses = await manage_media.uses_of(storage, picture.id)
    assert (uses.messages, uses.templates) == ([], [])
    await manage_media.delete(act, picture.id, etag)
    with pytest.raises(NotFound):
        await media.read(storage.tables, picture.id)
    assert len(await files_of(storage)) == 1
    again = await manage_media.add(act, samples.png(), "a.png")
    assert again.id != picture.id


async def test_a_forced_deletion_ignores_messages(storage: Storage, clock: MovableClock) -> None:
    act = act_on(storage, clock)
    await create_list(act)
    picture = await manage_media.add(act, samples.png(), "a.png")
    due_at = clock.now() + timedelta(hours=1)
    html = f'<img src="{{{{ site_url }}}}{picture.path}">'
    draft = Draft(list_name="contoso", subject="One", html=html, due_at=due_at)
    await compose.compose(act, draft)
    etag = (await media.read(storage.tables, picture.id)).etag
    await manage_media.delete(act, picture.id, etag, is_forced=True)
    assert not await files_of(storage)


async def test_the_sweep_deletes_only_old_files_without_a_picture(
    storage: Storage, clock: MovableClock
) -> None:
    act = act_on(storage, clock)
    kept = await manage_media.add(act, samples.png(), "a.png")
    orphan = await manage_media.add(act, samples.png(30), "b.png")
    await storage.tables.delete("service", "media", f"picture:{orphan.id}")  # as after a crash
    await storage.blobs.put("media/not-ours.png", b"")
    assert await sweep.delete_orphaned_pictures(storage, clock.now()) == 0
    later = clock.now() + media.ORPHAN_AGE + timedelta(seconds=1)
    assert await sweep.delete_orphaned_pictures(storage, later) == 1
    assert await files_of(storage) == [
        f"media/{kept.path.removeprefix('/m/')}",
        "media/not-ours.png",
    ]
    assert await manage_media.add(act, samples.png(30), "b.png") != orphan
