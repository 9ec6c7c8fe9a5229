"""`postroom audit`: commands leave entries with user and host, and it shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.component.typed import Postroom


def test_a_command_leaves_an_entry_with_user_and_host(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ops")
    monkeypatch.setattr("platform.node", lambda: "mailhost")
    assert contoso1("limit", "set", "--mails-per-second", "5").code == 0
    newest, oldest = contoso1("audit", "--json").json
    assert (newest["actor_kind"], newest["actor"]) == ("command_line", "ops@mailhost")
    assert (newest["kind"], newest["action"], newest["outcome"]) == ("limit", "change", "done")
    assert newest["after"] == "limit: 5 a second"
    assert (oldest["kind"], oldest["name"]) == ("list", "contoso1")


def test_filters_and_a_file(contoso1: Postroom, tmp_path: Path) -> None:
    assert contoso1("subscriber", "add", "contoso1", "ada@contoso.edu").code == 0
    assert len(contoso1("audit", "--kind", "subscriber", "--since", "1h", "--json").json) == 1
    assert len(contoso1("audit", "--text", "ada@contoso.edu", "--json").json) == 1
    assert contoso1("audit", "--before", "2020-01-01", "--json").json == []
    assert contoso1("audit", "--since", "soon").code == 1
    shown = contoso1("audit", "--limit", "1").out
    assert "subscriber contoso1 a•••@contoso.edu: created" in shown
    file = tmp_path / "audit.csv"
    assert contoso1("audit", "--csv", str(file)).code == 0
    assert len(file.read_text().splitlines()) == 3


def test_a_refused_command_is_recorded_as_refused(contoso1: Postroom) -> None:
    assert contoso1("limit", "clear").code == 1
    [entry, _created] = contoso1("audit", "--json").json
    assert (entry["action"], entry["outcome"]) == ("clear", "refused")
