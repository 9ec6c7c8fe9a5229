"""A request is answered in the language its reader likes best, of those there are."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from postroom.domain.texts import ENGLISH, Language, _, language
from postroom.web.language import CHARS_READ_MAX, LanguageMiddleware, chosen, languages
from tests.web.office import LIST, open_office


def catalogue(folder: Path, tag: str, messages: dict[str, str]) -> None:
    """A compiled catalogue, as msgfmt writes it."""
    messages = {"": "Content-Type: text/plain; charset=UTF-8\n", **messages}
    pairs = sorted((one.encode(), other.encode()) for one, other in messages.items())
    texts, where = b"", list[tuple[int, int]]()
    for text in [one for one, _other in pairs] + [other for _one, other in pairs]:
        where.append((len(text), 28 + 16 * len(pairs) + len(texts)))
        texts += text + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0)
    path = folder / tag / "LC_MESSAGES" / "postroom.mo"
    path.parent.mkdir(parents=True)
    path.write_bytes(head + b"".join(struct.pack("<2I", *each) for each in where) + texts)


@pytest.fixture
def known(tmp_path: Path) -> list[Language]:
    """English, German and the Portuguese of Brazil."""
    catalogue(tmp_path, "de", {"Nothing to unsubscribe": "Nichts abzumelden"})
    catalogue(tmp_path, "pt_BR", {"Nothing to unsubscribe": "Nada a cancelar"})
    return languages(tmp_path)


def test_a_language_is_there_if_its_catalogue_is(known: list[Language], tmp_path: Path) -> None:
    assert [each.tag for each in known] == ["en", "de", "pt-BR"]
    assert known[1].catalogue.gettext("Nothing to unsubscribe") == "Nichts abzumelden"
    assert languages(tmp_path / "nowhere") == [ENGLISH]


@pytest.mark.parametrize(
    ("accepted", "tag"),
    [
        ("de", "de"),
        ("DE-at", "de"),
        ("de-CH-1996, en", "de"),
        ("fr, de;q=0.5, en;q=0.4", "de"),
        ("en-GB, de", "en"),
        ("de;q=0.1, en;q=0.9", "en"),
        ("de;q=0, pt", "pt-BR"),
        ("pt-PT, de;q=0.3", "de"),
        ("pt-BR", "pt-BR"),
        (" de ; q=0.7 , fr", "de"),
        ("fr", None),
        ("*", None),
        ("de;q=0", None),
        ("", None),
        ("de;q=x", None),
        (";;;,,,=", None),
        ("x" * 100_000, None),
        ("," * CHARS_READ_MAX + "de", None),
    ],
)
def test_the_best_liked_of_those_there_are_is_chosen(
    known: list[Language], accepted: str, tag: str | None
) -> None:
    found = chosen(accepted, {each.tag.lower(): each for each in known})
    assert (found.tag if found else None) == tag


async def test_a_page_speaks_the_language_of_its_reader_and_says_so(
    known: list[Language], tmp_path: Path
) -> None:
    async with open_office(tmp_path, spoken=known) as office:
        path = f"/u/{LIST}/nobody"
        german = await office.browser.get(path, headers={"accept-language": "de-DE,de;q=0.9"})
        assert '<html lang="de">' in german.text
        assert "Nichts abzumelden" in german.text
        assert german.headers["vary"] == "Accept-Language"
        english = await office.browser.get(path, headers={"accept-language": "fr"})
        assert '<html lang="en">' in english.text
        assert "Nothing to unsubscribe" in english.text


async def test_what_is_the_same_in_every_language_does_not_vary(
    known: list[Language], tmp_path: Path
) -> None:
    async with open_office(tmp_path, spoken=known) as office:
        assert "vary" not in (await office.browser.get("/static/public.css")).headers
    async with open_office(tmp_path, spoken=[ENGLISH]) as office:
        assert "vary" not in (await office.browser.get("/")).headers


async def test_an_error_page_speaks_as_well(known: list[Language], tmp_path: Path) -> None:
    async with open_office(tmp_path, spoken=known) as office:
        page = await office.browser.get("/nowhere", headers={"accept-language": "de"})
        assert page.status_code == 404
        assert '<html lang="de">' in page.text


async def test_a_stream_speaks_to_its_end_as_it_began_and_readers_do_not_mix(
    known: list[Language],
) -> None:
    begun = asyncio.Barrier(2)

    async def say(request: Request) -> Response:
        async def pieces() -> AsyncIterator[str]:
            await begun.wait()
            yield f"{language().tag}: {_('Nothing to unsubscribe')}"

        return StreamingResponse(pieces())

    app = LanguageMiddleware(Starlette(routes=[Route("/", say)]), known)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://test"
    ) as browser:
        asked = [browser.get("/", headers={"accept-language": tag}) for tag in ("de", "pt-BR")]
        german, portuguese = await asyncio.gather(*asked)
    assert german.text == "de: Nichts abzumelden"
    assert portuguese.text == "pt-BR: Nada a cancelar"
    assert language() is ENGLISH


async def test_a_header_that_stands_there_twice_is_one(known: list[Language]) -> None:
    async def say(request: Request) -> Response:
        return PlainTextResponse(language().tag)

    app = LanguageMiddleware(Starlette(routes=[Route("/", say)]), known)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://test"
    ) as browser:
        twice = [("accept-language", "fr"), ("accept-language", "de;q=0.5")]
        assert (await browser.get("/", headers=twice)).text == "de"
