"""Seals: only the right secret and purpose can read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.seal import seal, unseal

SECRET = "a secret"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=480)


@given(TEXTS)
def test_a_sealed_text_can_be_unsealed_and_is_not_readable(text: str) -> None:
    sealed = seal(SECRET, "a page", text)
    assert unseal(SECRET, "a page", sealed) == text
    assert seal(SECRET, "a page", text) == sealed
    assert sealed.isascii()
    assert "=" not in sealed
    assert len(text) < 8 or text not in sealed


def test_a_seal_needs_its_own_purpose_and_secret() -> None:
    sealed = seal(SECRET, "a page", "student1@contoso.edu")
    assert unseal(SECRET, "another page", sealed) is None
    assert unseal("another secret", "a page", sealed) is None


@pytest.mark.parametrize("text", ["", "x", "ä", "AAAA", "A" * 2000, "====", "not base64 !", "\0"])
def test_rubbish_is_no_seal(text: str) -> None:
    assert unseal(SECRET, "a page", text) is None


def test_one_changed_character_breaks_the_seal() -> None:
    sealed = seal(SECRET, "a page", "student1@contoso.edu")
    for at, letter in enumerate(sealed[:-1]):  # of the last one some bits mean nothing
        other = "A" if letter != "A" else "B"
        assert unseal(SECRET, "a page", sealed[:at] + other + sealed[at + 1 :]) is None
