"""The story of a message, or of one of its deliveries, step by step."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.errors import NotFound
from postroom.domain.texts import _
from postroom.domain.trace_entry import ROLE_TEXTS
from postroom.records import messages, stories
from postroom.web.admin.admin_request import Viewer
from postroom.web.admin.subscriber import person_path

router = APIRouter(prefix="/messages/{ref}/story")
_PLACE = re.compile(r"([0-9]{1,9})\.([0-9]{1,3})")


@router.get("")
async def story_page(request: Viewer, ref: str) -> Response:
    """A delivery is named by its batch and position, so that no URL contains an address."""
    message = await messages.read(request.tables, ref)
    values: dict[str, Any] = {"message": message, "delivery": None, "roles": ROLE_TEXTS}
    if not request.query("delivery"):
        events = await stories.of_message(request.tables, message)
        return request.show("messages/story.html", events=events, **values)
    place = _PLACE.fullmatch(request.query("delivery"))
    if place is None:
        raise NotFound(_("There is no such page."))
    story = await stories.of_delivery(request.tables, message, int(place[1]), int(place[2]))
    values["delivery"] = story.delivery
    values["person"] = person_path(request.context, message.list_name, story.delivery.key)
    return request.show("messages/story.html", events=story.events, **values)
