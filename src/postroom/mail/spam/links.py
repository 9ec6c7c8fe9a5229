"""Where the links of a mail lead, and what spam filters think of such places.

No network: a link is judged by how it is written.
"""

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

LABEL_CHARS_MAX = 500  # of a link: no address that it shows is longer
LABEL_CHARS_SHOWN = 40
HOST_CHARS_MAX = 255

# They hide where a link leads, and are used by spammers for that: filters know them by name.
SHORTENERS = frozenset(
    (
        *("bit.ly", "bitly.com", "buff.ly", "cutt.ly", "dlvr.it", "goo.gl", "is.gd", "j.mp"),
        *("lnkd.in", "ow.ly", "rb.gy", "rebrand.ly", "s.id", "shorturl.at", "t.co", "t.ly"),
        *("t1p.de", "tiny.cc", "tinyurl.com", "v.gd", "x.co", "tiny.one", "adf.ly", "bl.ink"),
    )
)
_URL = re.compile(r"https?://[^\s<>\"]+", re.I)
_TRAILING = ".,;:!?)]}'’”"
_NUMERIC = re.compile(r"(?:0x[0-9a-f]+|[0-9]+)(?:\.(?:0x[0-9a-f]+|[0-9]+)){0,3}", re.I)
_HOST = r"(?:[\w-]{1,63}\.){1,10}[^\W\d_]{2,24}"
_SHOWN_URL = re.compile(rf"\b(?:https?://|(?=www\.))({_HOST})", re.I)
# A whole label that is a host without more: only of domains that no file or product ends in.
_SHOWN_HOST = re.compile(
    r"((?:[\w-]{1,63}\.){1,10}(?:com|org|edu|gov|info|de|fr|it|es|nl|br|ru|cn|uk))(?:[/?#].*)?",
    re.I,
)
# Under the endings of many countries people register one label further down.
_SHARED = frozenset(("ac", "co", "com", "edu", "go", "gob", "gov", "ne", "net", "or", "org"))
# Letters that look like Latin ones, so that a name in them reads as another.
_CYRILLIC_TWINS = frozenset("аесіјорѕухһӏԁԛԝ")
_GREEK_TWINS = frozenset("ονυρ")
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")


class _Target(NamedTuple):
    """A link to a web page, taken apart."""

    link: PageLink
    parts: SplitResult
    host: str  # lower case, as A-labels


def links_in_text(text: str) -> list[PageLink]:
    """The web addresses of a plain text."""
    urls = (found[0].rstrip(_TRAILING) for found in _URL.finditer(text))
    return [PageLink(url, "") for url in dict.fromkeys(islice(urls, LINKS_READ_MAX))]


def signs_of_links(links: Iterable[PageLink], where: SpamPlace) -> Iterator[SpamFinding]:
    targets = [target for link in links if (target := _target(link))]
    for sign, is_so in _RULES.items():
        yield from finding(sign, where, (_shown(each, sign) for each in targets if is_so(each)))


def _target(link: PageLink) -> _Target | None:
    """None for what leads to no page, or where a merge field decides on the host."""
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


def _shown(target: _Target, sign: SpamSign) -> str:
    if sign is SpamSign.LINK_SHOWS_OTHER_HOST:
        return f"{target.link.label[:LABEL_CHARS_SHOWN]} → {target.host}"
    return target.link.href


# --- The rules, each about one link -----------------------------------------------------------


def _shows_other_host(target: _Target) -> bool:
    shown = _host_in_label(target.link.label)
    return shown is not None and _site(_a_labels(shown)) != _site(target.host)


def _is_to_ip(target: _Target) -> bool:
    return ":" in target.host or _NUMERIC.fullmatch(target.host) is not None


def _has_user(target: _Target) -> bool:
    return "@" in target.parts.netloc


def _looks_alike(target: _Target) -> bool:
    *labels, top = target.host.split(".")
    is_foreign = top.startswith("xn--")
    return any(_is_twin(_decoded(label), is_foreign=is_foreign) for label in labels)


def _is_shortened(target: _Target) -> bool:
    return target.host.removeprefix("www.") in SHORTENERS


def _is_without_tls(target: _Target) -> bool:
    return target.parts.scheme.lower() == "http"


_RULES: dict[SpamSign, Callable[[_Target], bool]] = {
    SpamSign.LINK_SHOWS_OTHER_HOST: _shows_other_host,
    SpamSign.LINK_TO_IP: _is_to_ip,
    SpamSign.LINK_WITH_USER: _has_user,
    SpamSign.LINK_LOOKS_ALIKE: _looks_alike,
    SpamSign.LINK_SHORTENED: _is_shortened,
    SpamSign.LINK_WITHOUT_TLS: _is_without_tls,
}


# --- Hosts ------------------------------------------------------------------------------------


def _host_in_label(label: str) -> str | None:
    """The host that a link's text claims to lead to, if it claims one."""
    label = label[:LABEL_CHARS_MAX]
    if FIELD in label:
        return None
    found = _SHOWN_URL.search(label) or _SHOWN_HOST.fullmatch(label.strip())
    return found[1].lower() if found else None


def _site(host: str) -> str:
    """The part of a host that its owner registered, as nearly as a name alone tells.

    `news.contoso.edu` and `contoso.edu` are one, and so are `news.contoso.co.uk` and
    `contoso.co.uk`.
    """
    labels = host.split(".")
    is_shared = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SHARED
    return ".".join(labels[-3 if is_shared else -2 :])


def _a_labels(host: str) -> str:
    if host.isascii():
        return host.lower()
    try:
        return idna.encode(host, uts46=True).decode()
    except UnicodeError:  # nobody can open it; it is compared as it stands
        return host.lower()


def _decoded(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label.removeprefix("xn--").encode().decode("punycode")
    except UnicodeError:
        return label


def _is_twin(label: str, *, is_foreign: bool) -> bool:
    """Whether a name mixes alphabets, or is written in look-alikes alone under a Latin ending."""
    letters = {letter for letter in label if letter.isalpha()}
    if all(letter.isascii() for letter in letters):
        return False
    scripts = {_script(letter) for letter in letters} & set(_SCRIPTS)
    if len(scripts) > 1:
        return True
    return not is_foreign and (letters <= _CYRILLIC_TWINS or letters <= _GREEK_TWINS)


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
