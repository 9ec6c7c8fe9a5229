"""Where the DKIM keys of a domain are: the setting that names them, parsed."""

from __future__ import annotations

import re

import msgspec

from postroom.domain.address import parse_domain
from postroom.domain.errors import BadInput
from postroom.domain.texts import _, clipped

KEYS_MAX = 200  # a hundred domains with two selectors each
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SELECTOR = re.compile(rf"{_LABEL}(?:\.{_LABEL}){{0,3}}")  # RFC 6376 3.1


class KeyPlace(msgspec.Struct, frozen=True):
    """One entry of POSTROOM_DKIM_KEYS: the key in this file signs for this domain."""

    domain: str  # A-labels, lower case
    selector: str
    path: str

    def __str__(self) -> str:
        return f"{self.domain}:{self.selector}:{self.path}"


def parse_key_places(text: str) -> tuple[KeyPlace, ...]:
    """Parse `domain:selector:file, …`, or raise BadInput."""
    entries = [entry.strip() for entry in re.split(r"[,\n]", text) if entry.strip()]
    places = [_parse_place(number, entry) for number, entry in enumerate(entries, 1)]
    names = [(place.domain, place.selector) for place in places]
    for domain, selector in names:
        if names.count((domain, selector)) > 1:
            raise BadInput(
                _(
                    "The selector {selector} of {domain} is named twice; each needs its own key.",
                    selector=selector,
                    domain=domain,
                )
            )
    if len(places) > KEYS_MAX:
        raise BadInput(_("There are more than {limit} keys; remove some.", limit=KEYS_MAX))
    return tuple(places)


def check_selector(text: str) -> str:
    """The selector in lower case, or BadInput."""
    selector = text.strip().lower()
    if not _SELECTOR.fullmatch(selector):
        raise BadInput(
            _(
                "“{text}” cannot be a selector; use letters, digits and hyphens, such as s1.",
                text=clipped(text, 60),
            )
        )
    return selector


def _parse_place(number: int, entry: str) -> KeyPlace:
    parts = entry.split(":", 2)
    if len(parts) != 3 or not parts[2].strip():
        # It is not quoted, because somebody may have put the key itself here.
        raise BadInput(
            _(
                "entry {number} must be a domain, a selector and a file, such as "
                "contoso.edu:s1:/etc/postroom/s1.pem.",
                number=number,
            )
        )
    domain, selector, path = parts
    return KeyPlace(parse_domain(domain), check_selector(selector), path.strip())
