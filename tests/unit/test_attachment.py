"""Attachments: names that every program can save, safe types, and limits with a sentence."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.attachment import (
    ATTACHED_BYTES_MAX,
    FILES_MAX,
    Attachment,
    NewFile,
    clean_name,
    encoded_bytes,
    media_type_of,
    new_attachment,
)
from postroom.domain.errors import BadInput

CPU_S_MAX = 1  # usually a millisecond
PDF = Attachment("1", "plan.pdf", "application/pdf", 1000, "")


@pytest.mark.parametrize(
    ("typed", "cleaned"),
    [
        ("plan.pdf", "plan.pdf"),
        (r"C:\Users\ada\plan.pdf", "plan.pdf"),
        ("../../etc/passwd.txt", "passwd.txt"),
        ('what? "is" <this>: a|b*.txt', "what_ _is_ _this__ a_b_.txt"),
        ("  two   words .pdf. . ", "two words .pdf"),
        ("U\u0308bersicht.pdf", "Übersicht.pdf"),
        ("nul.txt", "_nul.txt"),
        ("README", "README"),
    ],
)
def test_a_file_name_is_cleaned(typed: str, cleaned: str) -> None:
    assert clean_name(typed) == cleaned


@pytest.mark.parametrize(
    "typed", ["", "/", "...", "a\r\nb.pdf", "a\0.pdf", "fdp.\u202eexe.pdf", "\ud800.pdf", "x" * 121]
)
def test_a_name_that_cannot_be_used_is_refused(typed: str) -> None:
    with pytest.raises(BadInput):
        clean_name(typed)


def test_a_name_of_many_accents_is_refused_before_it_is_composed() -> None:
    """Which would take five seconds, and hours for a name as long as a call may be."""
    began_at = time.process_time()
    with pytest.raises(BadInput, match="longer than"):
        clean_name("a" + "\u0301\u0323" * 50_000)
    assert time.process_time() - began_at < CPU_S_MAX


@pytest.mark.parametrize("typed", ["setup.exe", "a.pdf.JS", "run.bat. ", "x.ps1", "page.hta"])
def test_programs_are_refused_with_the_reason(typed: str) -> None:
    with pytest.raises(BadInput, match="Gmail and Outlook block"):
        clean_name(typed)


def test_types_come_from_a_table_and_never_nest_emails() -> None:
    assert media_type_of("a.PDF") == "application/pdf"
    assert media_type_of("a.docx").endswith("wordprocessingml.document")
    assert media_type_of("a.ics") == "text/calendar"
    assert media_type_of("a.tar.gz") == "application/gzip"
    unknown = "application/octet-stream"
    assert [media_type_of(name) for name in ("a.eml", "a.mht", "a.xyz", "a", ".")] == [unknown] * 5


def test_the_limits_are_kept_with_a_sentence() -> None:
    with pytest.raises(BadInput, match="at most 10 attachments"):
        new_attachment(NewFile("a.pdf", b"x"), [PDF] * FILES_MAX)
    with pytest.raises(BadInput, match="is empty"):
        new_attachment(NewFile("a.pdf", b""), [])
    with pytest.raises(BadInput, match="together may be at most 10 MiB"):
        new_attachment(NewFile("a.pdf", b"x" * (ATTACHED_BYTES_MAX - 999)), [PDF])
    kept = new_attachment(NewFile("a.pdf", b"x" * (ATTACHED_BYTES_MAX - 1000)), [PDF])
    assert (kept.name, kept.bytes) == ("a.pdf", ATTACHED_BYTES_MAX - 1000)


def test_two_files_of_one_name_get_two_names() -> None:
    second = new_attachment(NewFile("Plan.pdf", b"x"), [PDF])
    third = new_attachment(NewFile("plan.pdf", b"x"), [PDF, second])
    assert [second.name, third.name] == ["Plan (2).pdf", "plan (3).pdf"]


@given(st.binary(min_size=1, max_size=400))
def test_the_encoded_size_is_exact(content: bytes) -> None:
    lines = base64.encodebytes(content).replace(b"\n", b"\r\n")
    assert encoded_bytes([new_attachment(NewFile("a.bin", content), [])]) == len(lines)


@pytest.mark.parametrize(
    "name",
    ["a.exe\u200b", "a.e\u2060xe", "a.exe\ufeff", "a.exe\ufe0f", "a.\uff45xe", "a.exe.\u200b"],
)
def test_signs_that_nobody_sees_do_not_hide_a_program(name: str) -> None:
    with pytest.raises(BadInput, match="block files"):
        clean_name(name)
