"""What every engine promises about blobs. One test, one promise; no engine is named in here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from postroom.storage.port import Blobs
from tests.contract.engines import PAGES_MAX


async def all_names(blobs: Blobs, prefix: str = "") -> list[str]:
    names: list[str] = []
    after = None
    for _ in range(PAGES_MAX):
        page, after = await blobs.list(prefix, after=after)
        names += page
        if after is None:
            return names
    raise AssertionError("the list does not end")


@pytest.mark.parametrize("content", [b"", b"\x00\xff\r\n", bytes(range(256)) * 8192], ids=len)
async def test_a_blob_is_read_as_it_was_written(blobs: Blobs, content: bytes) -> None:
    await blobs.put("634852858215726983.htm", content)
    assert await blobs.get("634852858215726983.htm") == content


async def test_an_absent_blob_is_none(blobs: Blobs) -> None:
    await blobs.put("a.htm", b"x")
    assert await blobs.get("a.txt") is None


async def test_a_blob_is_replaced_whole(blobs: Blobs) -> None:
    await blobs.put("a.htm", b"a long first version")
    await blobs.put("a.htm", b"short")
    assert await blobs.get("a.htm") == b"short"
    assert await all_names(blobs) == ["a.htm"]


async def test_what_the_caller_does_to_its_buffer_later_changes_nothing(blobs: Blobs) -> None:
    mine: Any = bytearray(b"first")
    await blobs.put("a.htm", mine)
    mine[:] = b"later"
    assert await blobs.get("a.htm") == b"first"


async def test_a_deleted_blob_is_gone(blobs: Blobs) -> None:
    await blobs.put("a.htm", b"x")
    await blobs.delete("a.htm")
    assert await blobs.get("a.htm") is None
    assert await all_names(blobs) == []


async def test_deleting_an_absent_blob_is_fine(blobs: Blobs) -> None:
    await blobs.delete("a.htm")


async def test_names_are_listed_in_order_by_prefix(blobs: Blobs) -> None:
    for name in ("b/2.txt", "b/1.htm", "b", "a/1.htm", "b0", "c", "b/~", "B/1.htm"):
        await blobs.put(name, b"x")
    assert await all_names(blobs, "b/") == ["b/1.htm", "b/2.txt", "b/~"]
    assert await all_names(blobs, "b") == ["b", "b/1.htm", "b/2.txt", "b/~", "b0"]
    assert await all_names(blobs, "x") == []
    assert len(await all_names(blobs)) == 8


async def test_a_long_list_comes_in_pages(blobs: Blobs, blob_page_names: int) -> None:
    names = [f"{n:04}.htm" for n in range(blob_page_names + 3)]
    await asyncio.gather(*(blobs.put(name, b"x") for name in names))
    page, after = await blobs.list()
    assert after is not None
    assert len(page) < len(names)
    assert await all_names(blobs) == names


async def test_blobs_deleted_while_listing_do_not_hide_others(
    blobs: Blobs, blob_page_names: int
) -> None:
    names = [f"{n:04}.htm" for n in range(blob_page_names + 3)]
    await asyncio.gather(*(blobs.put(name, b"x") for name in names))
    page, after = await blobs.list()
    await asyncio.gather(*(blobs.delete(name) for name in page))
    assert after is not None
    rest, _ = await blobs.list(after=after)
    assert rest[0] == names[len(page)]
