"""Sign emails with DKIM (RFC 6376): an RSA signature and, on request, an Ed25519 one.

The signer works on the finished bytes of an email. It is our own because dkimpy takes 25 times as
long; the tests verify with dkimpy. Everything but the key operation takes about 20 µs for an email
of 4 KB, and OpenSSL releases the GIL meanwhile, so that threads share the work.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from postroom.mail.dkim_keys import Algorithm, DkimKey

# In this order in h=. Each is named once more often than it occurs ("oversigned"), so that nobody
# can add another one without breaking the signature (RFC 6376 8.15).
SIGNED = (
    *("From", "Subject", "Date", "To", "Message-ID", "Reply-To"),
    *("List-Unsubscribe", "List-Unsubscribe-Post", "List-Id", "Feedback-ID"),  # RFC 8058 4
    *("MIME-Version", "Content-Type"),
)
LINE_AIM = 72  # characters of a line of our own header
TEMPLATES_MAX = 256  # signature headers kept half-written, one per key and set of headers

_PLACES = {name.lower().encode(): place for place, name in enumerate(SIGNED)}
_FROM = _PLACES[b"from"]
_LAST_LINES = re.compile(rb"(?:\r\n)+\Z")
_DOMAIN = re.compile(rb"@([A-Za-z0-9.-]+)>?\Z")  # where a single mailbox ends
_SPACED_END = b" \r\n"


class _Head(NamedTuple):
    """The signed headers of one email."""

    domain: str  # of From; empty if there is not exactly one
    counts: tuple[int, ...]  # how often each header of SIGNED occurs
    canonical: bytes


class _Template(NamedTuple):
    """A signature header up to its bh= value."""

    written: bytes
    canonical: bytes


class DkimSigner:
    """Signs with the keys of the From domain; for each algorithm, the first key given signs."""

    def __init__(self, keys: Iterable[DkimKey]) -> None:
        by_domain: dict[str, dict[Algorithm, DkimKey]] = {}
        for key in keys:
            by_domain.setdefault(key.domain, {}).setdefault(key.algorithm, key)
        # RSA comes first, because a receiver may check only a few signatures.
        self._keys = {
            domain: tuple(found[each] for each in Algorithm if each in found)
            for domain, found in by_domain.items()
        }
        self._templates: dict[tuple[str, str, tuple[int, ...]], _Template] = {}

    def sign(self, source: bytes, tail: bytes = b"") -> bytes:
        """The DKIM-Signature lines to put in front; empty if no key covers the From domain.

        `tail` is the rest of the email, in the relaxed form already (mail/attachments.py). It is
        hashed for every email, since what comes before it differs; OpenSSL hashes 1 GB/s.
        """
        raw_head, _, body = source.partition(b"\r\n\r\n")
        head = _read_head(raw_head)
        keys = self._keys.get(head.domain)
        if keys is None:
            return b""
        if tail:
            digest = hashlib.sha256(_relaxed_lines(body))
            digest.update(tail)
        else:
            digest = hashlib.sha256(canonical_body(body))
        body_hash = base64.b64encode(digest.digest())
        return b"".join(self._signature(key, head, body_hash) for key in keys)

    def _signature(self, key: DkimKey, head: _Head, body_hash: bytes) -> bytes:
        template = self._template(key, head.counts)
        canonical = b"%b%b%b; b=" % (head.canonical, template.canonical, body_hash)
        signature = base64.b64encode(key.sign(canonical))
        lines = [signature[at : at + LINE_AIM] for at in range(0, len(signature), LINE_AIM)]
        return b"%b%b;\r\n b=%b\r\n" % (template.written, body_hash, b"\r\n ".join(lines))

    def _template(self, key: DkimKey, counts: tuple[int, ...]) -> _Template:
        which = (key.domain, key.selector, counts)
        template = self._templates.get(which)
        if template is None:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            template = self._templates[which] = _write_template(key, counts)
        return template


def canonical_body(body: bytes) -> bytes:
    """The body in the relaxed form (RFC 6376 3.4.4); most are in it but for their last lines."""
    body = _relaxed_lines(body).removesuffix(b" ")  # where the transport ends the last line
    end = _LAST_LINES.search(body, len(body.rstrip(b"\r\n")))
    if end is not None:
        body = body[: end.start()]
    return body + b"\r\n" if body else b""


def _relaxed_lines(body: bytes) -> bytes:
    body = _single_spaced(body)
    return body.replace(_SPACED_END, b"\r\n") if _SPACED_END in body else body


def _single_spaced(text: bytes) -> bytes:
    """Replace every run of spaces and tabs by one space."""
    if b"\t" in text:
        text = text.replace(b"\t", b" ")
    if b"  " not in text:
        return text
    text = text.replace(b"    ", b" ")  # of an indented template: saves a round or two
    while b"  " in text:  # halves every run, so it ends soon
        text = text.replace(b"  ", b" ")
    return text


def _read_head(head: bytes) -> _Head:
    """Read the signed headers in the relaxed form (RFC 6376 3.4.2)."""
    canonical = [b""] * len(SIGNED)
    counts = [0] * len(SIGNED)
    sender = b""
    unfolded = head.replace(b"\r\n ", b" ").replace(b"\r\n\t", b" ").removesuffix(b"\r\n")
    for line in _single_spaced(unfolded).split(b"\r\n"):
        raw_name, _, raw_value = line.partition(b":")
        name = raw_name.lower().rstrip(b" ")
        place = _PLACES.get(name)
        if place is None:
            continue
        value = raw_value.strip(b" ")
        counts[place] += 1
        # Of several, the last one is signed first (RFC 6376 5.4.2).
        canonical[place] = b"%b:%b\r\n%b" % (name, value, canonical[place])
        if place == _FROM:
            sender = value
    found = _DOMAIN.search(sender) if counts[_FROM] == 1 else None
    domain = found[1].decode("ascii").lower() if found else ""
    return _Head(domain, tuple(counts), b"".join(canonical))


def _write_template(key: DkimKey, counts: tuple[int, ...]) -> _Template:
    names = [name for name, count in zip(SIGNED, counts, strict=True) for _ in range(count + 1)]
    first = f"DKIM-Signature: v=1; a={key.algorithm}; c=relaxed/relaxed;"
    lines = [first, f" d={key.domain};", f" s={key.selector};", " h=" + names[0]]
    for name in names[1:]:
        if len(lines[-1]) + len(name) < LINE_AIM:
            lines[-1] += f":{name}"
        else:
            lines[-1] += ":"
            lines.append(f" {name}")
    lines[-1] += ";"
    lines.append(" bh=")
    written = "\r\n".join(lines).encode("ascii")
    name_read, _, value = written.replace(b"\r\n", b"").partition(b":")
    return _Template(written, b"%b:%b" % (name_read.lower(), _single_spaced(value).strip()))
