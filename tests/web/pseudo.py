"""A language in which every text stands in brackets, and what a page says outside of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from gettext import NullTranslations

from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.domain.texts import Language

OPEN, CLOSE = "⟦", "⟧"
READ_ALOUD = ("alt", "aria-label", "data-done", "placeholder", "title")
# What is inside is code, the source of a mail, or what somebody typed.
NOT_READ = {"code", "pre", "script", "style", "textarea"}


class Brackets(NullTranslations):
    def gettext(self, message: str) -> str:
        return f"{OPEN}{message}{CLOSE}"

    def ngettext(self, one: str, many: str, count: int) -> str:
        return self.gettext(one if count == 1 else many)

    def pgettext(self, context: str, message: str) -> str:
        return self.gettext(message)


PSEUDO = Language("en-XA", Brackets())


def untranslated(page: str, data: Iterable[str]) -> list[str]:
    """What people read on the page outside of brackets, but for the test's own data."""
    parser = LexborHTMLParser(page)
    assert parser.root
    nodes = [node for node in parser.root.traverse(include_text=True) if not _is_in_code(node)]
    pieces = [*_outside(node.text_content or "" for node in nodes if node.is_text_node)]
    for node in nodes:
        said = node.attributes if node.is_element_node else {}
        pieces += [piece for name in READ_ALOUD for piece in _outside([said.get(name) or ""])]
    known = sorted(data, key=len, reverse=True)
    worded = filter(_has_letters, pieces)
    return [piece.strip() for piece in worded if _has_letters(_without(piece, known))]


def _outside(texts: Iterable[str]) -> Iterator[str]:
    """A text may begin in one node and end in another: brackets count over all of them."""
    depth = 0
    for text in texts:
        outside = ""
        for character in text:
            depth += (character == OPEN) - (character == CLOSE)
            outside += character if not depth and character != CLOSE else " "
        yield outside
    assert depth == 0, "a bracket is open at the end"


def _without(piece: str, known: Iterable[str]) -> str:
    for each in known:
        piece = piece.replace(each, " ")
    return piece


def _has_letters(text: str) -> bool:
    return any(character.isalpha() for character in text)


def _is_in_code(node: LexborNode) -> bool:
    above = node.parent
    while above is not None:
        if above.tag in NOT_READ:
            return True
        above = above.parent
    return False
