"""`postroom feedback explain` reads a mail or a folder, without storage and settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bounce_score
from tests.component.typed import Postroom

BOUNCE = (
    b"From: MAILER-DAEMON@contoso.edu\nSubject: failure notice\n"
    b"To: b+mzxw6ytboi4hq2lnkrsxg5caonqxe3df@bounce.northwind.example\n\n"
    b"<student9@contoso.edu>:\n550 5.1.1 User unknown\n"
)


def test_a_mail_is_one_object(postroom: Postroom) -> None:
    Path("bounce.eml").write_bytes(BOUNCE)
    typed = postroom("feedback", "explain", "bounce.eml", "--json")
    assert typed.code == 0
    assert json.loads(typed.out) == {
        "file": "bounce.eml",
        "kind": "bounced",
        "class": "dead",
        "reason": "no_such_user",
        "status": "5.1.1",
        "recipient": "student9@contoso.edu",
        "delivery": "mzxw6ytboi4hq2lnkrsxg5caonqxe3df",
        "words": "<student9@contoso.edu>: 550 5.1.1 User unknown",
    }
    assert not Path("data").exists()


def maildir() -> Path:
    folder = Path("Maildir")
    for name in ("cur/2:2,S", "cur/1:2,S", "new/3"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(BOUNCE if name != "new/3" else b"Subject: Hello\n\nHello!\n")
    (folder / "cur" / ".hidden").write_bytes(BOUNCE)
    return folder


def test_a_folder_is_read_in_the_order_of_names(postroom: Postroom) -> None:
    found = json.loads(postroom("feedback", "explain", str(maildir()), "--json").out)
    assert [(each["file"], each["kind"], each["class"]) for each in found] == [
        ("cur/1:2,S", "bounced", "dead"),
        ("cur/2:2,S", "bounced", "dead"),
        ("new/3", "none", "ignore"),
    ]


def test_people_get_a_table_and_a_total(postroom: Postroom) -> None:
    lines = postroom("feedback", "explain", str(maildir())).out.splitlines()
    assert lines[0].split() == [
        "dead",
        "no_such_user",
        "5.1.1",
        "student9@contoso.edu",
        "cur/1:2,S",
    ]
    assert lines[-1] == "2 dead, 1 ignore"
    Path("empty").mkdir()
    assert "no emails" in postroom("feedback", "explain", "empty").out
    assert json.loads(postroom("feedback", "explain", "empty", "--json").out) == []


def test_a_path_that_does_not_exist_is_refused(postroom: Postroom) -> None:
    typed = postroom("feedback", "explain", "nowhere.eml", "--json")
    assert (typed.code, typed.out) == (1, "")
    assert "There is no file or folder nowhere.eml." in typed.err


def test_the_score_counts_what_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.eml", "b.eml", "c.eml"):
        (tmp_path / name).write_bytes(BOUNCE)
    labels = "file\tclass\na.eml\tdead\nb.eml\ttemporary\nc.eml\tany\n"
    (tmp_path / "labels.tsv").write_text(labels, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["bounce_score.py", str(tmp_path), "--wrong"])
    assert bounce_score.main() == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["recognised", "3", "of", "3", "100.0", "%"] in lines
    assert ["class", "right", "2", "of", "3", "66.7", "%"] in lines
    assert ["called", "dead", "wrongly", "1", "of", "3", "33.3", "%"] in lines
    assert lines[-1][0] == "b.eml:"
