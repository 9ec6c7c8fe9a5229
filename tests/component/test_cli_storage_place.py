"""Which storage a command works with: it says where it looks, and creates nothing by accident."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.cli import exit_codes
from tests.component.typed import Postroom

READING = [
    ["list", "all"],
    ["list", "show", "contoso1"],
    ["list", "edit", "contoso1", "--description", "x"],
    ["list", "delete", "contoso1", "--yes"],
    ["user", "all"],
    ["user", "link", "ada@contoso.edu"],
    ["key", "all"],
    ["key", "create", "portal"],
    ["limit", "show"],
    ["limit", "set", "--mails-per-second", "5"],
    ["message", "all"],
    ["subscriber", "export", "contoso1"],
    ["storage", "queues"],
    ["drain"],
    ["scheduler"],
    ["sender"],
    ["doctor"],
]


def everything() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_command_in_the_wrong_folder_says_so_and_creates_nothing(
    postroom: Postroom, arguments: list[str]
) -> None:
    ran = postroom(*arguments)
    told = ran.out if arguments == ["doctor"] else ran.err
    where = Path("data/postroom.db").absolute()
    assert f"There is no Postroom storage at {where} (from the default)." in told
    assert "Set POSTROOM_STORAGE, or run the command in the folder where Postroom runs." in told
    expected = exit_codes.REFUSED if arguments == ["doctor"] else exit_codes.STORAGE
    assert ran.code == expected
    assert everything() == []


def test_the_refusal_says_where_the_setting_comes_from(
    postroom: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("postroom.toml").write_text('storage = "sqlite:///there.db"\n')
    assert f"(from {Path('postroom.toml').absolute()})" in postroom("list", "all").err
    monkeypatch.setenv("POSTROOM_STORAGE", "sqlite:///here.db")
    assert "here.db (from the environment)" in postroom("list", "all").err
    assert everything() == ["postroom.toml"]


def test_an_empty_file_is_no_storage(postroom: Postroom) -> None:
    Path("data").mkdir()
    Path("data/postroom.db").touch()
    ran = postroom("list", "all")
    assert (ran.code, "not a Postroom storage yet" in ran.err) == (exit_codes.STORAGE, True)
    assert Path("data/postroom.db").stat().st_size == 0


def test_a_list_may_be_the_first_thing_there_is(postroom: Postroom) -> None:
    first = postroom("list", "create", "contoso1", "--from", "news@contoso.edu")
    where = Path("data/postroom.db").absolute()
    assert first.out.startswith(f"Created a new storage at {where}.\n")
    second = postroom("list", "create", "contoso2", "--from", "news@contoso.edu")
    assert "storage" not in second.out


def test_a_storage_can_be_created_on_purpose(postroom: Postroom) -> None:
    where = str(Path("data/postroom.db").absolute())
    assert postroom("init", "--json").json == {"storage": where, "created": True}
    assert postroom("init", "--json").json == {"storage": where, "created": False}
    assert "is ready" in postroom("init").out
    assert postroom("list", "all").code == 0


def test_the_doctor_leaves_a_storage_as_it_is(contoso1: Postroom) -> None:
    before = everything()
    assert contoso1("doctor").code == 0
    assert everything() == before


def test_a_command_needs_no_data_folder(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_STORAGE", "sqlite:///data/postroom.db")
    monkeypatch.setenv("POSTROOM_DATA", "elsewhere")
    assert contoso1("list", "all").code == 0
    assert contoso1("doctor").code == 0
    assert not Path("elsewhere").exists()


def test_the_doctor_tells_where_each_setting_comes_from(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("postroom.toml").write_text("lanes = 9\nclaim_s = 50\n")
    Path("secret").write_text("smtp://ada:xyzzy@127.0.0.1:1\n")
    monkeypatch.setenv("POSTROOM_LANES", "7")
    monkeypatch.setenv("POSTROOM_TRANSPORT_FILE", "secret")
    ran = contoso1("doctor")
    toml = Path("postroom.toml").absolute()
    assert f"read from the environment, then {toml}, then defaults" in ran.out
    assert "POSTROOM_LANES = 7 (from the environment)" in ran.out
    assert f"POSTROOM_CLAIM_S = 50.0 (from {toml})" in ran.out
    assert "(from secret, named by POSTROOM_TRANSPORT_FILE)" in ran.out
    assert "POSTROOM_STORAGE" not in ran.out
    assert "xyzzy" not in ran.out


def test_a_wrong_setting_says_where_it_stands(postroom: Postroom) -> None:
    Path("postroom.toml").write_text("lanes = 0\n")
    ran = postroom("list", "all")
    assert ran.code == exit_codes.USAGE
    assert f"(from {Path('postroom.toml').absolute()})" in ran.err


# --- Rights -------------------------------------------------------------------------------------


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_what_is_created_is_for_its_owner_alone_whatever_the_umask(contoso1: Postroom) -> None:
    assert (mode("data"), mode("data/postroom.db")) == (0o700, 0o600)


def test_the_doctor_tells_what_others_may_read_and_changes_nothing(contoso1: Postroom) -> None:
    Path("data").chmod(0o755)
    Path("data/postroom.db").chmod(0o644)
    ran = contoso1("doctor")
    assert ran.code == 0
    assert f"chmod 700 {Path('data').absolute()}\n" in ran.out
    assert f"chmod 600 {Path('data/postroom.db').absolute()}\n" in ran.out
    assert contoso1("list", "all").code == 0
    assert (mode("data"), mode("data/postroom.db")) == (0o755, 0o644)


# --- The address --------------------------------------------------------------------------------


def test_the_doctor_tells_when_links_and_the_bound_address_do_not_fit(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_BIND", "0.0.0.0:8030")
    assert "Set POSTROOM_URL to the address people use" in contoso1("doctor").out


def test_an_account_link_follows_the_bound_address(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_BIND", "127.0.0.1:8030")
    made = contoso1("user", "link", "ada@contoso.edu", "--json").json
    assert made["link"].startswith("http://127.0.0.1:8030/admin/welcome/")


def test_the_version_is_printed(postroom: Postroom) -> None:
    ran = postroom("--version")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("postroom 0.")


# --- Lists that change --------------------------------------------------------------------------


def test_a_list_is_edited_by_what_is_named(contoso1: Postroom) -> None:
    more = ("--description", "Lectures", "--postal-address", "1 Road", "--public-form")
    edited = contoso1("list", "edit", "contoso1", *more, "--json").json
    assert edited["from"] == "news@contoso.edu"
    assert (edited["description"], edited["postal_address"]) == ("Lectures", "1 Road")
    assert edited["public_form"] is True
    again = contoso1("list", "edit", "contoso1", "--description", "", "--no-public-form", "--json")
    assert (again.json["description"], again.json["public_form"]) == ("", False)
    assert again.json["postal_address"] == "1 Road"
    assert contoso1("list", "edit", "contoso1").code == exit_codes.REFUSED
    assert contoso1("list", "edit", "contoso1", "--from", "x").code == exit_codes.REFUSED
    assert contoso1("list", "edit", "contoso9", "--from", "a@b.org").code == exit_codes.REFUSED
