"""`postroom limit …`: what people type, and what scripts read."""

from __future__ import annotations

import pytest

from tests.component.typed import Postroom


def test_a_limit_is_set_shown_replaced_and_cleared(contoso1: Postroom) -> None:
    assert contoso1("limit", "show", "--json").json == []
    contoso1("limit", "set", "--mails-per-second", "500", "--connections", "8")
    told = contoso1("limit", "set", "--domain", "Contoso.EDU", "--mails-per-second", "20").out
    assert told.startswith("Emails to contoso.edu: 20 a second. Senders apply")
    shown = contoso1("limit", "show", "--json").json
    whole, domain = shown
    assert whole["name"] == "transport"
    assert (whole["mails_per_second"], whole["connections"], whole["senders"]) == (500, 8, 0)
    assert (domain["name"], domain["connections"]) == ("contoso.edu", None)
    contoso1("limit", "set", "--connections", "2")
    assert "All emails: 2 connections" in contoso1("limit", "show").out
    contoso1("limit", "clear")
    assert "All emails" not in contoso1("limit", "show").out
    assert "contoso.edu" in contoso1("limit", "show").out


def test_without_a_limit_people_are_told_so(contoso1: Postroom) -> None:
    ran = contoso1("limit", "show")
    assert (ran.code, ran.out) == (0, "")
    assert "no limit" in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set"], "Enter emails per second"),
        (["set", "--mails-per-second", "0"], "0.01"),
        (["set", "--connections", "0"], "from 1"),
        (["set", "--domain", "contoso", "--connections", "1"], "not a domain"),
        (["clear"], "no limit for all emails"),
        (["clear", "--domain", "contoso.edu"], "no limit for emails to contoso.edu"),
    ],
)
def test_what_cannot_be_done_is_reported_in_a_sentence(
    contoso1: Postroom, arguments: list[str], words: str
) -> None:
    ran = contoso1("limit", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err


def test_there_are_not_more_limits_than_one_batch_renews(contoso1: Postroom) -> None:
    for number in range(50):
        domain = f"d{number}.example"
        assert contoso1("limit", "set", "--domain", domain, "--connections", "1").code == 0
    ran = contoso1("limit", "set", "--connections", "1")
    assert (ran.code, ran.out) == (1, "")
    assert "Clear one first" in ran.err
