"""Killed at any write of an upload or a deletion: what is left is found, used again or swept."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.actions import manage_media
from postroom.flow import sweep
from postroom.records import media
from postroom.storage.memory import MemoryStorage
from tests import picture_samples as samples
from tests.acting import acting
from tests.clock import START, MovableClock
from tests.unit.failing import Fuse, Killed, fused_storage

PHOTO = samples.encoded(samples.photo(700, 100), "JPEG")  # two files
LATER = START + media.ORPHAN_AGE + timedelta(minutes=1)


async def settled(storage: MemoryStorage) -> int:
    """How many pictures there are; after the sweep there are their files, and no others."""
    await sweep.delete_orphaned_pictures(storage, LATER)
    files = set((await storage.blobs.list("media/"))[0])
    found = [each async for each in media.every_picture(storage.tables)]
    known = {
        f"media/{picture.path_of(file).rpartition('/')[2]}"
        for picture in found
        for file in picture.files
    }
    assert files == known
    return len(found)


@pytest.mark.parametrize("is_after", [False, True])
async def test_an_upload_that_dies_is_repeated_and_leaves_nothing(is_after: bool) -> None:
    kills_at = 0
    while True:
        kills_at += 1
        fuse = Fuse()
        storage = fused_storage(MovableClock(), fuse)
        fuse.set(kills_at, is_after=is_after)
        try:
            await manage_media.add(acting(storage, START), PHOTO, "a.jpg")
            break
        except Killed:
            fuse.set(-1)
        assert await settled(storage) <= 1
        await manage_media.add(acting(storage, START), PHOTO, "a.jpg")
        assert await settled(storage) == 1
    assert kills_at == 4  # two files, and both rows in one write


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_deletion_that_dies_leaves_a_whole_picture_or_none(is_after: bool) -> None:
    kills_at = 0
    while True:
        kills_at += 1
        fuse = Fuse()
        storage = fused_storage(MovableClock(), fuse)
        picture = await manage_media.add(acting(storage, START), PHOTO, "a.jpg")
        await media.note_message(storage.tables, "1", [picture.path])
        etag = (await media.read(storage.tables, picture.id)).etag
        fuse.set(kills_at, is_after=is_after)
        try:
            await media.delete(storage, picture, etag)
            break
        except Killed:
            fuse.set(-1)
        is_deleted = await media.find(storage.tables, picture.id) is None
        assert is_deleted == (kills_at > 1 or is_after)
        assert await settled(storage) == (0 if is_deleted else 1)
    assert kills_at == 5
    assert await settled(storage) == 0
