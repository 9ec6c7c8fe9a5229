"""Autosave of drafts.

The script of the form sends all of it every few seconds, with the etag it has. What cannot be saved
yet, or not any more, is a value, not an error: the form says why and keeps what was typed.

A new message becomes a draft with the first save. If the answer to that one is lost, the form sends
its token again, perhaps with other words: the draft is found by the token, and edited. Only a draft
is saved this way: a scheduled message goes out as it was last saved by hand.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from postroom.domain.errors import NotFound, PostroomError
from postroom.domain.message import Message, Status
from postroom.domain.texts import Text, _
from postroom.flow import compose
from postroom.flow.compose import Draft, Revision
from postroom.records import messages
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Storage
from postroom.web.admin.messages.form import MessageInput, posted_message, read_input, values_of
from postroom.web.admin.messages.writing import create_draft
from postroom.web.context import context_of
from postroom.web.forms import ONCE, Form
from postroom.web.signed_in import Editor

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
async def create(request: Request, signed_in: Editor) -> Response:
    storage = context_of(request).storage
    form = await posted_message(request)
    said = await read_input(form)
    if said is None:
        return _refused(form)
    draft = Draft(**said._asdict())
    token = Form({ONCE: form.value(ONCE)})  # the same draft, whatever it says by now
    try:
        done = await create_draft(request, signed_in, token, draft)
        ref = done.what.rpartition("/")[2]
        found = await messages.find_live(storage.tables, ref)
        if found is None:
            return _stopped(DELETED)
        if found.value.edition:  # edited since, so not by this form, which has no etag yet
            return _stopped(CHANGED)
        return await _edit(storage, found, said, form, found.etag)
    except PostroomError as error:
        form.mistake = str(error)
        return _refused(form)


@router.post("/{ref}/autosave")
async def edit(request: Request, signed_in: Editor, ref: str) -> Response:
    storage = context_of(request).storage
    form = await posted_message(request)
    said = await read_input(form)
    if said is None:
        return _refused(form)
    try:
        found = await messages.read_with_etag(storage.tables, ref)
    except NotFound:
        return _stopped(DELETED)
    try:
        return await _edit(storage, found, said, form, form.value("etag"))
    except PostroomError as error:
        form.mistake = str(error)
        return _refused(form)


async def _edit(
    storage: Storage, found: Stored[Message], said: MessageInput, form: Form, etag: str
) -> Response:
    """Save, guarded by the etag: somebody else's change is never overwritten."""
    ref = found.value.ref
    if found.value.status is not Status.DRAFT:
        return _stopped(SCHEDULED)
    if etag == found.etag and _says_the_same(form, await values_of(storage, found.value)):
        return _saved(ref, etag)
    try:
        _message, new_etag = await compose.edit(storage, ref, Revision(**said._asdict()), etag)
    except Conflict:
        return await _changed(storage, ref, form)
    return _saved(ref, new_etag)


async def _changed(storage: Storage, ref: str, form: Form) -> Response:
    """Whether our own last save was stored although its answer was lost."""
    found = await messages.find_live(storage.tables, ref)
    if found is None:
        return _stopped(DELETED)
    if found.value.status is not Status.DRAFT:
        return _stopped(SCHEDULED)
    is_ours = _says_the_same(form, await values_of(storage, found.value))
    return _saved(ref, found.etag) if is_ours else _stopped(CHANGED)


def _says_the_same(form: Form, stored: dict[str, str]) -> bool:
    return all(form.value(name).strip() == value.strip() for name, value in stored.items())


def _saved(ref: str, etag: str) -> Response:
    return JSONResponse({"state": "saved", "ref": ref, "etag": etag})


def _refused(form: Form) -> Response:
    """Not saved for now; the next input may fix it."""
    sentences = [form.mistake, *form.mistakes.values()]
    why = next(str(each) for each in sentences if str(each))
    return JSONResponse({"state": "refused", "words": why})


def _stopped(why: Text) -> Response:
    """Stop autosave: a person has to compare both versions."""
    return JSONResponse({"state": "stopped", "words": str(why)})
