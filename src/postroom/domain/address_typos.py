"""Slips in the addresses of a file: those that can be mended, and domains that look mistyped."""

from __future__ import annotations

import re

from postroom.domain.csv_rows import BLANKS

_MAILTO = "mailto:"
_IN_BRACKETS = re.compile(r"[^<>]*<([^<>]+)>[\s,;.]*")
_BEHIND = BLANKS + ",;."  # what lists of recipients and sentences leave behind an address
_QUOTES = "\"'"

# Domains that people type when they mean another. Each is at most one slip away from a provider of
# many mailboxes, and is not a provider itself.
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


def mended(text: str) -> str:
    """The address in `mailto:x@y`, `Name <x@y>`, `'x@y'` or `x@y,`; it may still be none."""
    if found := _IN_BRACKETS.fullmatch(text):
        text = found[1]
    text = text.rstrip(_BEHIND).strip(BLANKS + _QUOTES)
    if text[: len(_MAILTO)].lower() == _MAILTO:
        text = text[len(_MAILTO) :].partition("?")[0]
    return text.rstrip(_BEHIND)


def domain_meant(domain: str) -> str:
    """What somebody who typed this domain probably meant; empty if it looks right."""
    return _MEANT.get(domain, "")
