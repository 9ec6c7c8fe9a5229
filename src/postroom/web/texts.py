"""Templates, and texts in the language of the reader.

Python makes texts with `_` of domain/texts.py, templates with {% trans %} and `_()`; both are
translated when the page is rendered. Never use them in a {% set %} at the top of a template that
others import: it runs once for all readers.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from postroom.domain.texts import language

TEMPLATES = Path(__file__).parent / "templates"


def pages() -> Environment:
    """The template environment: everything escaped, nothing undefined."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.install_gettext_callables(  # type: ignore[attr-defined]
        gettext, _ngettext, newstyle=True, pgettext=_pgettext
    )
    environment.globals["language_tag"] = _language_tag
    return environment


def gettext(message: str) -> str:
    """Translate now."""
    return language().catalogue.gettext(message)


def _ngettext(one: str, many: str, count: int) -> str:
    return language().catalogue.ngettext(one, many, count)


def _pgettext(context: str, message: str) -> str:
    return language().catalogue.pgettext(context, message)


def _language_tag() -> str:
    """For <html lang>."""
    return language().tag
