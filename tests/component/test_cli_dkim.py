"""`postroom dkim …`: keys are created, and their records printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.component.typed import Postroom


def test_a_created_key_comes_with_its_record_and_setting(postroom: Postroom) -> None:
    ran = postroom("dkim", "create", "--domain", "Contoso.edu")
    assert ran.code == 0
    path = Path("data/dkim/contoso.edu-s1.pem")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "   name       s1._domainkey.contoso.edu\n" in ran.out
    assert "   value      v=DKIM1; k=rsa; p=MII" in ran.out
    assert '3600 IN TXT ( "v=DKIM1' in ran.out
    assert f"POSTROOM_DKIM_KEYS=contoso.edu:s1:{path.absolute()}\n" in ran.out
    assert "PRIVATE" not in ran.out


def test_the_next_key_of_a_domain_comes_first_in_the_setting(
    postroom: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = postroom("dkim", "create", "--domain", "contoso.edu", "--json").json["setting"]
    monkeypatch.setenv(*first.split("=", 1))
    second = postroom("dkim", "create", "--domain", "contoso.edu", "--json").json
    assert second["selector"] == "s2"
    assert second["setting"].endswith("," + first.removeprefix("POSTROOM_DKIM_KEYS="))
    monkeypatch.setenv(*second["setting"].split("=", 1))
    shown = postroom("dkim", "show", "--json").json
    assert [key["selector"] for key in shown] == ["s2", "s1"]
    assert shown[0]["record"] == second["record"]
    assert postroom("dkim", "show", "--domain", "fabrikam.com").out == ""
    assert "in use" in postroom("dkim", "create", "--domain", "contoso.edu", "--selector", "s1").err


def test_an_ed25519_key_signs_only_beside_an_rsa_key(postroom: Postroom) -> None:
    ran = postroom("dkim", "create", "--domain", "contoso.edu", "--ed25519", "--file", "e.pem")
    assert ran.code == 0
    assert "e1._domainkey.contoso.edu" in ran.out
    assert "v=DKIM1; k=ed25519; p=" in ran.out
    assert "Create an RSA key too" in ran.err


def test_an_existing_file_is_never_overwritten(postroom: Postroom) -> None:
    Path("key.pem").write_text("mine")
    ran = postroom("dkim", "create", "--domain", "contoso.edu", "--file", "key.pem")
    assert ran.code == 1
    assert "already exists" in ran.err
    assert Path("key.pem").read_text() == "mine"


def test_the_doctor_reads_the_keys(postroom: Postroom, monkeypatch: pytest.MonkeyPatch) -> None:
    assert postroom("init").code == 0
    created = postroom("dkim", "create", "--domain", "contoso.edu", "--json").json
    monkeypatch.setenv(*created["setting"].split("=", 1))
    assert "right  dkim keys     emails from contoso.edu are signed" in postroom("doctor").out
    Path(created["file"]).chmod(0o644)
    assert f"chmod 600 {created['file']}" in postroom("doctor").out
    Path(created["file"]).write_text("nothing")
    ran = postroom("doctor")
    assert ran.code == 1
    assert "wrong  dkim keys     POSTROOM_DKIM_KEYS: " in ran.out
