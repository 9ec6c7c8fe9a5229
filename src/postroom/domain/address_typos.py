"""Correct typing errors in the addresses of a file, and recognize mistyped domains."""

from __future__ import annotations

import re

from postroom.domain.csv_rows import BLANKS

_IN_BRACKETS = re.compile(r"[^<>]*<([^<>]+)>[\s,;.]*")
_TRAILING = BLANKS + ",;."  # left over from lists of recipients and sentences

# Common slips by domain. Each is one slip away from a large mailbox provider, and is not a provider
# itself.
_MISTYPED = {
    "gmail.com": "gmial.com gmai.com gmal.com gamil.com gnail.com gmaill.com gmail.con gmail.cm",
    "googlemail.com": "googlemial.com goglemail.com googlemail.con",
    "hotmail.com": "hotmial.com hotmai.com hotmal.com hotmil.com homail.com hotmail.con",
    "outlook.com": "outlok.com outloo.com outlock.com otlook.com outlook.con",
    "yahoo.com": "yaho.com yahooo.com yhaoo.com yahoo.con",
    "icloud.com": "iclod.com icoud.com icloud.con",
    "gmx.de": "gmx.ed gmx.dee",
    "gmx.net": "gmx.nt gmx.ent",
    "web.de": "web.ed web.dee",
    "t-online.de": "t-onlin.de t-online.ed t-oline.de",
}
_MEANT = {typed: meant for meant, slips in _MISTYPED.items() for typed in slips.split()}


def extract_address(text: str) -> str:
    """Extract the address from `mailto:x@y`, `Name <x@y>`, `'x@y'` or `x@y,`; it is not checked."""
    if found := _IN_BRACKETS.fullmatch(text):
        text = found[1]
    text = text.rstrip(_TRAILING).strip(BLANKS + "\"'")
    if text[:7].lower() == "mailto:":
        text = text[7:].partition("?")[0]
    return text.rstrip(_TRAILING)


def domain_meant(domain: str) -> str:
    """The domain that was probably meant; empty if this one looks right."""
    return _MEANT.get(domain, "")
