"""DKIM keys for tests, made once a process, and receivers that verify with them."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache

import dkim
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from postroom.mail.dkim_keys import DkimKey

DOMAIN = "contoso.edu"


@cache
def rsa_key(domain: str = DOMAIN, selector: str = "s1") -> DkimKey:
    return DkimKey(domain, selector, generate_private_key(65537, 2048))


@cache
def ed25519_key(domain: str = DOMAIN, selector: str = "e1") -> DkimKey:
    return DkimKey(domain, selector, Ed25519PrivateKey.generate())


def verifies(signed: bytes, *keys: DkimKey, at: int = 0) -> bool:
    """Whether dkimpy accepts the signature at this position, reading the keys as from DNS."""
    records = {f"{key.record_name}.".encode(): key.record.encode() for key in keys}
    receiver = dkim.DKIM(signed, minkey=2048)
    try:
        return bool(receiver.verify(idx=at, dnsfunc=lambda name, timeout=5: records.get(name)))
    except dkim.ValidationError:
        return False


def verifies_ed25519(signed: bytes, key: DkimKey, at: int) -> bool:
    """The same for an Ed25519 signature, for which dkimpy needs another library.

    Parsing, choosing and canonicalizing are dkimpy's; only the last step is done here.
    """
    headers, body = dkim.rfc822_parse(signed)
    found = [each for each in headers if each[0].lower() == b"dkim-signature"][at]
    tags = dkim.util.parse_tag_value(found[1])
    assert (tags[b"a"], tags[b"s"]) == (b"ed25519-sha256", key.selector.encode())
    policy = dkim.CanonicalizationPolicy.from_c_value(tags[b"c"])
    body_hash = hashlib.sha256(policy.canonicalize_body(body)).digest()
    names = [name.lower() for name in re.split(rb"\s*:\s*", tags[b"h"])]
    hasher = hashlib.sha256()
    canonical = policy.canonicalize_headers(headers)
    dkim.hash_headers(hasher, policy, canonical, names, found, tags)
    public = Ed25519PublicKey.from_public_bytes(key.public)
    signature = base64.b64decode(re.sub(rb"\s", b"", tags[b"b"]))
    try:
        public.verify(signature, hasher.digest())
    except InvalidSignature:
        return False
    return body_hash == base64.b64decode(tags[b"bh"])
