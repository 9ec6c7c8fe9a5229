"""Encrypt a text that is part of a link, so that only Postroom can read it.

An address in the path of a page would end up in the browser's history and in the logs of every
proxy in between.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

SEALED_CHARS_MAX = 2000  # more than both keys of a row need at their longest


def seal(secret: str, purpose: str, text: str) -> str:
    """Encrypt with AES-SIV (RFC 5297): the same text gives the same link every time."""
    sealed = _cipher(secret, purpose).encrypt(text.encode(), None)
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def unseal(secret: str, purpose: str, sealed: str) -> str | None:
    """Decrypt; None if it was not sealed for this purpose with this secret."""
    from cryptography.exceptions import InvalidTag

    if not sealed.isascii() or len(sealed) > SEALED_CHARS_MAX:
        return None
    try:
        packed = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
        return _cipher(secret, purpose).decrypt(packed, None).decode()
    except (ValueError, InvalidTag):
        return None


def _cipher(secret: str, purpose: str) -> AESSIV:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    return AESSIV(hashlib.sha512(f"{purpose}\0{secret}".encode()).digest())
