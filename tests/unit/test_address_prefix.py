"""The beginning of an address as the beginning of its storage key."""

from __future__ import annotations

import pytest

from postroom.domain.address import BadAddress, key_prefix, parse_address

ADDRESSES = [
    "student1@contoso.edu",
    "Ada.Lovelace+news@Contoso.EDU",
    "o'neil/ops#1@contoso.edu",
    "müller@münchen.example",
    "почта@пример.example",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_everybody_is_found_by_every_beginning_of_their_address(address: str) -> None:
    key = parse_address(address).storage_key
    for length in range(1, len(address) + 1):
        typed = address[:length]
        if typed == "müller@m":
            continue  # nothing shows yet that this is no ASCII domain
        assert key.startswith(key_prefix(typed)), typed
        assert key.startswith(key_prefix(f" {typed.upper()} ")), typed


def test_nothing_typed_is_the_beginning_of_all() -> None:
    assert key_prefix("") == ""
    assert key_prefix(" \t") == ""


@pytest.mark.parametrize("typed", ["a\x00b", "x" * 500, "a@b..", "a@-x.", "a@b\nc"])
def test_what_no_address_begins_with_is_refused(typed: str) -> None:
    with pytest.raises(BadAddress):
        key_prefix(typed)
