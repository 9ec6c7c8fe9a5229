"""The templates that come with Postroom; people copy them and change the copy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from postroom.domain.block import BlockDocument, parse_document
from postroom.domain.texts import Text, _

READY_MADE: dict[str, Text] = {
    "announcement": _("Announcement"),
    "newsletter": _("Newsletter"),
    "event": _("Event"),
    "digest": _("Digest"),
    "letter": _("Letter"),
    "receipt": _("Receipt"),
}
_FOLDER = Path(__file__).parent / "ready_made"


@cache
def ready_made(template_id: str) -> BlockDocument:
    """The document of a template; KeyError if there is none of this name."""
    assert template_id in READY_MADE, template_id
    return parse_document((_FOLDER / f"{template_id}.json").read_bytes())
