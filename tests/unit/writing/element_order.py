"""The elements of an email in their order, also those that only Outlook reads."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser

_CONDITION = re.compile(r"\[if ([^\]]+)\]>(.*)<!\[endif\]", re.DOTALL)
_END = "[endif]"
_VOID = frozenset(("meta", "img", "br", "hr", "link", "v:fill"))  # whose end tag is optional


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, _attributes: object) -> None:
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            self.found.append(f"/{tag}")

    def handle_comment(self, data: str) -> None:
        """Outlook's comments: one that follows another with the same condition continues it."""
        condition = _CONDITION.fullmatch(data.strip())
        if condition is None:
            return
        begin = f"[if {condition[1].replace(' ', '')}]"
        begun = [each for each in self.found if each.startswith("[if")]
        if self.found and self.found[-1] == _END and begun[-1] == begin:
            self.found.pop()
        else:
            self.found.append(begin)
        self.found += elements(condition[2])
        self.found.append(_END)


def elements(page: str) -> list[str]:
    """Start and end tags; attributes and texts are left out."""
    reader = _Reader()
    reader.feed(page)
    return reader.found


def digest(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()
