"""Finish the bodies of a message: what its list and the installation add to them.

    {{ list_title }}   {{ postal_address }}   {{ view_url }}   {{ site_url }}

These fields have the same value in all emails of a message. They are replaced once, when it is
compiled, so they cost nothing per recipient. The preview text and the footer are added here, too.
"""

from __future__ import annotations

import html as html_escape
import re

import msgspec

from postroom.mail.footer import with_footer
from postroom.mail.merge import escape_braces
from postroom.mail.preview_text import with_preview_text


class MessageFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that a message has, and not its recipients."""

    list_title: str
    postal_address: str = ""
    view_url: str = "https://example.org/v"  # where only the shape of a message is checked
    site_url: str = "https://example.org"


_FIELD = re.compile(
    rf"\{{\{{\s*({'|'.join(MessageFields.__struct_fields__)})\s*"
    r"(?:\|\s*default\(\s*(?:\"|&quot;|'|&#x27;)([^\"'&]*)(?:\"|&quot;|'|&#x27;)\s*\)\s*)?\}\}"
)


def finished_bodies(
    html: str | None, text: str | None, own: MessageFields, preview_text: str = ""
) -> tuple[str | None, str | None]:
    """Add preview text and footer to each part, and fill in the fields of the message."""
    if html is not None and preview_text:
        html = with_preview_text(html, preview_text)
    title, postal = own.list_title, own.postal_address
    html, text = with_footer(html, text, list_title=title, postal=postal)
    if html is not None:
        html = _filled(html, own, is_html=True)
    if text is not None:
        text = _filled(text, own, is_html=False)
    return html, text


def _filled(template: str, own: MessageFields, *, is_html: bool) -> str:
    """Replace the fields by their values, or by their defaults where a value is empty."""

    def value(field: re.Match[str]) -> str:
        found = getattr(own, field[1]) or field[2] or ""
        return escape_braces(html_escape.escape(found) if is_html else found)

    return _FIELD.sub(value, template) if "{{" in template else template
