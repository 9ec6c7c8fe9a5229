"""The footer of every message: the reason, the unsubscribe link, the postal address."""

from __future__ import annotations

import html as html_escape
import re

from postroom.domain.texts import ENGLISH, _, speaking
from postroom.mail.merge import escape_braces

# Skips comments, also one that is never closed: nobody sees what is in them.
_END_OF_BODY = re.compile(r"<!--(?:.*?-->|.*)|(</body\s*>)", re.IGNORECASE | re.DOTALL)
_UNSUBSCRIBE = re.compile(r"\{\{\s*unsubscribe_url\b")


def with_footer(
    html: str | None, text: str | None, *, list_title: str, postal: str
) -> tuple[str | None, str | None]:
    """Add a footer to each part, unless its author placed the unsubscribe link already."""
    with speaking(ENGLISH):  # a preview shows what is sent, whatever language its reader has
        why = str(_("You are receiving this because you subscribed to {list}.", list=list_title))
        unsubscribe = str(_("Unsubscribe"))
    if html is not None and not _UNSUBSCRIBE.search(html):
        lines = [f'{_html(why)} <a href="{{{{ unsubscribe_url }}}}">{_html(unsubscribe)}</a>']
        lines += [_html(postal)] if postal else []
        foot = f'<hr><p style="font-size:small;color:#667">{"<br>".join(lines)}</p>\n'
        html = _into_body(html, foot)
    if text is not None and not _UNSUBSCRIBE.search(text):
        lines = ["-- ", escape_braces(why), f"{unsubscribe}: {{{{ unsubscribe_url }}}}"]
        lines += [escape_braces(postal)] if postal else []
        text = text.rstrip() + "\n\n" + "\n".join(lines) + "\n"
    return html, text


def _html(text: str) -> str:
    return escape_braces(html_escape.escape(text))


def _into_body(html: str, foot: str) -> str:
    ends = [end.start() for end in _END_OF_BODY.finditer(html) if end[1]]
    if not ends:
        return html.rstrip() + "\n" + foot
    return html[: ends[-1]] + foot + html[ends[-1] :]
