"""DKIM keys: read from files, created, and as the TXT record that publishes the public half."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from postroom.domain.dkim import KeyPlace
from postroom.domain.errors import AlreadyThere, BadInput
from postroom.domain.texts import _

RSA_BITS = 2048  # what every receiver accepts; longer keys hardly fit into DNS (RFC 8301 3.2)
RSA_BITS_MAX = 4096
KEY_FILE_BYTES_MAX = 16_384  # a PEM file of 4096 bits has 3,300
STRING_CHARS_MAX = 255  # of one string in a TXT record (RFC 1035 3.3.14)
RECORD_TTL_S = 3600

_PADDING = PKCS1v15()
_SHA256 = SHA256()


class Algorithm(StrEnum):
    """As a= names it. The first one is the one that every receiver knows."""

    RSA = "rsa-sha256"  # RFC 6376
    ED25519 = "ed25519-sha256"  # RFC 8463


@dataclass(frozen=True)
class DkimKey:
    """A private key, and where its public half is in DNS; its repr shows no secret."""

    domain: str
    selector: str
    private: RSAPrivateKey | Ed25519PrivateKey = field(repr=False)

    @property
    def algorithm(self) -> Algorithm:
        is_rsa = isinstance(self.private, RSAPrivateKey)
        return Algorithm.RSA if is_rsa else Algorithm.ED25519

    @property
    def record_name(self) -> str:
        return f"{self.selector}._domainkey.{self.domain}"

    @property
    def public(self) -> bytes:
        """The public key, as p= carries it in base64."""
        if isinstance(self.private, RSAPrivateKey):
            return self.private.public_key().public_bytes(
                serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        return self.private.public_key().public_bytes_raw()  # RFC 8463 4

    @property
    def record(self) -> str:
        """The value of the TXT record, on one line."""
        kind = "rsa" if self.algorithm is Algorithm.RSA else "ed25519"
        return f"v=DKIM1; k={kind}; p={base64.b64encode(self.public).decode()}"

    @property
    def zone_line(self) -> str:
        """The TXT record as a zone file wants it, in strings of up to 255 characters."""
        record = self.record
        strings = [
            f'"{record[at : at + STRING_CHARS_MAX]}"'
            for at in range(0, len(record), STRING_CHARS_MAX)
        ]
        value = strings[0] if len(strings) == 1 else f"( {' '.join(strings)} )"
        return f"{self.record_name}. {RECORD_TTL_S} IN TXT {value}"

    def sign(self, data: bytes) -> bytes:
        if isinstance(self.private, RSAPrivateKey):
            return self.private.sign(data, _PADDING, _SHA256)
        return self.private.sign(hashlib.sha256(data).digest())  # RFC 8463 3


def load_keys(places: Iterable[KeyPlace]) -> tuple[DkimKey, ...]:
    """Read all private keys; BadInput says which file cannot be used, and never what is in it."""
    private: dict[str, RSAPrivateKey | Ed25519PrivateKey] = {}
    keys = []
    for place in places:
        if place.path not in private:
            private[place.path] = _read_private_key(place.path)
        keys.append(DkimKey(place.domain, place.selector, private[place.path]))
    for domain in dict.fromkeys(key.domain for key in keys):
        if not any(key.domain == domain and key.algorithm is Algorithm.RSA for key in keys):
            raise BadInput(
                _(
                    "{domain} has only an Ed25519 key, which many receivers cannot verify; add an "
                    "RSA key.",
                    domain=domain,
                )
            )
    return tuple(keys)


def create_key(path: Path, domain: str, selector: str, algorithm: Algorithm) -> DkimKey:
    """Create a private key in a new file that only its owner can read."""
    private: RSAPrivateKey | Ed25519PrivateKey
    if algorithm is Algorithm.RSA:
        private = generate_private_key(65537, RSA_BITS)
    else:
        private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        # O_EXCL: a key that signs, or whose record is in DNS, must never be overwritten.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise AlreadyThere(
            _("{path} already exists; choose another selector or file.", path=str(path))
        ) from None
    except OSError as error:
        raise BadInput(
            _("{path} cannot be written: {why}.", path=str(path), why=error.strerror)
        ) from error
    with os.fdopen(handle, "wb") as file:
        file.write(pem)
    return DkimKey(domain, selector, private)


def record_tags(record: str) -> dict[str, str]:
    """The tags of a DKIM or DMARC record by name; parts that are not tags are left out."""
    pairs = (part.partition("=") for part in record.split(";"))
    return {name.strip().lower(): value.strip() for name, equals, value in pairs if equals}


def public_in(record: str) -> bytes | None:
    """The public key in a DKIM record: empty if it was revoked, None if there is none."""
    value = record_tags(record).get("p")
    if value is None:
        return None
    try:
        return base64.b64decode(re.sub(r"\s", "", value), validate=True)
    except (binascii.Error, ValueError):
        return None


def _read_private_key(path: str) -> RSAPrivateKey | Ed25519PrivateKey:
    try:
        with open(path, "rb") as file:
            pem = file.read(KEY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(_("{path} cannot be read: {why}.", path=path, why=error.strerror)) from error
    no_key = BadInput(_("{path} is not a private key in PEM without a password.", path=path))
    if len(pem) > KEY_FILE_BYTES_MAX:
        raise no_key
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise no_key from None  # the cause may quote the file
    if isinstance(key, Ed25519PrivateKey):
        return key
    if not isinstance(key, RSAPrivateKey):
        raise BadInput(_("{path} is neither an RSA nor an Ed25519 key.", path=path))
    if not RSA_BITS <= key.key_size <= RSA_BITS_MAX:
        raise BadInput(
            _(
                "{path} is an RSA key of {bits} bits; use one of {least} to {most} bits. "
                "“postroom dkim create” makes one.",
                path=path,
                bits=key.key_size,
                least=RSA_BITS,
                most=RSA_BITS_MAX,
            )
        )
    return key
