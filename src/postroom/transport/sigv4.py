"""Signature Version 4 of Amazon Web Services, for requests whose body is known.

Our own, because it is forty lines of hashing and an SDK is many megabytes. Tested with the vectors
that Amazon publishes (tests/unit/test_sigv4.py).
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qsl, quote

ALGORITHM = "AWS4-HMAC-SHA256"
_BLANKS = re.compile(" +")


@dataclass(frozen=True)
class SigningKey:
    key_id: str
    secret: str = field(repr=False)
    region: str
    service: str


def signed_headers(
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    key: SigningKey,
    now: datetime,
) -> dict[str, str]:
    """The headers with date and signature; `host` must be among them. All of them are signed."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    signed = {name.lower(): value for name, value in headers.items()} | {"x-amz-date": moment}
    names = ";".join(sorted(signed))
    scope = f"{moment[:8]}/{key.region}/{key.service}/aws4_request"
    request = canonical_request(method, path, signed, body)
    to_sign = "\n".join([ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    signature = _signature(key, moment[:8], to_sign)
    credential = f"Credential={key.key_id}/{scope}"
    authorization = f"{ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"
    return signed | {"authorization": authorization}


def canonical_request(method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:
    """The request as both sides write it before they hash it; header names are in lower case."""
    path, _, query = path.partition("?")
    pairs = sorted(
        (quote(name, safe="~"), quote(value, safe="~"))
        for name, value in parse_qsl(query, keep_blank_values=True)
    )
    lines = [f"{name}:{_BLANKS.sub(' ', headers[name].strip())}" for name in sorted(headers)]
    return "\n".join(
        [
            method,
            quote(path, safe="/~") or "/",
            "&".join(f"{name}={value}" for name, value in pairs),
            *lines,
            "",
            ";".join(sorted(headers)),
            hashlib.sha256(body).hexdigest(),
        ]
    )


def _signature(key: SigningKey, date: str, to_sign: str) -> str:
    """Sign with a key that is valid for one day, region and service."""
    derived = f"AWS4{key.secret}".encode()
    for part in (date, key.region, key.service, "aws4_request"):
        derived = hmac.digest(derived, part.encode(), "sha256")
    return hmac.digest(derived, to_sign.encode(), "sha256").hex()
