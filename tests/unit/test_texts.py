"""Texts are translated into the current language when they become strings."""

from __future__ import annotations

import asyncio
import json
import pickle
from gettext import NullTranslations
from typing import Any

import msgspec
import pytest

from postroom.domain.errors import BadInput
from postroom.domain.message import STATUS_TEXTS, Status
from postroom.domain.texts import ENGLISH, Language, Text, _, language, ngettext, pgettext, speaking

GERMAN = {
    "The list {name} is full.": "Die Liste {name} ist voll.",
    "Write {what}.": "Schreibe {what}.",
    "a subject": "einen Betreff",
    "{left} left": "{recht} übrig",
    "{count:,} row": "{count:,} Zeile",
    "{count:,} rows": "{count:,} Zeilen",
    "a message is\x04draft": "Entwurf",
}


class Catalogue(NullTranslations):
    def gettext(self, message: str) -> str:
        return GERMAN.get(message, message)

    def ngettext(self, one: str, many: str, count: int) -> str:
        return self.gettext(one if count == 1 else many)

    def pgettext(self, context: str, message: str) -> str:
        return GERMAN.get(f"{context}\x04{message}", message)


DE = Language("de", Catalogue())


def test_a_text_is_english_by_default() -> None:
    text = _("The list {name} is full.", name="contoso1")
    assert str(text) == "The list contoso1 is full."
    assert language() is ENGLISH


def test_a_text_is_read_in_the_language_of_the_moment() -> None:
    text = _("The list {name} is full.", name="contoso1")
    with speaking(DE):
        assert str(text) == "Die Liste contoso1 ist voll."
    assert str(text) == "The list contoso1 is full."


def test_a_text_within_a_text_is_read_with_it() -> None:
    text = _("Write {what}.", what=_("a subject"))
    with speaking(DE):
        assert str(text) == f"{text}" == "Schreibe einen Betreff."
        assert f"{_('a subject'):>15}" == "  einen Betreff"


def test_braces_of_a_value_and_of_a_text_without_values_stay() -> None:
    assert str(_("Write {{ name }}.")) == "Write {{ name }}."
    assert str(_("The list {name} is full.", name="{name}")) == "The list {name} is full."


def test_a_translation_with_a_mistyped_place_falls_back_to_english() -> None:
    with speaking(DE):
        assert str(_("{left} left", left=3)) == "3 left"


@pytest.mark.parametrize(
    ("count", "english", "german"),
    [(1, "1 row", "1 Zeile"), (2, "2 rows", "2 Zeilen"), (1200, "1,200 rows", "1,200 Zeilen")],
)
def test_how_many_decides_on_the_form(count: int, english: str, german: str) -> None:
    text = ngettext("{count:,} row", "{count:,} rows", count)
    assert str(text) == english
    with speaking(DE):
        assert str(text) == german


def test_the_context_decides_on_the_word() -> None:
    assert str(pgettext("a message is", "draft")) == str(pgettext("a wind is", "draft"))
    with speaking(DE):
        assert str(STATUS_TEXTS[Status.DRAFT]) == "Entwurf"
        assert str(pgettext("a wind is", "draft")) == "draft"


def test_an_error_is_in_the_language_of_its_reader() -> None:
    with pytest.raises(BadInput) as caught:
        raise BadInput(_("The list {name} is full.", name="contoso1"))
    error = caught.value
    assert str(error) == "The list contoso1 is full."
    with speaking(DE):
        assert str(error) == f"{error}" == "Die Liste contoso1 ist voll."
        assert str(pickle.loads(pickle.dumps(error))) == "Die Liste contoso1 ist voll."


def test_texts_are_equal_if_all_they_say_is() -> None:
    text = _("The list {name} is full.", name="contoso1")
    same = _("The list {name} is full.", name="contoso1")
    assert text == same
    assert hash(text) == hash(same)
    assert text != _("The list {name} is full.", name="contoso2")
    assert text != "The list contoso1 is full."
    assert "contoso1" in repr(text)


@pytest.mark.parametrize("encode", [json.dumps, msgspec.json.encode, msgspec.to_builtins])
def test_a_text_cannot_be_stored_untranslated(encode: Any) -> None:
    with pytest.raises(TypeError):
        encode({"detail": Text("a subject", {})})


async def test_tasks_and_threads_inherit_the_language() -> None:
    text = _("a subject")

    async def read() -> str:
        return str(text)

    with speaking(DE):
        task, in_thread = asyncio.create_task(read()), await asyncio.to_thread(str, text)
    assert (await task, in_thread, str(text)) == ("einen Betreff", "einen Betreff", "a subject")
