"""Queues and dead letters: what waits, what was set aside and why, and what to do about it."""

from __future__ import annotations

from datetime import datetime

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions import handle_dead_letters
from postroom.domain.dead_letter import EXPLANATIONS, without_guids
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.subscriber import Subscriber
from postroom.domain.texts import Text
from postroom.records import dead_letters
from postroom.records.dead_letters import BuriedItem
from postroom.records.names import DEAD_LETTER_QUEUE, QUEUE_TEXTS, QUEUES
from postroom.storage.port import Queues
from postroom.web.admin.admin_request import AdminRequest, Owner, Viewer
from postroom.web.admin.subscriber import person_path
from postroom.web.forms import Form
from postroom.web.pages import go

router = APIRouter(prefix="/dead-letters")
PATH = "/admin/dead-letters"


class QueueState(msgspec.Struct, frozen=True):
    name: str
    purpose: Text
    length: int
    since: datetime | None  # when the next item was put; None: none can be claimed


class LetterView(msgspec.Struct, frozen=True):
    buried: BuriedItem
    explanation: Text
    body: str
    person: Subscriber | None
    person_path: str


@router.get("")
async def index(request: Viewer) -> Response:
    return await _index(request, Form())


@router.post("/put-back")
async def put_back(request: Owner) -> Response:
    id_ = (await request.form()).value("id")
    try:
        if id_:
            await handle_dead_letters.put_back(request.act(), id_)
            return go(PATH, "letter-put-back")
        back, staying = await handle_dead_letters.put_back_all(request.act())
        return go(PATH, "letters-put-back", back, staying)
    except (NotFound, WrongState) as error:
        return await _index(request, Form(mistake=str(error)), 409)


@router.post("/resend")
async def resend(request: Owner) -> Response:
    id_ = (await request.form()).value("id")
    try:
        await handle_dead_letters.resend(request.act(), id_)
    except (NotFound, WrongState) as error:
        return await _index(request, Form(mistake=str(error)), 409)
    return go(PATH, "asked")


@router.post("/clear")
async def clear(request: Owner) -> Response:
    """Clear one; after a second click the page says that it is gone."""
    id_ = (await request.form()).value("id")
    try:
        await handle_dead_letters.clear(request.act(), id_)
    except NotFound as error:
        return await _index(request, Form(mistake=str(error)), 409)
    return go(PATH, "letters-cleared", 1)


@router.get("/clear-all")
async def clear_all_page(request: Owner) -> Response:
    count = await request.storage.queues.length(DEAD_LETTER_QUEUE)
    return request.show("dead_letters/clear_all.html", count=count)


@router.post("/clear-all")
async def clear_all(request: Owner) -> Response:
    return go(PATH, "letters-cleared", await handle_dead_letters.clear_all(request.act()))


async def _index(request: AdminRequest, form: Form, status: int = 200) -> Response:
    queues = request.storage.queues
    found = await dead_letters.oldest_items(queues)
    states = [await queue_state(queues, name) for name in QUEUES]
    return request.show(
        "dead_letters/index.html",
        status,
        form=form,
        queues=states,
        letters=[await _view(request, each) for each in found],
        count=next(each.length for each in states if each.name == DEAD_LETTER_QUEUE),
    )


async def queue_state(queues: Queues, name: str) -> QueueState:
    waiting = await queues.peek(name, limit=1)
    since = waiting[0].put_at if waiting else None
    return QueueState(name, QUEUE_TEXTS[name], await queues.length(name), since)


async def _view(request: AdminRequest, buried: BuriedItem) -> LetterView:
    person = await handle_dead_letters.find_person(request.tables, buried.letter)
    path = person_path(request.context, person.list_name, person.key) if person else ""
    explanation = EXPLANATIONS[buried.letter.reason]
    is_owner = request.signed_in.may("owner")
    body = buried.letter.body if is_owner else without_guids(buried.letter.body)
    return LetterView(buried, explanation, body, person, path)
