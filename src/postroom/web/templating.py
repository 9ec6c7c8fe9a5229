"""The template environment, which renders pages in the language of the reader.

Python creates texts with `_` of domain/texts.py, templates with {% trans %} and `_()`. Both are
translated when the page is rendered. Never use them in a {% set %} at the top of a template that
others import, because it runs once for all readers.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from postroom.domain.texts import language
from postroom.writing.editor_text import editor_document

TEMPLATES = Path(__file__).parent / "templates"


def template_environment() -> Environment:
    """An environment that escapes everything and refuses undefined names."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.install_gettext_callables(  # type: ignore[attr-defined]
        gettext,
        lambda one, many, count: language().catalogue.ngettext(one, many, count),
        newstyle=True,
        pgettext=lambda context, message: language().catalogue.pgettext(context, message),
    )
    environment.globals["editor_document"] = editor_document
    environment.globals["language_tag"] = lambda: language().tag  # for <html lang>
    return environment


def gettext(message: str) -> str:
    """Translate now."""
    return language().catalogue.gettext(message)
