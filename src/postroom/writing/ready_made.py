"""The templates that come with Postroom; people copy them and change the copy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from postroom.domain.block import BlockDocument, parse_document
from postroom.domain.message_template import TemplateKind
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


def ready_made_data(template_id: str) -> dict[str, Any]:
    """A ready-made template as JSON, as `template_data` describes the others."""
    return {
        "id": template_id,
        "kind": TemplateKind.TEMPLATE,
        "title": str(READY_MADE[template_id]),
        "ready_made": True,
        "created_at": None,
        "changed_at": None,
    }
