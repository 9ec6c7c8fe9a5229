"""The delivery token, which identifies one delivery in every report about its email.

It is part of the Message-ID, the envelope sender and the events of providers, so that a report
identifies its delivery without an index, and without an address in any URL. It has only lower-case
letters and digits, because some mail servers change the case of what they return.

    delivery       16 characters for ref and batch, 16 for the position and its MAC
    single email   40 characters: the GUID of a subscriber and a MAC
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from postroom.domain.delivery import BATCH_DELIVERIES_MAX

_BATCH_BITS = 20  # a hundred million recipients
_REF_BITS = 60  # ticks (domain/message.py) until the year 3653
_MAC_BYTES = 9  # of a single email's token
_MAC_CHARS = 14  # of a delivery's token: 70 bits
_HALF = 16  # characters: ten bytes, or a position and its MAC
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
# Five bits of every byte of a hash, each as a letter: base64.b32encode takes 40 times as long.
_LETTERS = (_ALPHABET * 8).encode()
_DELIVERY = re.compile(r"[a-z2-7]{32}")
_SINGLE = re.compile(r"[a-z2-7]{40}")


class DeliveryId(msgspec.Struct, frozen=True):
    """Which delivery: the message, the batch and the position in it."""

    ref: str
    batch: int
    position: int


class SingleMailId(msgspec.Struct, frozen=True):
    """Which confirmation email: the GUID of the subscriber it was sent to."""

    guid: str


def delivery_tokens(
    secret: bytes, ref: str, batch: int, positions: Sequence[int]
) -> Mapping[int, str]:
    """The tokens of a slice. One hash makes the MACs of a whole batch, each independent."""
    tokens = _tokens_of_batch(secret, ref, batch)
    return {at: tokens[at] for at in positions}


def single_mail_token(secret: bytes, guid: str) -> str:
    payload = bytes.fromhex(guid)
    return _encode(payload + _mac(secret, b"single", payload, _MAC_BYTES))


def parse_token(secret: bytes, text: str) -> DeliveryId | SingleMailId | None:
    """What the token names; None if it is not one of ours."""
    text = text.lower()
    if _DELIVERY.fullmatch(text):
        number = int.from_bytes(_decode(text[:_HALF]), "big")
        ref = f"{number >> _BATCH_BITS:018d}"
        batch = number & ((1 << _BATCH_BITS) - 1)
        position = _ALPHABET.index(text[_HALF]) * 32 + _ALPHABET.index(text[_HALF + 1])
        if position >= BATCH_DELIVERIES_MAX:
            return None
        expected = _tokens_of_batch(secret, ref, batch)[position]
        is_ours = hmac.compare_digest(expected, text)
        return DeliveryId(ref, batch, position) if is_ours else None
    if _SINGLE.fullmatch(text):
        guid = _decode(text)[:-_MAC_BYTES].hex()
        is_ours = hmac.compare_digest(single_mail_token(secret, guid), text)
        return SingleMailId(guid) if is_ours else None
    return None


_POSITIONS = [_ALPHABET[at // 32] + _ALPHABET[at % 32] for at in range(BATCH_DELIVERIES_MAX)]


@lru_cache(maxsize=64)  # a sender asks again for every slice of a batch
def _tokens_of_batch(secret: bytes, ref: str, batch: int) -> list[str]:
    number = int(ref) << _BATCH_BITS | batch
    if batch >> _BATCH_BITS or number >> _BATCH_BITS + _REF_BITS:
        raise ValueError("the message has too many batches for a token")
    name = number.to_bytes(10, "big")
    macs = _mac(secret, b"delivery", name, _MAC_CHARS * BATCH_DELIVERIES_MAX)
    letters = macs.translate(_LETTERS).decode()
    prefix = _encode(name)
    return [
        prefix + position + letters[at * _MAC_CHARS : (at + 1) * _MAC_CHARS]
        for at, position in enumerate(_POSITIONS)
    ]


def _mac(secret: bytes, purpose: bytes, payload: bytes, size: int) -> bytes:
    """SHAKE is safe as a MAC with the key in front, and one call yields any number of bytes."""
    key = len(secret).to_bytes(2, "big") + secret
    return hashlib.shake_256(key + purpose + b"\0" + payload).digest(size)


def _encode(payload: bytes) -> str:
    return base64.b32encode(payload).decode().lower()


def _decode(text: str) -> bytes:
    return base64.b32decode(text.upper())  # whole groups of the alphabet: it cannot fail
