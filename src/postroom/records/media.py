"""The pictures of the media library as rows, their files as blobs, and who uses them.

    service / media / picture:<id>            the row; ids sort the newest first
    service / media / digest:<SHA-256>        finds the picture that was uploaded as these bytes
    service / media-use / <id>:message:<10^18 - ref>    a message that may use the picture
    service / media-use / <id>:template:<id>            a template that may use it
    media/<id>-<width>.<ending>               a file

Files are written first, then both rows in one write (the commit point); a picture is deleted rows
first. So a crash in between leaves files without a row, which the sweep deletes when the time in
their id is more than ORPHAN_AGE ago; no upload takes that long.

A use is noted before the body that contains the picture is stored, and an edit never deletes the
note. So there may be too many notes, but never too few; code that shows uses also checks the
bodies.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from functools import partial

from postroom.clock import Clock
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.message_template import TEMPLATES_MAX
from postroom.domain.picture import (
    PICTURES_MAX,
    USED_MAX,
    Picture,
    file_name,
    ids_in,
    is_picture_id,
    kind_of_file,
)
from postroom.domain.texts import _
from postroom.records.messages import backwards
from postroom.records.row_search import search_partition
from postroom.records.rows import (
    FORMAT_ONLY,
    Unreadable,
    all_rows,
    find_row,
    first_rows,
    readable,
    readable_rows,
    to_properties,
)
from postroom.records.sortable_time import parse_newest_first, sortable_newest_first
from postroom.records.stored import Stored
from postroom.storage.port import (
    BATCH_CHANGES_MAX,
    Blobs,
    Conflict,
    Delete,
    Insert,
    KeysWithin,
    Row,
    Storage,
    Tables,
    Upsert,
)

TABLE = "service"
PARTITION = "media"
USES = "media-use"
ORPHAN_AGE = timedelta(days=1)
SWEPT_MAX = 200  # files deleted at a time
_FOLDER = "media/"
_PICTURE, _DIGEST = "picture:", "digest:"
_MESSAGE, _TEMPLATE = "message:", "template:"
_PICTURES = KeysWithin(PARTITION, _PICTURE, "picture;")
_PARTS = 16  # by the first hexadecimal digit of the digest
_RANDOM_BYTES = 12
_TIME_CHARS = 15


def new_id(now: datetime) -> str:
    return sortable_newest_first(now) + secrets.token_hex(_RANDOM_BYTES)


# --- Pictures -----------------------------------------------------------------------------------


async def put_files(blobs: Blobs, picture: Picture, contents: Iterable[bytes]) -> None:
    for file, content in zip(picture.files, contents, strict=True):
        await blobs.put(_FOLDER + file_name(picture.id, file.width, picture.kind), content)


async def insert(tables: Tables, picture: Picture) -> None:
    """Conflict if the same bytes were uploaded meanwhile."""
    key = f"{_DIGEST}{picture.digest}"
    changes = [
        Insert(key, {**FORMAT_ONLY, "Id": picture.id}),
        Insert(_PICTURE + picture.id, to_properties(picture)),
    ]
    await tables.batch(TABLE, PARTITION, changes)  # Commit point.


async def check_room(tables: Tables, digest: str) -> None:
    """BadInput if the library is full, or at least the part to which this picture belongs.

    Digests are evenly distributed, so one part in sixteen shows how many pictures there are.
    """
    start = f"{_DIGEST}{digest[0]}"
    part = KeysWithin(PARTITION, start, f"{start}g")  # behind all hexadecimal digits
    limit = PICTURES_MAX // _PARTS
    rows, _has_more = await first_rows(tables, TABLE, part, limit=limit)
    if len(rows) >= limit:
        raise BadInput(
            _(
                "The library is full: it holds about {limit:,} pictures. Delete some.",
                limit=PICTURES_MAX,
            )
        )


async def find_same(tables: Tables, digest: str) -> Picture | None:
    """The picture that was uploaded as these bytes."""
    row = await tables.get(TABLE, PARTITION, f"{_DIGEST}{digest}")
    if row is None:
        return None
    found = await find(tables, str(row.properties.get("Id", "")))
    if found is None:  # somebody deleted its row by hand
        with contextlib.suppress(Conflict):
            await tables.delete(TABLE, PARTITION, row.key, row.etag)
        return None
    return found.value


async def find(tables: Tables, picture_id: str) -> Stored[Picture] | None:
    if not is_picture_id(picture_id):
        return None
    return await find_row(tables, TABLE, PARTITION, _PICTURE + picture_id, Picture)


async def read(tables: Tables, picture_id: str) -> Stored[Picture]:
    found = await find(tables, picture_id)
    if found is None:
        raise NotFound(_("This picture no longer exists."))
    return found


async def find_all(tables: Tables, picture_ids: Iterable[str]) -> dict[str, Picture]:
    """Those of them that exist and can be read."""
    found: dict[str, Picture] = {}
    for picture_id in picture_ids:
        with contextlib.suppress(Unreadable):
            stored = await find(tables, picture_id)
            if stored:
                found[picture_id] = stored.value
    return found


async def replace(tables: Tables, picture: Picture, etag: str) -> str:
    """Conflict if it changed since it was read; the new etag."""
    key = _PICTURE + picture.id
    return await tables.replace(TABLE, PARTITION, key, to_properties(picture), etag)


async def page(
    tables: Tables, clock: Clock, words: str, *, limit: int, after: str | None
) -> tuple[list[Picture], str | None]:
    """Up to `limit` pictures, the newest first, with all words in name or alt text.

    Also the id of the last one that was examined, if more may follow.
    """
    matches = partial(_has_words, words.casefold().split())
    start = _PICTURE + after if after else None
    found = await search_partition(
        tables, clock, TABLE, _PICTURES, matches, limit=limit, after=start
    )
    pictures = [each.value for each in readable(found.rows, Picture)]
    return pictures, found.next.removeprefix(_PICTURE) if found.next else None


async def every_picture(tables: Tables, words: str = "") -> AsyncIterator[Picture]:
    """All of them that have these words, the newest first; there are at most PICTURES_MAX."""
    wanted = words.casefold().split()
    async for picture, row in readable_rows(tables, TABLE, _PICTURES, Picture):
        if _has_words(wanted, row):
            yield picture


def _has_words(wanted: list[str], row: Row) -> bool:
    text = f"{row.properties.get('Name', '')} {row.properties.get('Alt', '')}".casefold()
    return all(word in text for word in wanted)


async def delete(storage: Storage, picture: Picture, etag: str) -> None:
    """Delete the rows first: files without a row are swept, a row without files is broken."""
    tables = storage.tables
    changes = [Delete(_PICTURE + picture.id, etag)]
    if await tables.get(TABLE, PARTITION, f"{_DIGEST}{picture.digest}"):
        changes.append(Delete(f"{_DIGEST}{picture.digest}"))
    await tables.batch(TABLE, PARTITION, changes)  # Commit point.
    for file in picture.files:
        await storage.blobs.delete(_FOLDER + file_name(picture.id, file.width, picture.kind))
    async for row in all_rows(tables, TABLE, _uses(picture.id)):
        await tables.delete(TABLE, USES, row.key)


async def load_file(blobs: Blobs, name: str) -> bytes | None:
    """The file with a name as in the path of a picture; nothing else can be read with it."""
    return await blobs.get(_FOLDER + name) if kind_of_file(name) else None


async def delete_orphans(storage: Storage, now: datetime) -> int:
    """Delete files whose picture has no row, a bounded number; return how many."""
    orphans = [name async for name in _files_before(storage.blobs, now - ORPHAN_AGE)]
    if orphans:  # the rows are read after the files, so a new picture is never an orphan
        rows = all_rows(storage.tables, TABLE, _PICTURES)
        known = {row.key.removeprefix(_PICTURE) async for row in rows}
        orphans = [name for name in orphans if _id_of_file(name) not in known][:SWEPT_MAX]
    for name in orphans:
        await storage.blobs.delete(name)
    return len(orphans)


async def _files_before(blobs: Blobs, before: datetime) -> AsyncIterator[str]:
    after: str | None = None
    while True:
        names, after = await blobs.list(_FOLDER, after=after)
        for name in names:
            picture_id = _id_of_file(name)
            if is_picture_id(picture_id) and _added_at(picture_id) < before:
                yield name
        if after is None:
            return


def _id_of_file(name: str) -> str:
    return name.removeprefix(_FOLDER).partition("-")[0]


def _added_at(picture_id: str) -> datetime:
    return parse_newest_first(picture_id[:_TIME_CHARS])


# --- Uses ---------------------------------------------------------------------------------------


async def note_message(tables: Tables, ref: str, texts: Iterable[str | None]) -> None:
    """Note which pictures the bodies of a message use."""
    await _note(tables, _MESSAGE + backwards(ref), texts)


async def note_template(tables: Tables, template_id: str, texts: Iterable[str | None]) -> None:
    await _note(tables, _TEMPLATE + template_id, texts)


async def _note(tables: Tables, user: str, texts: Iterable[str | None]) -> None:
    keys = sorted(f"{picture_id}:{user}" for picture_id in ids_in(texts))
    if len(keys) > USED_MAX:  # each of them is a row, and read for every check
        raise BadInput(
            _(
                "It contains more than {limit} pictures of the media library. Remove some.",
                limit=USED_MAX,
            )
        )
    for start in range(0, len(keys), BATCH_CHANGES_MAX):
        changes = [Upsert(key, FORMAT_ONLY) for key in keys[start : start + BATCH_CHANGES_MAX]]
        await tables.batch(TABLE, USES, changes)


async def messages_with(tables: Tables, picture_id: str, *, limit: int) -> tuple[list[str], bool]:
    """Refs of messages that may use it, the newest first, and whether there are more."""
    users, has_more = await _users(tables, picture_id, _MESSAGE, limit)
    return [backwards(user) for user in users], has_more


async def templates_with(tables: Tables, picture_id: str) -> list[str]:
    """Ids of templates that may use it."""
    return (await _users(tables, picture_id, _TEMPLATE, TEMPLATES_MAX))[0]


async def _users(tables: Tables, picture_id: str, kind: str, limit: int) -> tuple[list[str], bool]:
    start = f"{picture_id}:{kind}"
    keys = KeysWithin(USES, start, f"{start[:-1]};")
    rows, has_more = await first_rows(tables, TABLE, keys, limit=limit)
    return [row.key.removeprefix(start) for row in rows], has_more


async def forget_message(tables: Tables, picture_id: str, ref: str) -> None:
    await tables.delete(TABLE, USES, f"{picture_id}:{_MESSAGE}{backwards(ref)}")


async def forget_template(tables: Tables, picture_id: str, template_id: str) -> None:
    await tables.delete(TABLE, USES, f"{picture_id}:{_TEMPLATE}{template_id}")


def _uses(picture_id: str) -> KeysWithin:
    return KeysWithin(USES, f"{picture_id}:", f"{picture_id};")
