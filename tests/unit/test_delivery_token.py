"""The delivery token names one delivery, survives folding of its case, and cannot be forged."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.delivery_token import (
    DeliveryId,
    SingleMailId,
    delivery_tokens,
    parse_token,
    single_mail_token,
)

SECRET = b"a secret of this installation"
REF = "639305584214181225"
REFS = st.integers(1, 2**60 - 1).map(lambda number: f"{number:018d}")


@given(REFS, st.integers(0, 2**20 - 1), st.integers(0, 98))
def test_a_token_names_its_delivery_in_any_case(ref: str, batch: int, position: int) -> None:
    [token] = delivery_tokens(SECRET, ref, batch, [position]).values()
    assert re.fullmatch("[a-z2-7]{32}", token)
    named = DeliveryId(ref, batch, position)
    assert parse_token(SECRET, token) == parse_token(SECRET, token.upper()) == named


@given(st.binary(min_size=16, max_size=16))
def test_a_confirmation_has_a_token_of_another_length(guid: bytes) -> None:
    token = single_mail_token(SECRET, guid.hex())
    assert re.fullmatch("[a-z2-7]{40}", token)
    assert parse_token(SECRET, token) == SingleMailId(guid.hex())


@given(st.data())
def test_no_other_text_is_a_token(data: st.DataObject) -> None:
    [token] = delivery_tokens(SECRET, REF, 7, [3]).values()
    single = single_mail_token(SECRET, "0" * 32)
    changed = list(data.draw(st.sampled_from([token, single])))
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] = data.draw(
        st.sampled_from(sorted(set("abcdefghijklmnopqrstuvwxyz234567") - {changed[at]}))
    )
    assert parse_token(SECRET, "".join(changed)) is None


@pytest.mark.parametrize("text", ["", "a" * 32, "a" * 40, "1" * 32, "a" * 33, "ä" * 32, "a\n" * 16])
def test_what_is_not_a_token_names_nothing(text: str) -> None:
    assert parse_token(SECRET, text) is None


def test_tokens_of_a_batch_and_of_other_secrets_differ() -> None:
    tokens = delivery_tokens(SECRET, REF, 7, range(99))
    assert len(set(tokens.values())) == 99
    assert len({token[17:] for token in tokens.values()}) == 99  # each has a MAC of its own
    assert parse_token(b"another secret", tokens[0]) is None
    elsewhere = delivery_tokens(SECRET, REF, 8, [0])[0]
    assert parse_token(SECRET, tokens[0][:16] + elsewhere[16:]) is None


def test_a_message_with_too_many_batches_is_refused() -> None:
    with pytest.raises(ValueError, match="too many batches"):
        delivery_tokens(SECRET, REF, 2**20, [0])
