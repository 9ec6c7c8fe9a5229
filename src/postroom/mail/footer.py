"""The foot of every message: why you get this, how to leave, the sender's postal address."""

from __future__ import annotations

import html as html_escape
import re

from postroom.mail.merge import escape_braces

# Comments are passed over, the last one also if it is never closed: nobody sees what is in them.
_END_OF_BODY = re.compile(r"<!--(?:.*?-->|.*)|(</body\s*>)", re.IGNORECASE | re.DOTALL)
_LEAVE = re.compile(r"\{\{\s*unsubscribe_url\b")


def with_footer(
    html: str | None, text: str | None, *, list_title: str, postal: str
) -> tuple[str | None, str | None]:
    """Each part with a foot, unless its writer placed the unsubscribe link already."""
    if html is not None and not _LEAVE.search(html):
        html = _into_body(html, _html_foot(list_title, postal))
    if text is not None and not _LEAVE.search(text):
        text = text.rstrip() + "\n\n" + _text_foot(list_title, postal)
    return html, text


def _text_foot(list_title: str, postal: str) -> str:
    title, address = escape_braces(list_title), escape_braces(postal)
    lines = ["-- ", f"You get this because you are on the list {title}."]
    lines.append("To leave it: {{ unsubscribe_url }}")
    return "\n".join([*lines, address] if postal else lines) + "\n"


def _html_foot(list_title: str, postal: str) -> str:
    title = escape_braces(html_escape.escape(list_title))
    address = f"<br>{escape_braces(html_escape.escape(postal))}" if postal else ""
    return (
        '<hr><p style="font-size:small;color:#667">'
        f"You get this because you are on the list {title}. "
        f'<a href="{{{{ unsubscribe_url }}}}">Leave the list</a>.{address}</p>\n'
    )


def _into_body(html: str, foot: str) -> str:
    ends = [end.start() for end in _END_OF_BODY.finditer(html) if end[1]]
    if not ends:
        return html.rstrip() + "\n" + foot
    return html[: ends[-1]] + foot + html[ends[-1] :]
