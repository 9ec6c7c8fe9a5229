"""POSTROOM_BOUNCE_MAILBOX: checked at start, examined by the doctor, its password never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postroom.settings import load
from postroom.wiring import check
from postroom.wiring.mailboxes import mailbox_of
from postroom_bench.ports import held_port
from tests.component.typed import Postroom

SETTING = "POSTROOM_BOUNCE_MAILBOX"


def finding(ran: Any) -> dict[str, str]:
    (found,) = [each for each in json.loads(ran.out) if each["about"] == "mailbox"]
    return dict(found)


@pytest.mark.parametrize(
    "address",
    [
        "pop3://b:s3cret@mail.contoso.edu",
        "imap://b:s3cret@mail.contoso.edu?tls=none",
        "imap://b:s3cret@mail.contoso.edu?processed=maybe",
        "maildir:relative/path",
        "directory:",
        "s3cret",
    ],
)
def test_a_wrong_address_is_refused_at_the_start(address: str) -> None:
    settings = load({SETTING: address}, Path("/nonexistent.toml"))
    (mistake,) = check(settings)
    assert mistake.startswith(f"{SETTING}: ")
    assert "s3cret" not in mistake
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("address", "description"),
    [
        (
            "imap://bounces:s3cret@mail.contoso.edu/Bounces",
            "the IMAP folder Bounces of bounces on mail.contoso.edu:993",
        ),
        ("maildir:/var/mail/bounces?processed=delete", "the Maildir /var/mail/bounces"),
        ("directory:/var/bounces", "the folder /var/bounces"),
    ],
)
def test_a_mailbox_is_described_without_its_password(address: str, description: str) -> None:
    settings = load({SETTING: address}, Path("/nonexistent.toml"))
    assert check(settings) == []
    entry = mailbox_of(settings)
    assert entry
    assert entry.description == description


def test_without_an_address_there_is_no_mailbox() -> None:
    assert mailbox_of(load({}, Path("/nonexistent.toml"))) is None


def test_the_doctor_reads_a_folder(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "bounces"
    monkeypatch.setenv(SETTING, f"directory:{folder}")
    wrong = finding(contoso1("doctor", "--json"))
    assert wrong["verdict"] == "wrong"
    assert "no such file or directory" in wrong["words"]
    folder.mkdir()
    right = finding(contoso1("doctor", "--json"))
    assert right["verdict"] == "right"
    assert right["words"] == f"the folder {folder} can be read; 0 emails are waiting"


def test_the_doctor_says_why_a_server_cannot_be_reached(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_port() as port:
        monkeypatch.setenv(SETTING, f"imap://b:s3cret@127.0.0.1:{port}?tls=none")
        ran = contoso1("doctor", "--json")
    assert finding(ran)["verdict"] == "wrong"
    assert "Cannot connect to the mail server" in finding(ran)["words"]
    assert "s3cret" not in ran.out
    assert f"the IMAP folder INBOX of b on 127.0.0.1:{port}" in ran.out
