"""`postroom backup` and `postroom restore`, as people type them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from postroom.clock import WallClock
from postroom.records.names import STORAGE_NAMES
from postroom.storage.sqlite.storage import SqliteStorage
from tests.component.typed import Postroom

NEW = "sqlite:///new.db"


def test_a_backup_is_made_verified_and_restored(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    contoso1("subscriber", "add", "contoso1", "a@contoso.edu", "--verified")
    made = contoso1("backup", "today.backup")
    assert made.code == 0
    assert re.match(r"today\.backup: [\d,]+ entries, [\d,]+ bytes\.\n", made.out)
    verified = contoso1("backup", "verify", "today.backup")
    assert (verified.code, verified.out.splitlines()[-1]) == (
        0,
        "The backup is complete and undamaged.",
    )
    refused = contoso1("restore", "today.backup")
    assert refused.code == 1
    assert re.search(r"is not empty.*Set POSTROOM_STORAGE to a new file", refused.err)
    monkeypatch.setenv("POSTROOM_STORAGE", NEW)
    restored = contoso1("restore", "today.backup")
    assert restored.code == 0
    assert "Anything that happened after the backup is missing" in restored.out
    assert "a@contoso.edu" in contoso1("subscriber", "export", "contoso1").out


def test_a_folder_gets_a_name_with_the_time(contoso1: Postroom) -> None:
    Path("backups").mkdir()
    made = contoso1("backup", "backups", "--json").json
    assert re.fullmatch(r"backups/postroom-\d{8}T\d{6}Z\.postroom-backup", made["file"])
    assert made["snapshot"]
    verified = contoso1("backup", "verify", made["file"], "--json").json
    assert verified["whole"]
    assert verified["parts"] == made["parts"]


def test_a_missing_folder_is_not_created(contoso1: Postroom) -> None:
    made = contoso1("backup", "nowhere/today.backup")
    assert made.code == 1
    assert "There is no folder nowhere" in made.err


def test_a_damaged_backup_is_reported_and_not_restored(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    contoso1("backup", "today.backup")
    content = bytearray(Path("today.backup").read_bytes())
    at = content.index(b"news@contoso")
    content[at : at + 5] = b"other"
    Path("today.backup").write_bytes(content)
    verified = contoso1("backup", "verify", "today.backup")
    assert verified.code == 1
    assert "Do not rely on this backup" in verified.err
    monkeypatch.setenv("POSTROOM_STORAGE", NEW)
    assert contoso1("restore", "today.backup").code == 1


def test_held_messages_are_named_with_what_to_do(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    contoso1("subscriber", "add", "contoso1", "a@contoso.edu", "--verified")
    Path("news.txt").write_text("News\n")
    ref = contoso1(
        "message",
        "create",
        "--list",
        "contoso1",
        "--subject",
        "News",
        "--text",
        "news.txt",
        "--at",
        "now",
        "--json",
    ).json["ref"]
    contoso1("backup", "today.backup")
    monkeypatch.setenv("POSTROOM_STORAGE", NEW)
    restored = contoso1("restore", "today.backup")
    assert f"Held: message {ref} “News”. Up to 1 people may have received it" in restored.out
    assert "on hold" in contoso1("message", "show", ref).out
    assert contoso1("message", "resume", ref).code == 0
    assert "on hold" not in contoso1("message", "show", ref).out


def test_a_newer_format_stops_every_command_and_nothing_is_changed(contoso1: Postroom) -> None:
    async def upgrade() -> None:
        storage = await SqliteStorage.open(Path("data/postroom.db"), WallClock(), STORAGE_NAMES)
        newer = {"Format": 1, "StorageFormat": 2}
        await storage.tables.upsert("service", "format", "storage", newer)
        await storage.close()

    asyncio.run(upgrade())
    before = Path("data/postroom.db").read_bytes()
    for command in (("list", "all"), ("drain",), ("backup", "today.backup")):
        refused = contoso1(*command)
        assert refused.code == 3, command
        assert "used by a newer Postroom (format 2; this one supports 1)" in refused.err
    assert Path("data/postroom.db").read_bytes() == before
