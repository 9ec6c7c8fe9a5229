"""`postroom settings …` and `postroom instances`: what people type, and what scripts read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.component.typed import Postroom


def one(postroom: Postroom, name: str) -> dict[str, Any]:
    [shown] = postroom("settings", "show", name, "--json").json
    found: dict[str, Any] = shown
    return found


def test_a_setting_is_shown_changed_and_set_back(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_SENDERS_MAX", "4")
    before = one(contoso1, "senders_max")
    assert (before["value"], before["source"], before["live"]) == (4, "environment", True)
    told = contoso1("settings", "set", "POSTROOM_SENDERS_MAX", "8")
    assert told.out.startswith("POSTROOM_SENDERS_MAX = 8 (changed")
    changed = one(contoso1, "senders_max")
    assert (changed["value"], changed["source"], changed["without_change"]) == (8, "changed", 4)
    assert "command line" in contoso1("settings", "show", "senders_max").out
    assert contoso1("settings", "reset", "senders_max", "--json").json["value"] == 4
    assert one(contoso1, "senders_max") == before


def test_all_settings_are_listed_and_no_secret_is_shown(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_SENDGRID_KEY", "SG.very-secret")
    monkeypatch.setenv("POSTROOM_TRANSPORT", "smtp://user:hunter2@127.0.0.1:2525?tls=none")
    for arguments in (["show"], ["show", "--json"], ["show", "transport"]):
        printed = contoso1("settings", *arguments).out
        assert "127.0.0.1:2525" in printed
        assert "very-secret" not in printed
        assert "hunter2" not in printed
    assert one(contoso1, "sendgrid_key")["value"] is None
    assert one(contoso1, "lanes")["restart"] == ["sender"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "senders_max", "0"], "Enter 1 or more."),
        (["set", "senders_min", "64"], "more than the maximum"),
        (["set", "lanes", "9"], "restart: sender"),
        (["set", "log_level", "loud"], "must be debug, info, warning or error"),
        (["set", "unheard_of", "9"], "There is no setting unheard_of."),
        (["reset", "unheard_of"], "There is no setting unheard_of."),
    ],
)
def test_what_cannot_be_set_is_reported_in_a_sentence(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.setenv("POSTROOM_SENDERS_MAX", "4")
    ran = contoso1("settings", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err


def test_without_a_running_process_there_is_no_instance(contoso1: Postroom) -> None:
    assert contoso1("instances", "--json").json == []
    assert "Nothing is running." in contoso1("instances").err
