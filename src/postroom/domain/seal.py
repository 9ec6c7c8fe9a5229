"""Seals: a text that stands in a link, readable to nobody but us.

For what must be found again without naming it: an address in the path of a page would be kept by
the browser's history and by every proxy on the way.
"""

from __future__ import annotations

import base64
import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

SEALED_CHARS_MAX = 1000  # the longest storage key of an address, and room to spare


def seal(secret: str, purpose: str, text: str) -> str:
    """The same text has the same seal, so that a page keeps its address (AES-SIV, RFC 5297)."""
    sealed = _cipher(secret, purpose).encrypt(text.encode(), None)
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def unseal(secret: str, purpose: str, sealed: str) -> str | None:
    """The text, or None if we never sealed it for this purpose."""
    if not sealed.isascii() or len(sealed) > SEALED_CHARS_MAX:
        return None
    try:
        packed = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
        return _cipher(secret, purpose).decrypt(packed, None).decode()
    except (ValueError, InvalidTag):
        return None


def _cipher(secret: str, purpose: str) -> AESSIV:
    return AESSIV(hashlib.sha512(f"{purpose}\0{secret}".encode()).digest())
