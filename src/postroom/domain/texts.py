"""Texts for people: written in English where they arise, put into a language when they are read.

    raise BadInput(_("The subject is longer than {limit} characters.", limit=SUBJECT_CHARS_MAX))

`_`, `ngettext` and `pgettext` are the names that tools look for when they collect what is to be
translated, so what they are given is written out in place. The language is that of the moment in
which a text becomes a string: a page has its reader's, a terminal and a stored sentence English,
unless somebody says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from gettext import NullTranslations
from typing import NamedTuple


class Language(NamedTuple):
    tag: str  # BCP 47, as in <html lang>
    catalogue: NullTranslations


ENGLISH = Language("en", NullTranslations())
_spoken: ContextVar[Language] = ContextVar("spoken", default=ENGLISH)


def language() -> Language:
    """The one that texts are read in here and now."""
    return _spoken.get()


@contextmanager
def speaking(wanted: Language) -> Iterator[None]:
    """Texts are read in this language, also by tasks and threads begun within."""
    token = _spoken.set(wanted)
    try:
        yield
    finally:
        _spoken.reset(token)


class Text:
    """A text not yet read; `str()` reads it.

    No struct and no dataclass, on purpose: an encoder that meets one fails, instead of writing
    something that nobody can read.
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
        found = self._found(language().catalogue)
        if not self._values:
            return found
        try:
            return found.format_map(self._values)
        except (LookupError, ValueError):  # a translation with a mistyped place: English is better
            return self._found(ENGLISH.catalogue).format_map(self._values)

    def _found(self, catalogue: NullTranslations) -> str:
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
    """Values stand in braces, by name; without any, braces are only braces."""
    return Text(message, values)


def ngettext(one: str, many: str, count: int, /, **values: object) -> Text:
    """In the form that the language has for so many; {count} is at hand as a value."""
    return Text(one, {"count": count, **values}, plural=many, count=count)


def pgettext(context: str, message: str, /, **values: object) -> Text:
    """For a word that other languages have several of: the context tells translators which."""
    return Text(message, values, context=context)
