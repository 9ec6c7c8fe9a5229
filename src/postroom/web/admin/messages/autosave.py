"""Autosave of drafts.

The form's script submits the whole form every few seconds, with its last etag. The reason why a
form cannot be saved is a normal response, not an error: the form shows it and keeps what was typed.

The first save of a new message creates the draft. If the response is lost, the form submits its
token again, perhaps with other content: the draft is found by the token and edited. Only drafts are
saved this way, because a scheduled message is sent as it was last saved by hand.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from postroom.domain.errors import NotFound, PostroomError
from postroom.domain.message import Message, Status
from postroom.domain.texts import Text, _
from postroom.flow import compose
from postroom.flow.compose import Draft, Revision
from postroom.records import messages
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Storage
from postroom.web.admin.admin_request import Editor
from postroom.web.admin.messages.form import MessageInput, posted_message, read_input, values_of
from postroom.web.admin.messages.writing import create_draft
from postroom.web.forms import ONCE, Form

router = APIRouter(prefix="/messages")

CHANGED = _(
    "Autosave is off because somebody else changed this message. Nothing was overwritten. Press "
    "“Save and check” to see both versions."
)
SCHEDULED = _(
    "Autosave is off because this message is no longer a draft. Press “Save and check” to see "
    "its status."
)
DELETED = _(
    "Autosave is off because somebody deleted this message. Press “Save and check” to save what "
    "you typed as a new message."
)


@router.post("/autosave")
@router.post("/{ref}/autosave")
async def autosave(request: Editor) -> Response:
    ref = request.http.path_params.get("ref", "")
    form = await posted_message(request.http)
    content = await read_input(form, request.tables)
    if content is None:
        return _refused(form)
    try:
        if ref:
            try:
                found = await messages.read_with_etag(request.tables, ref)
            except NotFound:
                return _stopped(DELETED)
            return await _edit(request.storage, found, content, form, form.value("etag"))
        token = Form({ONCE: form.value(ONCE)})  # the same draft, whatever its content is now
        result = await create_draft(request, token, Draft(**content._asdict()))
        created = await messages.find_live(request.tables, result.what.rpartition("/")[2])
        if created is None:
            return _stopped(DELETED)
        if created.value.edition:  # edited since, so not by this form, which has no etag yet
            return _stopped(CHANGED)
        return await _edit(request.storage, created, content, form, created.etag)
    except PostroomError as error:
        form.mistake = str(error)
        return _refused(form)


async def _edit(
    storage: Storage, found: Stored[Message], content: MessageInput, form: Form, etag: str
) -> Response:
    """Save, guarded by the etag: somebody else's change is never overwritten."""
    ref = found.value.ref
    if found.value.status is not Status.DRAFT:
        return _stopped(SCHEDULED)
    if etag == found.etag and not form.differences(await values_of(storage, found.value)):
        return _saved(ref, etag)
    try:
        _message, new_etag = await compose.edit(storage, ref, Revision(**content._asdict()), etag)
        return _saved(ref, new_etag)
    except Conflict:  # perhaps with our own last save, whose answer was lost
        current = await messages.find_live(storage.tables, ref)
    if current is None:
        return _stopped(DELETED)
    if current.value.status is not Status.DRAFT:
        return _stopped(SCHEDULED)
    if form.differences(await values_of(storage, current.value)):
        return _stopped(CHANGED)
    return _saved(ref, current.etag)


def _saved(ref: str, etag: str) -> Response:
    return JSONResponse({"state": "saved", "ref": ref, "etag": etag})


def _refused(form: Form) -> Response:
    """Not saved for now; the next input may fix it."""
    mistakes = [form.mistake, *form.mistakes.values()]
    return JSONResponse({"state": "refused", "words": next(filter(None, map(str, mistakes)))})


def _stopped(reason: Text) -> Response:
    """Stop autosave: a person has to compare both versions."""
    return JSONResponse({"state": "stopped", "words": str(reason)})
