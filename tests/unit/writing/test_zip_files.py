"""Zips as people and as attackers make them: read, or refused with a sentence."""

from __future__ import annotations

import contextlib
import io
import stat
import struct
import zipfile
import zlib

import pytest

from postroom.domain.errors import BadInput
from postroom.writing import zip_files
from postroom.writing.zip_files import ENTRIES_MAX, ENTRY_BYTES_MAX, RATIO_MAX, ZipFiles

PAGE = b"<p>Hello</p>"


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def refused(content: bytes) -> str:
    with pytest.raises(BadInput) as told:
        read_all(content)
    return str(told.value)


def read_all(content: bytes) -> None:
    found = ZipFiles(content)
    for name in found.names:
        found.read(name)


def test_files_are_found_in_capitals_or_not_and_read() -> None:
    found = ZipFiles(
        packed(
            {"a/index.html": PAGE, "a/Images/Ä.PNG": b"x", "__MACOSX/a": b"", "a/.DS_Store": b""}
        )
    )
    assert found.names == ["a/index.html", "a/Images/Ä.PNG"]
    assert found.read("a/index.html") == PAGE
    assert found.find("a/images/ä.png") == "a/Images/Ä.PNG"
    assert found.find("b") is None


def test_an_empty_zip_is_refused() -> None:
    assert "empty" in refused(packed({}))
    commented = io.BytesIO()
    with zipfile.ZipFile(commented, "w") as archive:
        archive.writestr("a.html", PAGE)
        archive.comment = packed({})  # readers that search from the end find no files
    assert "empty" in refused(commented.getvalue())


def test_names_in_utf_8_that_do_not_say_so_are_read() -> None:
    """As the zip folders of older systems write them."""
    content = packed({"bild-ae.png": b"x"}).replace(b"bild-ae.png", "bild-ä.png".encode())
    assert ZipFiles(content).names == ["bild-ä.png"]


@pytest.mark.parametrize("name", ["../evil.html", "a/../../evil.html", "/etc/passwd", "C:/x.html"])
def test_a_name_that_leads_out_of_the_zip_is_refused(name: str) -> None:
    assert "outside the zip" in refused(packed({"index.html": PAGE, name: b"x"}))


def test_a_name_with_backslashes_is_a_path() -> None:
    content = packed({"images/a.png": b"x"}).replace(b"images/a.png", b"images\\a.png")
    assert ZipFiles(content).names == ["images/a.png"]
    slip = packed({"../a.png": b"x"}).replace(b"../a.png", b"..\\a.png")
    assert "outside the zip" in refused(slip)


def test_a_symbolic_link_is_refused() -> None:
    link = zipfile.ZipInfo("index.html")
    link.create_system = 3
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "is a link" in refused(target.getvalue())


def test_an_encrypted_zip_is_refused() -> None:
    content = bytearray(packed({"index.html": PAGE}))
    content[6] |= 1  # the flags of the file itself
    content[content.find(b"PK\x01\x02") + 8] |= 1  # and of its entry in the list
    assert "encrypted" in refused(bytes(content))


def test_a_name_that_is_there_twice_is_refused() -> None:
    content = packed({"index.html": PAGE, "inde2.html": b"other"})
    assert "twice" in refused(content.replace(b"inde2.html", b"index.html"))


def test_a_file_that_unpacks_to_far_more_is_refused() -> None:
    bomb = packed({"index.html": bytes(4 * 1024 * 1024)})
    assert len(bomb) < 10_000
    assert f"over {RATIO_MAX} times" in refused(bomb)


def test_a_file_and_all_files_together_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed({"a": b"x" * 1000, "b": b"y" * 1000})
    monkeypatch.setattr(zip_files, "ENTRY_BYTES_MAX", 999)
    assert "“a” is larger than" in refused(content)
    monkeypatch.setattr(zip_files, "ENTRY_BYTES_MAX", ENTRY_BYTES_MAX)
    monkeypatch.setattr(zip_files, "TOTAL_BYTES_MAX", 1999)
    assert "Unpacked, the zip would be larger than" in refused(content)
    monkeypatch.setattr(zip_files, "ZIP_BYTES_MAX", 10)
    assert "The zip is larger than" in refused(content)


def test_too_many_files_are_refused_before_their_list_is_read() -> None:
    content = packed({f"{number}.txt": b"" for number in range(ENTRIES_MAX + 1)})
    assert f"more than {ENTRIES_MAX} files" in refused(content)
    # The record at the end says one file, but its list is as long as before.
    lying = bytearray(packed({f"{'x' * 200}{number}": b"" for number in range(3000)}))
    struct.pack_into("<HH", lying, lying.rfind(b"PK\x05\x06") + 8, 1, 1)
    assert f"more than {ENTRIES_MAX} files" in refused(bytes(lying))


def test_a_zip_for_very_large_archives_is_refused() -> None:
    plain = packed({"index.html": PAGE})
    end = plain.rfind(b"PK\x05\x06")
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 1)
    assert "files" in refused(plain[:end] + locator + plain[end:])


def overlapping(copies: int) -> bytes:
    """As the bombs without recursion are made: many entries, one compressed file for all."""
    data = zlib.compress(bytes(200_000), 9)[2:-4]
    crc = zlib.crc32(bytes(200_000))
    fields = (20, 0, 8, 0, 0, crc, len(data), 200_000)
    local = struct.pack("<4s5H3LHH", b"PK\x03\x04", *fields, 1, 0) + b"a" + data
    entries = b"".join(
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, *fields, 1, 0, 0, 0, 0, 0, 0) + name
        for name in (bytes([97 + number]) for number in range(copies))
    )
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, copies, copies, len(entries), len(local), 0)
    return local + entries + end


def test_entries_that_share_their_bytes_are_refused() -> None:
    assert ZipFiles(overlapping(1)).read("a") == bytes(200_000)
    assert "overlap" in refused(overlapping(5))


def test_an_archive_within_the_archive_is_never_opened() -> None:
    """As in 42.zip: every level holds more of them."""
    content = packed({"x.html": PAGE})
    for _level in range(5):
        content = packed({f"{number}.zip": content for number in range(4)} | {"index.html": PAGE})
    found = ZipFiles(content)
    assert found.names == ["index.html"]
    assert found.archives == ["0.zip", "1.zip", "2.zip", "3.zip"]


def quine() -> bytes:
    """A zip that contains itself: one stored entry whose bytes are claimed to be the whole file."""
    local = struct.pack("<4s5H3LHH", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, 6, 0) + b"r.html"
    size = len(local) + 46 + 6 + 22
    fields = (20, 0, 0, 0, 0, 0, size, size)
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, *fields, 6, 0, 0, 0, 0, 0, 0) + b"r.html"
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(entry), len(local), 0)
    return local + entry + end


def test_a_zip_that_contains_itself_is_refused() -> None:
    assert "overlap" in refused(quine())
    assert "no" not in ZipFiles(packed({"r.zip": quine()})).names


def test_a_file_that_is_not_as_long_as_it_says_is_refused() -> None:
    for shown in (5, 50_000):
        content = bytearray(packed({"a": b"x" * 1000}))
        struct.pack_into("<L", content, content.find(b"PK\x01\x02") + 24, shown)
        assert "damaged" in refused(bytes(content))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_rare_ways_to_pack_are_refused(method: int) -> None:
    assert "uncommon method" in refused(packed({"index.html": PAGE}, method))


def test_a_damaged_zip_is_refused_wherever_it_is_damaged() -> None:
    whole = packed({"index.html": PAGE * 50, "a.png": b"x" * 300})
    for at in range(0, len(whole), 3):
        for damaged in (whole[:at], whole[:at] + b"\xff" + whole[at + 1 :]):
            with contextlib.suppress(BadInput):  # nothing else is raised
                read_all(damaged)
