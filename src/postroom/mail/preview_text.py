"""The preview text of a message: the words beside the subject in an inbox, hidden in the email."""

from __future__ import annotations

import html as html_escape
import re

from postroom.domain.errors import BadInput
from postroom.domain.texts import _, is_one_line

PREVIEW_CHARS_MAX = 200
# Skips comments and the head, where a "<body" would be text. Each alternative matches wherever it
# begins, so nothing is read twice; a body that ends within a tag is refused later.
_BODY = re.compile(
    r"<!--(?:.*?-->|.*)|(<body\b(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\"'>])*+(?:>|\Z))",
    re.IGNORECASE | re.DOTALL,
)
_DOCTYPE_OR_HEAD = re.compile(r"\s*(?:<!doctype[^>]*>)?\s*", re.IGNORECASE)
_HIDDEN = (
    "display:none;font-size:1px;line-height:1px;max-height:0;max-width:0;opacity:0;overflow:hidden;"
    "mso-hide:all"
)
# Otherwise inboxes fill the line with the beginning of the message.
_PADDING = ("&#847;&zwnj;&nbsp;" * 10 + "\n") * 3


def check_preview_text(text: str) -> str:
    text = " ".join(text.split())
    if len(text) > PREVIEW_CHARS_MAX:
        raise BadInput(
            _("The preview text is longer than {limit} characters.", limit=PREVIEW_CHARS_MAX)
        )
    if not is_one_line(text):
        raise BadInput(_("The preview text must be one line without control characters."))
    return text


def with_preview_text(html: str, text: str) -> str:
    """Put the text, a template with merge fields, at the very beginning of the body."""
    if not text:
        return html
    hidden = f'<div style="{_HIDDEN}">{html_escape.escape(text)}{_PADDING}</div>\n'
    for body in _BODY.finditer(html):
        if body[1]:
            return f"{html[: body.end()]}{hidden}{html[body.end() :]}"
    start = _DOCTYPE_OR_HEAD.match(html)
    at = start.end() if start else 0
    return f"{html[:at]}{hidden}{html[at:]}"
