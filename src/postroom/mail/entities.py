"""The characters that references in HTML stand for: &amp; and &#8364;."""

from __future__ import annotations

import html
import re

# No character has so many digits, and Python refuses to read a number of over 4300.
_ENDLESS = re.compile(r"&#[0-9]{1000,}+;?+")


def unescape(text: str) -> str:
    """As `html.unescape`, but a number that is far too long becomes an unknown character."""
    return html.unescape(_ENDLESS.sub("\ufffd", text))
