"""Merge fields whose braces do not match, which recipients would see as typed."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

# {name}}, {{ name } and { name }
_BRACES = re.compile(r"(?<!\{)(\{{1,2})[ \t\xa0]*(\w[\w .-]{0,60}?)[ \t\xa0]*(\}{1,2})(?!\})")
_CODE = re.compile(r"<(style|script)\b.*?(?:</\1|\Z)", re.IGNORECASE | re.DOTALL)


def broken_fields(text: str, known: Container[str] = ()) -> Iterator[re.Match[str]]:
    """Find them outside of style sheets; `{ name }` only if there is such a field."""
    text = _CODE.sub(lambda code: " " * len(code[0]), text)
    for found in _BRACES.finditer(text):
        opening, name, closing = found.groups()
        if len(opening) != len(closing) or (len(opening) == 1 and name in known):
            yield found


def repaired_field(text: str, found: re.Match[str]) -> str:
    """The text with two braces on each side of this field."""
    return f"{text[: found.start()]}{{{{ {found[2]} }}}}{text[found.end() :]}"
