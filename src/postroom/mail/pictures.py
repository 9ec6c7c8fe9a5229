"""Pictures of an HTML body that its readers will not see, told by how their addresses are written.

No network: whether a public address answers is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

SOURCE_CHARS_SHOWN = 60
_FIELD = "{{"  # a merge field: every reader has another address there
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|[A-Za-z]\|[\\/]|\\\\")  # C:\logo.png, \\server\share
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}):")
_SPACES = re.compile(r"[\t\n\r]")  # browsers leave them out of addresses
_PRIVATE_ENDINGS = frozenset(
    ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "arpa")
)


class UnseenReason(StrEnum):
    """Why nobody but the author sees a picture."""

    NO_ADDRESS = "no address"
    RELATIVE = "relative"  # to a page, and a mail is none
    OWN_COMPUTER = "own computer"
    ATTACHMENT = "attachment"  # of which our mails have none
    PRIVATE_HOST = "private host"
    IN_THE_HTML = "in the html"  # data:, which Gmail and Outlook leave out
    UNKNOWN_SCHEME = "unknown scheme"


def unseen_pictures(document: LexborHTMLParser) -> dict[UnseenReason, list[str]]:
    """Their sources by reason, each once, in the order of the document."""
    found: dict[UnseenReason, list[str]] = {}
    for source in _sources(document):
        why = why_unseen(source)
        if why is not None:
            found.setdefault(why, []).append(_clipped(source))
    return {why: list(dict.fromkeys(sources)) for why, sources in found.items()}


def _sources(document: LexborHTMLParser) -> Iterator[str]:
    for node in document.css("img, input[type=image]"):
        yield _attribute(node, "src")
    for node in document.css("[background]"):
        yield _attribute(node, "background")


def _attribute(node: LexborNode, name: str) -> str:
    return _SPACES.sub("", (node.attributes.get(name) or "").strip())


def why_unseen(source: str) -> UnseenReason | None:
    """None if readers can be expected to see it."""
    if not source:
        return UnseenReason.NO_ADDRESS
    if source.startswith(_FIELD):
        return None
    if _DRIVE.match(source):
        return UnseenReason.OWN_COMPUTER
    scheme = _SCHEME.match(source)
    if scheme is None:
        return UnseenReason.RELATIVE
    match scheme[1].lower():
        case "http" | "https":
            return UnseenReason.PRIVATE_HOST if _is_private(source) else None
        case "file":
            return UnseenReason.OWN_COMPUTER
        case "cid":
            return UnseenReason.ATTACHMENT
        case "data":
            return UnseenReason.IN_THE_HTML
        case _:
            return UnseenReason.UNKNOWN_SCHEME


def _is_private(url: str) -> bool:
    """Whether only its own network can reach the host; one that a field decides on is not."""
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


def _clipped(source: str) -> str:
    if len(source) <= SOURCE_CHARS_SHOWN:
        return source
    return source[: SOURCE_CHARS_SHOWN - 1] + "…"
