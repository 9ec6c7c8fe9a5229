"""Texts people read go through gettext from the first line; English is what the code says."""

from __future__ import annotations

from gettext import NullTranslations
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"
_english = NullTranslations()
gettext = _english.gettext


def pages() -> Environment:
    """Templates with everything escaped and nothing undefined."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.install_gettext_translations(_english, newstyle=True)  # type: ignore[attr-defined]
    return environment
