"""Judge the links of an email as spam filters do, only by how they are written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import idna

from postroom.mail.spam.finding import SpamFinding, SpamPlace, SpamSign, finding
from postroom.mail.spam.page import FIELD, LINKS_READ_MAX, PageLink

LABEL_CHARS_MAX = 500  # of a link's text; no address shown there is longer
LABEL_CHARS_SHOWN = 40
HOST_CHARS_MAX = 255

# Spammers use them to hide where a link leads, so filters know them by name.
SHORTENERS = {
    *("bit.ly", "bitly.com", "buff.ly", "cutt.ly", "dlvr.it", "goo.gl", "is.gd", "j.mp"),
    *("lnkd.in", "ow.ly", "rb.gy", "rebrand.ly", "s.id", "shorturl.at", "t.co", "t.ly"),
    *("t1p.de", "tiny.cc", "tinyurl.com", "v.gd", "x.co", "tiny.one", "adf.ly", "bl.ink"),
}
_URL = re.compile(r"https?://[^\s<>\"]+", re.I)
_TRAILING = ".,;:!?)]}'’”"
_NUMERIC = re.compile(r"(?:0x[0-9a-f]+|[0-9]+)(?:\.(?:0x[0-9a-f]+|[0-9]+)){0,3}", re.I)
_HOST = r"(?:[\w-]{1,63}\.){1,10}[^\W\d_]{2,24}"
_SHOWN_URL = re.compile(rf"\b(?:https?://|(?=www\.))({_HOST})", re.I)
# A label that is only a host, under a top-level domain that no file or product name ends with.
_SHOWN_HOST = re.compile(
    r"((?:[\w-]{1,63}\.){1,10}(?:com|org|edu|gov|info|de|fr|it|es|nl|br|ru|cn|uk))(?:[/?#].*)?",
    re.I,
)
# Second-level domains of countries under which people register names.
_SHARED = frozenset(("ac", "co", "com", "edu", "go", "gob", "gov", "ne", "net", "or", "org"))
# Letters that look like Latin ones, so that a name in them can pass for another.
_CYRILLIC_TWINS = frozenset("аесіјорѕухһӏԁԛԝ")
_GREEK_TWINS = frozenset("ονυρ")
_SCRIPTS = frozenset(("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"))


class _Target(NamedTuple):
    """A link to a web page, parsed."""

    link: PageLink
    parts: SplitResult
    host: str  # lower case, as A-labels


def links_in_text(text: str) -> list[PageLink]:
    """Find the web addresses in a plain text."""
    urls = (found[0].rstrip(_TRAILING) for found in _URL.finditer(text))
    return [PageLink(url, "") for url in dict.fromkeys(islice(urls, LINKS_READ_MAX))]


def signs_of_links(links: Iterable[PageLink], where: SpamPlace) -> Iterator[SpamFinding]:
    targets = [target for link in links if (target := _target(link))]
    for sign, applies in _RULES.items():
        matches = filter(applies, targets)
        if sign is SpamSign.LINK_SHOWS_OTHER_HOST:
            shown = (f"{each.link.label[:LABEL_CHARS_SHOWN]} → {each.host}" for each in matches)
        else:
            shown = (each.link.href for each in matches)
        yield from finding(sign, where, shown)


def _target(link: PageLink) -> _Target | None:
    """Parse a link; None if it leads to no web page, or its host contains a merge field."""
    if not link.href.lower().startswith(("http://", "https://")):
        return None
    try:
        parts = urlsplit(link.href)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:  # brackets that hold no IPv6 address
        return None
    if not host or FIELD in parts.netloc or len(host) > HOST_CHARS_MAX:
        return None
    return _Target(link, parts, _a_labels(host))


def _shows_other_host(target: _Target) -> bool:
    label = target.link.label[:LABEL_CHARS_MAX]
    shown = _SHOWN_URL.search(label) or _SHOWN_HOST.fullmatch(label.strip())
    if shown is None or FIELD in label:
        return False
    return _site(_a_labels(shown[1].lower())) != _site(target.host)


def _looks_alike(target: _Target) -> bool:
    *labels, top = target.host.split(".")
    is_foreign = top.startswith("xn--")
    return any(_is_lookalike(_decoded(label), is_foreign=is_foreign) for label in labels)


_RULES: dict[SpamSign, Callable[[_Target], bool]] = {
    SpamSign.LINK_SHOWS_OTHER_HOST: _shows_other_host,
    SpamSign.LINK_TO_IP: lambda target: (
        ":" in target.host or _NUMERIC.fullmatch(target.host) is not None
    ),
    SpamSign.LINK_WITH_USER: lambda target: "@" in target.parts.netloc,
    SpamSign.LINK_LOOKS_ALIKE: _looks_alike,
    SpamSign.LINK_SHORTENED: lambda target: target.host.removeprefix("www.") in SHORTENERS,
    SpamSign.LINK_WITHOUT_TLS: lambda target: target.parts.scheme.lower() == "http",
}


def _site(host: str) -> str:
    """The part of a host that its owner registered, as far as the name alone shows.

    It is `contoso.edu` for `news.contoso.edu`, and `contoso.co.uk` for `news.contoso.co.uk`.
    """
    labels = host.split(".")
    is_shared = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SHARED
    return ".".join(labels[-3 if is_shared else -2 :])


def _a_labels(host: str) -> str:
    if host.isascii():
        return host.lower()
    try:
        return idna.encode(host, uts46=True).decode()
    except UnicodeError:  # no browser opens it, so it is compared as typed
        return host.lower()


def _decoded(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label.removeprefix("xn--").encode().decode("punycode")
    except UnicodeError:
        return label


def _is_lookalike(label: str, *, is_foreign: bool) -> bool:
    """Whether a name mixes alphabets, or has only look-alikes under a Latin top-level domain."""
    letters = {letter for letter in label if letter.isalpha()}
    if all(letter.isascii() for letter in letters):
        return False
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in letters}
    if len(scripts & _SCRIPTS) > 1:
        return True
    return not is_foreign and (letters <= _CYRILLIC_TWINS or letters <= _GREEK_TWINS)
