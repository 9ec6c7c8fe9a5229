"""Tokens: each is valid for one secret, one purpose, one list and one person."""

from __future__ import annotations

import re

import pytest

from postroom.domain.token import is_signed, new_guid, new_secret, sign

SECRET = new_secret()
TOKEN = sign(SECRET, "confirm", "contoso1", "guid")


def test_a_token_is_recognized() -> None:
    assert is_signed(TOKEN, SECRET, "confirm", "contoso1", "guid")
    assert sign(SECRET, "confirm", "contoso1", "guid") == TOKEN


@pytest.mark.parametrize(
    ("purpose", "parts"),
    [
        ("leave", ("contoso1", "guid")),
        ("confirm", ("contoso2", "guid")),
        ("confirm", ("contoso1", "other")),
        ("confirm", ("contoso1guid",)),
        ("confirm", ("contoso", "1guid")),  # parts are kept apart
        ("confirm", ("contoso1", "guid", "")),
    ],
)
def test_a_token_is_good_for_nothing_else(purpose: str, parts: tuple[str, ...]) -> None:
    assert not is_signed(TOKEN, SECRET, purpose, *parts)


def test_a_token_of_another_installation_is_worthless() -> None:
    assert not is_signed(TOKEN, new_secret(), "confirm", "contoso1", "guid")


@pytest.mark.parametrize(
    "token",
    ["", TOKEN[:-1], TOKEN + "0", TOKEN.upper() + "é", "ü"],
    ids=["empty", "short", "long", "not ascii", "one letter"],
)
def test_what_is_not_the_token_is_refused_and_nothing_breaks(token: str) -> None:
    assert not is_signed(token, SECRET, "confirm", "contoso1", "guid")


def test_guids_and_secrets_are_random_and_fit_into_keys_and_urls() -> None:
    guids = {new_guid() for _ in range(1000)}
    assert len(guids) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", guid) for guid in guids)
    assert re.fullmatch("[0-9a-f]{64}", SECRET)
    assert re.fullmatch("[0-9a-f]{24}", TOKEN)
