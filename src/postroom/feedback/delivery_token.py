"""Finds the delivery token in a report: which of our emails it is about.

The token is in the Message-ID (`<TOKEN@domain>`) and in the envelope sender (`b+TOKEN@domain`), so
it appears in the address of the report, in its fields, or in the returned message. The caller
checks its MAC, so text that only looks like a token does no harm.
"""

from __future__ import annotations

import re

from postroom.feedback.mail_parts import Headers

# 32 or 40 letters of base32; servers may have changed the case. Before it may be a tag of BATV
# ("prvs=…="), of SRS ("SRS0=…=") or our own "b+".
_TOKEN = re.compile(r"(?<![a-z0-9])([a-z2-7]{40}|[a-z2-7]{32})@", re.IGNORECASE)
_HEADER_TOKEN = re.compile(r"^[<\s]{0,3}([a-z2-7]{40}|[a-z2-7]{32})[>\s]{0,3}$", re.IGNORECASE)

# The address of the report first: it names the delivery even if nothing was returned.
REPORT_FIELDS = (
    "to",
    "delivered-to",
    "x-original-to",
    "envelope-to",
    "x-envelope-to",
    "apparently-to",
    "x-failed-recipients",
    "received",
    "return-path",
    "in-reply-to",
    "references",
)
TEXT_CHARS_MAX = 100_000


def token_in_headers(headers: Headers) -> str:
    """Return the first token in the header fields of a report."""
    for name in REPORT_FIELDS:
        for value in headers.get(name, [])[:30]:
            found = token_in_text(value)
            if found:
                return found
    return ""


def token_in_original(headers: Headers) -> str:
    """Return the first token in the headers of the returned message."""
    for name, values in headers.items():
        for value in values[:30]:
            marked = name.startswith("x-postroom") and _HEADER_TOKEN.match(value)
            found = marked[1].lower() if marked else token_in_text(value)
            if found:
                return found
    return ""


def token_in_text(text: str) -> str:
    """Return the first token that stands before an @."""
    found = _TOKEN.search(text[:TEXT_CHARS_MAX])
    return found[1].lower() if found else ""
