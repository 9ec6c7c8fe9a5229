"""The language of a response: the available one that its reader prefers.

English is in the code; every other language is a catalogue, locale/<tag>/LC_MESSAGES/postroom.mo,
read once at the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from gettext import GNUTranslations
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroom.domain.texts import ENGLISH, Language, speaking

LOCALE = Path(__file__).parents[1] / "locale"
CHARS_READ_MAX = 200  # of the header; browsers send fewer
# A language range and its quality (RFC 9110, 12.5.4), 1 by default.
_RANGE = re.compile(
    r"\s*([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*)\s*(?:;\s*q=([01](?:\.[0-9]{0,3})?)\s*)?"
)


def languages(folder: Path = LOCALE) -> list[Language]:
    """English, and every language with a catalogue."""
    found = []
    for path in sorted(folder.glob("*/LC_MESSAGES/postroom.mo")):
        with path.open("rb") as file:
            found.append(Language(path.parts[-3].replace("_", "-"), GNUTranslations(file)))
    return [ENGLISH, *found]


class LanguageMiddleware:
    """Middleware that responds to each request in its language."""

    def __init__(self, app: ASGIApp, available: Iterable[Language]) -> None:
        self._app = app
        self._available = {each.tag.lower(): each for each in available}
        self._first = next(iter(self._available.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if len(self._available) == 1 or scope["path"].startswith("/static/"):
            with speaking(self._first):
                await self._app(scope, receive, send)
            return

        async def send_varied(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).add_vary_header("Accept-Language")
            await send(message)

        headers = [value for name, value in scope["headers"] if name == b"accept-language"]
        header = b",".join(headers).decode("latin-1")
        with speaking(chosen(header, self._available) or self._first):
            await self._app(scope, receive, send_varied)


def chosen(header: str, available: Mapping[str, Language]) -> Language | None:
    """The best of the available languages for this header; None if it accepts none.

    A range matches its language in any country: de-AT finds de (RFC 4647, 3.4), pt finds pt-BR.
    Malformed ranges are ignored.
    """
    found = [_RANGE.fullmatch(each) for each in header[:CHARS_READ_MAX].split(",")]
    quality = {each[1].lower(): float(each[2] or 1) for each in found if each}
    for range_ in sorted(quality, key=lambda each: -quality[each]):
        if range_ == "*" or not quality[range_]:
            continue
        parts = range_.split("-")
        shorter = ("-".join(parts[:length]) for length in range(len(parts), 0, -1))
        narrower = (tag for tag in available if tag.startswith(f"{range_}-"))
        for tag in (*shorter, *narrower):
            if tag in available:
                return available[tag]
    return None
