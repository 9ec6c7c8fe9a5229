"""The language of an answer: the one its reader prefers, of those available.

English is in the code; every other language is a catalogue, locale/<tag>/LC_MESSAGES/postroom.mo,
read once at the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from gettext import GNUTranslations
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroom.domain.texts import ENGLISH, Language, speaking

LOCALE = Path(__file__).parents[1] / "locale"
CHARS_READ_MAX = 200  # of the header; browsers send fewer
KEPT_MAX = 500  # headers cached with their choice
# A language range and its quality (RFC 9110, 12.5.4), 1 by default.
_RANGE = re.compile(
    r"\s*([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*)\s*(?:;\s*q=([01](?:\.[0-9]{0,3})?)\s*)?"
)
_ANY = "*"


def languages(folder: Path = LOCALE) -> list[Language]:
    """English, and every language with a catalogue."""
    found = []
    for path in sorted(folder.glob("*/LC_MESSAGES/postroom.mo")):
        with path.open("rb") as file:
            found.append(Language(path.parts[-3].replace("_", "-"), GNUTranslations(file)))
    return [ENGLISH, *found]


class LanguageMiddleware:
    """Middleware that answers each request in its language."""

    def __init__(self, app: ASGIApp, known: Iterable[Language]) -> None:
        self._app = app
        self._known = {each.tag.lower(): each for each in known}
        self._first = next(iter(self._known.values()))
        self._choose = lru_cache(KEPT_MAX)(self._chosen)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if len(self._known) == 1 or scope["path"].startswith("/static/"):
            with speaking(self._first):
                await self._app(scope, receive, send)
            return

        async def send_varied(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).add_vary_header("Accept-Language")
            await send(message)

        with speaking(self._choose(_accepted(scope))):
            await self._app(scope, receive, send_varied)

    def _chosen(self, accepted: str) -> Language:
        return chosen(accepted, self._known) or self._first


def chosen(accepted: str, known: Mapping[str, Language]) -> Language | None:
    """The best of the known languages for this header; None if it accepts none.

    A range matches its language in any country: de-AT finds de (RFC 4647, 3.4), pt finds pt-BR.
    """
    for range_ in _liked(accepted):
        parts = range_.split("-")
        shorter = ("-".join(parts[:length]) for length in range(len(parts), 0, -1))
        narrower = (tag for tag in known if tag.startswith(f"{range_}-"))
        for tag in (*shorter, *narrower):
            if tag in known:
                return known[tag]
    return None


def _liked(accepted: str) -> list[str]:
    """Ranges, the best first; malformed ones are left out."""
    found = [_RANGE.fullmatch(each) for each in accepted[:CHARS_READ_MAX].split(",")]
    liking = {each[1].lower(): float(each[2] or 1) for each in found if each}
    ordered = sorted(liking, key=lambda range_: -liking[range_])
    return [range_ for range_ in ordered if range_ != _ANY and liking[range_] > 0]


def _accepted(scope: Scope) -> str:
    found = [value for name, value in scope["headers"] if name == b"accept-language"]
    return b",".join(found).decode("latin-1")[:CHARS_READ_MAX]
