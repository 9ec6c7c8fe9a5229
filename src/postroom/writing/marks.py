"""Keep merge fields and control tags out of the way of parsers that know nothing about them.

Each field becomes one plain word and each control tag one comment, which every parser of Markdown,
MJML or HTML leaves where it is; afterwards they are put back. The words contain a hash of the text,
so no text can contain them by chance.
"""

from __future__ import annotations

import hashlib
import html
import re

from postroom.domain.message import BODY_BYTES_MAX
from postroom.domain.texts import _
from postroom.mail.control_flow import split_tags
from postroom.mail.entities import unescape
from postroom.mail.merge import BadTemplate, split_fields

MADE_CHARS_MAX = 2 * BODY_BYTES_MAX  # of the HTML that is made; anything over half is refused later


def check_length(made: str) -> str:
    """Refuse HTML that became far too long, before anything else is done with it."""
    if len(made) > MADE_CHARS_MAX:
        raise BadTemplate(
            _(
                "The resulting HTML is larger than {limit} MB. Shorten the text.",
                limit=BODY_BYTES_MAX // 1024**2,
            )
        )
    return made


class MarkedText:
    """A text with marks instead of fields and tags, and the way back."""

    def __init__(
        self, source: str, *, is_markup: bool = False, tags_as_words: bool = False
    ) -> None:
        self._is_markup = is_markup  # its fields may be written with entities
        digest = hashlib.sha256(source.encode(errors="replace")).hexdigest()[:16]
        self._word = f"mark{digest}n"
        self._kept: list[str] = []
        self._pattern = re.compile(rf"<!--{self._word}([0-9]+)z-->|{self._word}([0-9]+)z")
        pieces = split_tags(source)
        for at, piece in enumerate(pieces):
            if at % 2:
                word = self._mark(piece)
                pieces[at] = word if tags_as_words else f"<!--{word}-->"
                continue
            inner = split_fields(piece)
            inner[1::2] = [self._mark(field) for field in inner[1::2]]
            pieces[at] = "".join(inner)
        self.text = "".join(pieces)

    def _mark(self, piece: str) -> str:
        self._kept.append(unescape(piece) if self._is_markup else piece)
        return f"{self._word}{len(self._kept) - 1}z"

    def restored(self, text: str, *, is_html: bool = True) -> str:
        """Put the fields and tags back, in HTML as entities: a field may be in an attribute."""

        pieces = self.split(check_length(text))
        room = MADE_CHARS_MAX
        for at in range(1, len(pieces), 2):
            is_tag = pieces[at].startswith("{%")
            pieces[at] = html.escape(pieces[at]) if is_html and not is_tag else pieces[at]
            room -= len(pieces[at])
            if room < 0:  # a field of a style that every tag has
                break
        return check_length("".join(pieces))

    def split(self, text: str) -> list[str]:
        """Text and kept pieces in turn, as `re.split` does."""
        pieces: list[str] = []
        position = 0
        for mark in self._pattern.finditer(text):
            pieces += [text[position : mark.start()], self._kept[int(mark[1] or mark[2])]]
            position = mark.end()
        return [*pieces, text[position:]]
