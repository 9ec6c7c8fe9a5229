"""Texts for people, written in English in the code and translated when they are shown.

    raise BadInput(_("The subject is longer than {limit} characters.", limit=SUBJECT_CHARS_MAX))

Translation tools collect the arguments of `_`, `ngettext` and `pgettext`, so they must be literals.
A text is translated when it becomes a string: into the reader's language on a page, into English on
a terminal or in storage, unless `speaking` says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from gettext import NullTranslations
from typing import NamedTuple


class Language(NamedTuple):
    tag: str  # BCP 47, as in <html lang>
    catalogue: NullTranslations


# Control characters, line ends, changes of direction, and what no text may contain.
_NOT_IN_A_LINE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
ENGLISH = Language("en", NullTranslations())
_spoken: ContextVar[Language] = ContextVar("spoken", default=ENGLISH)


def language() -> Language:
    """The current language of texts."""
    return _spoken.get()


@contextmanager
def speaking(language: Language) -> Iterator[None]:
    """Translate texts into this language within the block, also in tasks started there."""
    token = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(token)


class Text:
    """A text that `str()` translates.

    Deliberately not a struct or dataclass: an encoder that gets one fails, instead of writing
    something unreadable.
    """

    __slots__ = ("_context", "_count", "_message", "_plural", "_values")

    def __init__(
        self,
        message: str,
        values: dict[str, object],
        *,
        context: str = "",
        plural: str = "",
        count: int = 1,
    ) -> None:
        self._message = message
        self._values = values
        self._context = context
        self._plural = plural
        self._count = count

    def __str__(self) -> str:
        text = self._translated(language().catalogue)
        if not self._values:
            return text
        try:
            return text.format_map(self._values)
        except (LookupError, ValueError):  # a mistake in the translation: English is better
            return self._translated(ENGLISH.catalogue).format_map(self._values)

    def _translated(self, catalogue: NullTranslations) -> str:
        if self._context:
            return catalogue.pgettext(self._context, self._message)
        if self._plural:
            return catalogue.ngettext(self._message, self._plural, self._count)
        return catalogue.gettext(self._message)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __repr__(self) -> str:
        return f"Text({self._message!r}, {self._values!r})"

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, Text) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._message, self._context))

    def _parts(self) -> tuple[object, ...]:
        return self._message, self._values, self._context, self._plural, self._count


def _(message: str, /, **values: object) -> Text:
    """A text with values in braces, by name; without values, braces are plain characters."""
    return Text(message, values)


def ngettext(one: str, many: str, count: int, /, **values: object) -> Text:
    """A text whose form depends on the count, which is also the value {count}."""
    return Text(one, {"count": count, **values}, plural=many, count=count)


def pgettext(context: str, message: str, /, **values: object) -> Text:
    """A text that other languages translate differently by context."""
    return Text(message, values, context=context)


def is_one_line(text: str) -> bool:
    """Whether it can be one line of a page or a header.

    Unlike `str.isprintable`, it allows no-break spaces and the invisible joiners within Persian
    words and emoji, but nothing that ends the line or turns its direction.
    """
    return not _NOT_IN_A_LINE.search(text)


def clipped(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"
