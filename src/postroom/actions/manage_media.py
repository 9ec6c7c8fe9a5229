"""Action, manage media: add pictures to the media library, describe, find and delete them.

Before: somebody uploads a picture.   After: its files are served, and messages can use it.
Dies half-way:
    add      before the rows there are unused files; the sweep deletes them after a day
    change   one row
    delete   after the rows the files stay, and are served, until the sweep deletes them
Commit point: the rows of the picture. The same bytes are one picture, however often they are sent.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from postroom.act import Act
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.block import encode_document
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.message import Message, Status
from postroom.domain.message_template import MessageTemplate
from postroom.domain.picture import (
    USED_MAX,
    Picture,
    PictureFile,
    check_alt,
    check_name,
    clean_name,
    ids_in,
)
from postroom.domain.texts import _
from postroom.parsing import in_picture_thread, in_thread
from postroom.records import bodies, media, messages, templates
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Storage, Tables

if TYPE_CHECKING:
    from postroom.writing.picture_files import EncodedPicture

USES_MAX = 50  # messages that are read to show where a picture is used; a page shows fewer


class PictureUses(msgspec.Struct, frozen=True):
    """Which messages and templates use a picture now."""

    messages: list[Message]  # the newest first
    templates: list[MessageTemplate]
    has_more: bool = False  # messages that were not looked into

    @property
    def seen_by_recipients(self) -> list[Message]:
        """The messages whose recipients see the picture, or will; a cancelled one went to some."""
        return [each for each in self.messages if each.status is not Status.DRAFT]

    @property
    def is_guarded(self) -> bool:
        """Whether recipients see it, or may: messages that were not looked into may use it."""
        return bool(self.seen_by_recipients) or self.has_more


def picture_data(picture: Picture, site_url: str = "") -> dict[str, Any]:
    """A picture as programs see it, with the same names on the command line and in the API."""
    return {
        "id": picture.id,
        "name": picture.name,
        "alt": picture.alt,
        **({"url": f"{site_url}{picture.path}"} if site_url else {}),
        "path": picture.path,
        "kind": picture.kind,
        "width": picture.width,
        "height": picture.height,
        "bytes": picture.size,
        "animated": picture.is_animated,
        "created_at": picture.created_at,
    }


async def add(act: Act, content: bytes, name: str, alt: str = "") -> Picture:
    """Add a picture, or find the one that was added from the same bytes.

    BadInput, with the reason, if it cannot be used. The picture's `path` is for the `src` of blocks
    and of HTML (with {{ site_url }} before it there).
    """
    alt = check_alt(alt)
    digest = await in_thread(lambda: hashlib.sha256(content).hexdigest())
    there = await media.find_same(act.tables, digest)
    if there:
        return there
    await media.check_room(act.tables, digest)
    encoded = await in_picture_thread(_encode, content)
    picture = _picture(act, encoded, digest, clean_name(name), alt)
    try:
        async with act.audited(AuditKind.PICTURE, picture.name, AuditAction.CREATE):
            contents = [file.content for file in encoded.files]
            await media.put_files(act.storage.blobs, picture, contents)
            await media.insert(act.tables, picture)
    except Conflict:  # the same bytes were added meanwhile
        there = await media.find_same(act.tables, digest)
        if there is None:
            raise
        return there
    return picture


def _encode(content: bytes) -> EncodedPicture:
    from postroom.writing.picture_files import encode_picture  # Pillow is large

    return encode_picture(content)


def _picture(act: Act, encoded: EncodedPicture, digest: str, name: str, alt: str) -> Picture:
    return Picture(
        id=media.new_id(act.clock.now()),
        name=name,
        alt=alt,
        kind=encoded.kind,
        files=[PictureFile(each.width, each.height, len(each.content)) for each in encoded.files],
        is_animated=encoded.is_animated,
        digest=digest,
        created_at=act.now,
        by=act.actor.name if act.actor else "",
    )


async def describe(act: Act, picture_id: str, name: str, alt: str, etag: str) -> Stored[Picture]:
    """Change its name and alt text; Conflict if somebody else did so since the etag was read.

    Messages keep the alt text that they have.
    """
    found = await media.read(act.tables, picture_id)
    if found.etag != etag:
        raise Conflict(f"picture {picture_id} has changed")
    changed = msgspec.structs.replace(found.value, name=check_name(name), alt=check_alt(alt))
    async with act.audited(
        AuditKind.PICTURE,
        changed.name,
        AuditAction.CHANGE,
        before=values_text({"name": found.value.name, "alt": found.value.alt}),
        after=values_text({"name": changed.name, "alt": changed.alt}),
    ):
        return Stored(changed, await media.replace(act.tables, changed, etag))


async def delete(act: Act, picture_id: str, etag: str, *, is_forced: bool = False) -> None:
    """Delete it; WrongState, unless forced, while a message that is scheduled or sent uses it."""
    found = await media.read(act.tables, picture_id)
    if found.etag != etag:
        raise Conflict(f"picture {picture_id} has changed")
    uses = await uses_of(act.storage, picture_id)
    if uses.is_guarded and not is_forced:
        raise WrongState(
            _(
                "Messages that are scheduled or have been sent use this picture. Their recipients "
                "would see an empty frame with the alt text in its place."
            )
        )
    async with act.audited(AuditKind.PICTURE, found.value.name, AuditAction.DELETE):
        await media.delete(act.storage, found.value, etag)


async def pictures_in(tables: Tables, *texts: str | None) -> dict[str, Picture]:
    """The pictures of the library that these bodies show, by id; those that still exist."""
    return await media.find_all(tables, sorted(ids_in(texts))[:USED_MAX])


async def uses_of(storage: Storage, picture_id: str) -> PictureUses:
    """Check everything that may use it, and delete the notes of uses that have ended."""
    refs, has_more = await media.messages_with(storage.tables, picture_id, limit=USES_MAX)
    using: list[Message] = []
    for ref in refs:
        message = await messages.find(storage.tables, ref)
        if message and await _is_in_message(storage, message, picture_id):
            using.append(message)
        elif message is None:  # else an edit that noted the use may not be stored yet
            await media.forget_message(storage.tables, picture_id, ref)
    return PictureUses(using, await _templates_with(storage, picture_id), has_more)


async def _is_in_message(storage: Storage, message: Message, picture_id: str) -> bool:
    with suppress(NotFound):
        found = await bodies.load_all(storage.blobs, message)
        source = found.source.text if found.source else None
        return picture_id in ids_in([found.html, found.text, source])
    return False


async def _templates_with(storage: Storage, picture_id: str) -> list[MessageTemplate]:
    using: list[MessageTemplate] = []
    for template_id in await media.templates_with(storage.tables, picture_id):
        found = await templates.find(storage.tables, template_id)
        if found is None:
            await media.forget_template(storage.tables, picture_id, template_id)
            continue
        with suppress(NotFound):
            document = await templates.load_document(storage.blobs, found.value)
            if picture_id in ids_in([encode_document(document)]):
                using.append(found.value)
    return using
