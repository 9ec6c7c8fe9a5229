"""`postroom migrate`: what it asks for, what it prints, and what it never shows."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

import pytest

from tests.component.typed import Postroom, Ran

KEY = "bm9ib2R5IG1heSBzZWUgdGhpcw=="
ACCOUNT = f"azure:DefaultEndpointsProtocol=http;AccountName=contoso;AccountKey={KEY};"
UNREACHABLE = ACCOUNT + "".join(
    f"{service}Endpoint=http://127.0.0.1:1/contoso;" for service in ("Blob", "Queue", "Table")
)
NEW = "sqlite:///new.db"


def test_everything_is_moved_and_the_old_storage_says_where_to(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    contoso1("subscriber", "add", "contoso1", "a@contoso.edu", "--verified")
    moved = contoso1("migrate", "--to", NEW)
    assert moved.code == 0
    assert re.search(r"mailinglist +(\d+) → +\1  [0-9a-f]{12}\n", moved.out)
    assert re.search(r"Everything is in .*new\.db\. Set POSTROOM_STORAGE to it", moved.out)
    closed = contoso1("list", "all")
    assert closed.code == 3
    assert re.search(r"was moved to .*new\.db\. Set POSTROOM_STORAGE", closed.err)
    monkeypatch.setenv("POSTROOM_STORAGE", NEW)
    assert "a@contoso.edu" in contoso1("subscriber", "export", "contoso1").out


def test_a_script_gets_every_count_and_checksum(contoso1: Postroom) -> None:
    moved = contoso1("migrate", "--to", NEW, "--json").json
    assert moved["equal"]
    assert moved["moved"]
    assert {part["name"] for part in moved["parts"]} >= {"mailinglist", "blobs", "azuremailqueue"}
    assert all(part["source_sum"] == part["target_sum"] for part in moved["parts"])
    again = contoso1("migrate", "--to", NEW, "--verify-only", "--json").json
    assert again["parts"] == moved["parts"]
    assert again["equal"]
    assert not again["moved"]


def test_differences_are_reported_and_are_a_failure(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("POSTROOM_STORAGE", NEW)
        assert contoso1("list", "create", "other", "--from", "a@contoso.edu").code == 0
    compared = contoso1("migrate", "--to", NEW, "--verify-only")
    assert compared.code == 1
    assert re.search(r"mailinglist .* differ, the first: -lists / contoso1", compared.out)
    assert "The two storages are not equal" in compared.err


def test_who_stays_after_all_opens_the_old_storage_again(contoso1: Postroom) -> None:
    contoso1("migrate", "--to", NEW)
    assert "is open" in contoso1("migrate", "--reopen").out
    assert contoso1("list", "all").code == 0
    again = contoso1("migrate", "--reopen")
    assert (again.code, again.err) == (1, "This storage is open. There is nothing to do.\n")


@pytest.mark.parametrize("way", ["env:ELSEWHERE", "file:elsewhere.txt"])
def test_an_address_need_not_be_typed(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("ELSEWHERE", NEW)
    Path("elsewhere.txt").write_text(f"{NEW}\n", encoding="utf-8")
    assert contoso1("migrate", "--to", way).code == 0
    assert Path("new.db").exists()


@pytest.mark.parametrize("option", [[], ["--verify-only"]])
def test_after_an_interruption_it_says_how_to_continue(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    if option:
        assert contoso1("migrate", "--to", NEW).code == 0
    monkeypatch.setattr("postroom.migration.comparison.PROGRESS_EVERY", 1)
    interrupt = asyncio.Event()
    interrupt.set()
    monkeypatch.setattr(
        "postroom.cli.migrate.interruptible", lambda: contextlib.nullcontext(interrupt)
    )
    ran = contoso1("migrate", "--to", NEW, *option)
    assert (ran.code, ran.out) == (130, "")
    assert "un the same command again" in ran.err


REFUSED = [
    (["migrate"], 1, "--to"),
    (["migrate", "--to", "env:NOWHERE_AT_ALL"], 1, "environment has no NOWHERE_AT_ALL"),
    (["migrate", "--to", "file:missing.txt"], 1, "missing.txt cannot be read"),
    (["migrate", "--to", "postgres://x"], 2, "--to: must be sqlite:///path.db, or azure:"),
    (["migrate", "--to", "azure:emulator", "--to-prefix", "A B"], 2, "--to: must be at most 20"),
    (["migrate", "--to", "sqlite:///nowhere/new.db"], 3, "no folder"),
    (["migrate", "--from", "sqlite:///typo.db", "--to", NEW], 1, "There is no storage at .*typo"),
    (["migrate", "--from", NEW, "--to", NEW], 1, "There is no storage"),
    (["migrate", "--to", "sqlite:///typo.db", "--verify-only"], 1, "There is no storage at .*typo"),
    (["migrate", "--to", "sqlite:///data/postroom.db"], 1, "the same storage"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), REFUSED)
def test_what_cannot_be_moved_is_refused_with_a_sentence(
    contoso1: Postroom, arguments: list[str], code: int, words: str
) -> None:
    ran = contoso1(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert re.search(words, ran.err)
    assert not Path("typo.db").exists()
    assert contoso1("list", "all").code == 0


@pytest.mark.parametrize("address", [UNREACHABLE, ACCOUNT[:-20] + "!", f"azuer:{KEY}"])
def test_a_key_is_never_shown(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr("postroom.storage.azure.retry.TRIES_MAX", 2)  # no need to wait a minute
    monkeypatch.setenv("ELSEWHERE", address)
    ran = contoso1("migrate", "--to", "env:ELSEWHERE")
    assert ran.code in (2, 3)
    assert_hidden(ran)


def assert_hidden(ran: Ran) -> None:
    assert KEY[:10] not in ran.out + ran.err
