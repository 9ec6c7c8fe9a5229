"""Find pictures that readers of an HTML body will not see, by how their addresses are written.

Works offline: it does not ask whether a public address answers.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser

from postroom.domain.texts import clipped

SOURCE_CHARS_SHOWN = 60
_FIELD = "{{"  # a merge field: the address differs from reader to reader
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|[A-Za-z]\|[\\/]|\\\\")  # C:\logo.png, \\server\share
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}):")
_SPACES = re.compile(r"[\t\n\r]")  # browsers remove them from addresses
_PRIVATE_ENDINGS = frozenset(
    ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "arpa")
)


class UnseenReason(StrEnum):
    """Why readers do not see a picture."""

    NO_ADDRESS = "no address"
    RELATIVE = "relative"  # to a page, but an email has no address
    OWN_COMPUTER = "own computer"
    ATTACHMENT = "attachment"  # which our emails never have
    PRIVATE_HOST = "private host"
    IN_THE_HTML = "in the html"  # data:, which Gmail and Outlook do not show
    UNKNOWN_SCHEME = "unknown scheme"


_BY_SCHEME = {
    "file": UnseenReason.OWN_COMPUTER,
    "cid": UnseenReason.ATTACHMENT,
    "data": UnseenReason.IN_THE_HTML,
}


def unseen_pictures(document: LexborHTMLParser) -> dict[UnseenReason, list[str]]:
    """Find their sources, by reason, each once, in the order of the document."""
    images = [(node, "src") for node in document.css("img, input[type=image]")]
    images += [(node, "background") for node in document.css("[background]")]
    found: dict[UnseenReason, dict[str, None]] = {}
    for node, attribute in images:
        source = _SPACES.sub("", (node.attributes.get(attribute) or "").strip())
        reason = why_unseen(source)
        if reason is not None:
            found.setdefault(reason, {})[clipped(source, SOURCE_CHARS_SHOWN)] = None
    return {reason: list(sources) for reason, sources in found.items()}


def why_unseen(source: str) -> UnseenReason | None:
    """Say why readers do not see it; None if they probably do."""
    if not source:
        return UnseenReason.NO_ADDRESS
    if source.startswith(_FIELD):
        return None
    if _DRIVE.match(source):
        return UnseenReason.OWN_COMPUTER
    scheme = _SCHEME.match(source)
    if scheme is None:
        return UnseenReason.RELATIVE
    if scheme[1].lower() in ("http", "https"):
        return UnseenReason.PRIVATE_HOST if _is_private(source) else None
    return _BY_SCHEME.get(scheme[1].lower(), UnseenReason.UNKNOWN_SCHEME)


def _is_private(url: str) -> bool:
    """Whether only its own network can reach the host; False if a merge field is part of it."""
    try:
        host = (urlsplit(url[:2000]).hostname or "").rstrip(".")
    except ValueError:  # brackets that hold no IPv6 address
        return False
    if not host or _FIELD in url.partition("://")[2].partition("/")[0]:
        return False
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.rpartition(".")[2] in _PRIVATE_ENDINGS
