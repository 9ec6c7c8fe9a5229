"""Tokens in links, which prove that a link is ours and what it is for."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from uuid import uuid4

TOKEN_BYTES = 12  # 96 bits: nobody guesses it, and the link stays short


def new_guid() -> str:
    """128 random bits; a subscriber's GUID is the credential of the unsubscribe link."""
    return uuid4().hex


def new_secret() -> str:
    return secrets.token_hex(32)


def sign(secret: str, purpose: str, *parts: str) -> str:
    text = "\0".join((purpose, *parts)).encode()
    return hmac.new(secret.encode(), text, hashlib.sha256).digest()[:TOKEN_BYTES].hex()


def is_signed(token: str, secret: str, purpose: str, *parts: str) -> bool:
    return hmac.compare_digest(token.encode(), sign(secret, purpose, *parts).encode())
