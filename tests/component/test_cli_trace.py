"""`postroom trace`: what people type, and what scripts read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from postroom.cli.trace import parse_time
from postroom.domain.errors import BadInput
from tests.component.typed import Postroom

NOW = datetime(2026, 11, 18, 4, 0, tzinfo=UTC)


def test_what_a_role_did_is_shown_filtered_and_as_json(contoso1: Postroom) -> None:
    assert "No traces match." in contoso1("trace").err
    contoso1("subscriber", "add", "contoso1", "student1@contoso.edu")
    contoso1("drain")
    text = contoso1("trace", "--role", "drain").out
    assert "The drain role started" in text.splitlines()[0]
    assert "The drain role stopped." in text.splitlines()[-1]
    found = contoso1("trace", "--since", "1h", "--text", "role started", "--json").json
    assert [(one["event"], one["role"], one["level"]) for one in found] == [
        ("role_started", "drain", "info")
    ]
    assert contoso1("trace", "--level", "error", "--json").json == []
    assert contoso1("trace", "--person", "student1@contoso.edu", "--json").json == []
    assert contoso1("trace", "--limit", "1").out.count("\n") == 1
    assert contoso1("trace", "--until", "1h", "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "yesterday"], "is not a time"),
        (["--person", "nobody@contoso.edu"], "No list has a subscriber"),
        (["--level", "loud"], "loud"),
    ],
)
def test_a_wrong_filter_is_refused(contoso1: Postroom, arguments: list[str], words: str) -> None:
    ran = contoso1("trace", *arguments)
    assert ran.code in (1, 2)
    assert words in ran.err


def test_times_are_ago_or_exact() -> None:
    assert parse_time("", NOW) is None
    assert parse_time("90s", NOW) == NOW - timedelta(seconds=90)
    assert parse_time("7d", NOW) == NOW - timedelta(days=7)
    assert parse_time("2026-11-18T03:00", NOW) == NOW - timedelta(hours=1)
    assert parse_time("2026-11-18T05:00+01:00", NOW) == NOW
    with pytest.raises(BadInput):
        parse_time("1w", NOW)
