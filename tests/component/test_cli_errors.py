"""Every failure of a command is a sentence on standard error, an exit code, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from postroom.cli import exit_codes, session
from postroom.domain.errors import PostroomError
from postroom.storage.port import Conflict, StorageFull, Unavailable
from tests.component.typed import Postroom

MISSING_REF = "639303825826304650"


def write(name: str, content: bytes) -> str:
    Path(name).write_bytes(content)
    return name


REFUSED = [
    (["list", "show", "nowhere"], "no list nowhere"),
    (["list", "show", "a/b"], "cannot be a list name"),
    (["list", "create", "contoso1", "--from", "news@contoso.edu"], "already a list contoso1"),
    (["list", "create", "x", "--from", "nobody"], "no @"),
    (["list", "create", "x", "--from", "a@b.org", "--description", "a\nb"], "one line"),
    (["list", "create", "x", "--from", "a@b.org", "--postal-address", "a\nb"], "one line"),
    (["list", "delete", "contoso1"], "Delete contoso1 with 0 people.*--yes"),
    (["list", "delete", "nowhere", "--yes"], "no list nowhere"),
    (["subscriber", "add", "nowhere", "a@contoso.edu"], "no list nowhere"),
    (["subscriber", "add", "contoso1", "nobody"], "no @"),
    (["subscriber", "add", "contoso1", "a@contoso.edu", "--attribute", "x"], "name=value"),
    (["subscriber", "add", "contoso1", "a@contoso.edu", "--attribute", "X=1"], "lower-case"),
    (["subscriber", "show", "contoso1", "a@contoso.edu"], "never been on contoso1"),
    (["subscriber", "remove", "contoso1", "a@contoso.edu"], "not on contoso1"),
    (["subscriber", "export", "nowhere"], "no list nowhere"),
    (["subscriber", "export", "contoso1", "no/such/folder.csv"], "cannot be written"),
    (["subscriber", "import", "contoso1", "missing.csv", "--dry-run"], "cannot be read"),
    (["subscriber", "import", "contoso1", ".", "--dry-run"], "cannot be read"),
    (["subscriber", "import", "contoso1", "x.csv", "--column", "email"], "email=Mail"),
    (["message", "show", MISSING_REF], "no message"),
    (["message", "show", "first"], "not a message ref"),
    (["message", "show", "²"], "not a message ref"),
    (["message", "show", "9" * 600], "not a message ref"),
    (["message", "pause", MISSING_REF], "no message"),
    (["message", "people", MISSING_REF], "no message"),
    (["message", "people", MISSING_REF, "--outcome", "lost"], "not an outcome"),
    (["message", "create", "--list", "contoso1", "--subject", "s"], "no body"),
    (
        ["message", "create", "--list", "contoso1", "--subject", "s", "--html", "x"],
        "cannot be read",
    ),
    (["storage", "rows", "nothing"], "no table nothing"),
    (["storage", "rows", "message", "--partition", "a/b"], "cannot be stored"),
    (["storage", "row", "message", "a", "b"], "no row"),
    (["storage", "delete-row", "message", "a", "b", "--yes"], "no row"),
    (["storage", "peek", "nothing"], "no queue nothing"),
    (["storage", "blob", "nothing"], "no blob nothing"),
    (["storage", "blob", "a\\b"], "cannot be stored"),
]


@pytest.mark.parametrize(("arguments", "complaint"), REFUSED, ids=lambda each: str(each)[:50])
def test_what_cannot_be_done_is_refused_in_a_sentence(
    contoso1: Postroom, arguments: list[str], complaint: str
) -> None:
    ran = contoso1(*arguments, "--json")
    assert (ran.code, ran.out) == (exit_codes.REFUSED, "")
    assert re.search(complaint, ran.err)
    assert len(ran.err.splitlines()) == 1


WRONG_USAGE = [
    ["nonsense"],
    ["list", "create"],
    ["list", "create", "x"],
    ["list", "show", "x", "--colour"],
    ["storage", "rows", "message", "--limit", "0"],
    ["storage", "rows", "message", "--limit", "many"],
    ["message", "create", "--list", "x", "--subject", "s", "--on-doubt", "pray"],
    ["subscriber", "import", "x", "people.csv", "--verified", "--ask"],
    ["subscriber", "import", "x", "people.csv", "--existing", "burn"],
    ["subscriber", "import", "x", "people.csv", "--basis", "x" * 400],
    ["subscriber", "ask", "x"],
    ["subscriber", "ask", "x", "ada@contoso.edu", "--all"],
]


@pytest.mark.parametrize("arguments", WRONG_USAGE, ids=" ".join)
def test_a_wrong_command_points_to_its_help(postroom: Postroom, arguments: list[str]) -> None:
    ran = postroom(*arguments)
    assert (ran.code, ran.out) == (exit_codes.USAGE, "")
    assert "--help”" in ran.err
    assert "Traceback" not in ran.err


def test_all_wrong_settings_are_reported_at_once(
    postroom: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_LANES", "none")
    monkeypatch.setenv("POSTROOM_BIND", "nowhere")
    ran = postroom("list", "all")
    assert (ran.code, ran.out) == (exit_codes.USAGE, "")
    assert "POSTROOM_LANES" in ran.err
    assert "POSTROOM_BIND" in ran.err


def test_a_storage_of_another_kind_is_a_wrong_setting(
    postroom: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_STORAGE", "mysql://root:word@localhost")
    ran = postroom("list", "all")
    assert ran.code == exit_codes.USAGE
    assert "word" not in ran.err


def test_a_file_that_is_no_database_is_reported(
    postroom: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("notes.db", b"not a database, but long enough to look like one" * 100)
    monkeypatch.setenv("POSTROOM_STORAGE", "sqlite:///notes.db")
    ran = postroom("list", "all", "--json")
    assert (ran.code, ran.out) == (exit_codes.STORAGE, "")
    assert "not a database" in ran.err


def test_a_data_folder_that_cannot_be_made_is_reported(
    postroom: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("data", b"a file")
    ran = postroom("list", "create", "contoso1", "--from", "news@contoso.edu")
    assert ran.code == exit_codes.STORAGE
    assert "cannot be created" in ran.err


BODIES = [
    (b"\xff\xfe\x00broken", "not UTF-8"),
    (b"a\0b", "not text"),
    (b"Hello {{ name", "forgotten|closed|}}"),
    (b"x" * (2 * 1024 * 1024 + 1), "larger"),
]


@pytest.mark.parametrize(("content", "complaint"), BODIES, ids=["utf", "null", "template", "size"])
def test_a_body_that_cannot_be_mailed_is_reported(
    contoso1: Postroom, content: bytes, complaint: str
) -> None:
    body = write("body.txt", content)
    ran = contoso1("message", "create", "--list", "contoso1", "--subject", "s", "--text", body)
    assert (ran.code, ran.out) == (exit_codes.REFUSED, "")
    assert re.search(complaint, ran.err)


@pytest.mark.parametrize(
    ("time", "complaint"),
    [
        (["--at", "tomorrow"], "2026-11-20T09:00"),
        (["--at", "2120-01-01 09:00"], "has no time zone"),
        (["--at", "2120-01-01 09:00", "--zone", "Mars"], "no time zone"),
        (["--at", "2020-01-01T09:00Z"], "in the past"),
    ],
)
def test_a_time_that_cannot_be_meant_is_reported(
    contoso1: Postroom, time: list[str], complaint: str
) -> None:
    body = write("body.txt", b"Hello")
    arguments = ["--list", "contoso1", "--subject", "s", "--text", body, *time]
    ran = contoso1("message", "create", *arguments)
    assert (ran.code, ran.out) == (exit_codes.REFUSED, "")
    assert complaint in ran.err
    assert json.loads(contoso1("message", "all", "--json").out) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"PK\x03\x04 and so on", "is a spreadsheet"),
        (b"\x89PNG\0\0", "is not a text file"),
        (b"", "is empty"),
        (b"name,city\nAda,Ulm\n", "--column email=NAME"),
    ],
)
def test_a_file_that_is_no_list_of_people_is_reported(
    contoso1: Postroom, content: bytes, complaint: str
) -> None:
    file = write("people.csv", content)
    ran = contoso1("subscriber", "import", "contoso1", file, "--verified", "--json")
    assert (ran.code, ran.out) == (exit_codes.REFUSED, "")
    assert complaint in ran.err


def test_people_who_unsubscribed_are_added_again_only_on_request(contoso1: Postroom) -> None:
    ada = ("contoso1", "ada@contoso.edu")
    assert contoso1("subscriber", "add", *ada).code == 0
    assert "already" in contoso1("subscriber", "add", *ada).err
    assert contoso1("subscriber", "remove", *ada).code == 0
    assert "--bring-back" in contoso1("subscriber", "add", *ada).err
    assert contoso1("subscriber", "add", *ada, "--bring-back", "--verified").code == 0
    shown = json.loads(contoso1("subscriber", "show", *ada, "--json").out)
    assert shown["subscription"] == "verified"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (PostroomError("No."), exit_codes.REFUSED, "No."),
        (Conflict("etag"), exit_codes.REFUSED, "Try again"),
        (Unavailable("It is locked."), exit_codes.STORAGE, "It is locked."),
        (StorageFull("There is no room."), exit_codes.STORAGE, "There is no room."),
        (ZeroDivisionError("by zero"), exit_codes.BUG, "A bug in Postroom"),
        (KeyboardInterrupt(), exit_codes.INTERRUPTED, ""),
    ],
)
def test_every_kind_of_failure_has_its_exit_code(
    postroom: Postroom,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    words: str,
) -> None:
    def fail(_: object) -> object:
        raise error

    monkeypatch.setattr("postroom.cli.session.work", fail)
    ran = postroom("list", "all")
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_a_bug_shows_where_when_asked(postroom: Postroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "load_settings", lambda: 1 / 0)
    monkeypatch.setenv("POSTROOM_LOG_LEVEL", "debug")
    ran = postroom("list", "all")
    assert ran.code == exit_codes.BUG
    assert "Traceback" in ran.err


def test_the_help_tells_the_exit_codes(postroom: Postroom) -> None:
    ran = postroom("--help")
    assert ran.code == exit_codes.OK
    assert "Exit codes: 0 done" in ran.out
