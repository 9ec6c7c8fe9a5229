"""Writing a message: typed as HTML or Markdown, uploaded, or started from an example."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import (
    EDITABLE,
    Message,
    OnDoubt,
    Status,
    ref_of_call,
)
from postroom.domain.texts import Text, _
from postroom.flow import compose
from postroom.flow.compose import Draft, Origin, Revision
from postroom.records import lists, messages
from postroom.storage.port import Conflict, Storage, StorageError, Tables
from postroom.web.admin.messages.form import (
    MessageInput,
    bodies_in,
    posted_message,
    read_input,
    values_of,
)
from postroom.web.admin.messages.mail_checks import (
    CheckReport,
    WrittenMessage,
    check,
    find_person,
    sample,
)
from postroom.web.context import context_of
from postroom.web.forms import Form, list_named
from postroom.web.mail_view import framed
from postroom.web.pages import go, part, show
from postroom.web.signed_in import Editor, SignedIn, act_of
from postroom.web.submit_once import Submission, SubmitResult, act_once
from postroom.web.templating import TEMPLATES

router = APIRouter(prefix="/messages")
LISTS_OFFERED_MAX = 200
KINDS = [("html", _("HTML")), ("markdown", _("Markdown"))]
KIND_NAMES = [name for name, _text in KINDS]
DOUBTS = [
    (
        OnDoubt.RESEND.value,
        _(
            "Send again: nobody misses it, but a few people may get a second copy with the same "
            "Message-ID."
        ),
    ),
    (OnDoubt.HOLD.value, _("Hold: nobody gets it twice. You decide on the message’s page.")),
]


class MessageName(NamedTuple):
    """What a form needs of its message when storage does not respond."""

    ref: str
    subject: str


class Example(NamedTuple):
    title: Text
    sentence: Text
    subject: str
    kind: str
    file: Path


_MAILS = TEMPLATES / "mails"
EXAMPLES = {
    "announcement": Example(
        _("Announcement"),
        _("One news item and a button."),
        "New lecture series",
        "html",
        _MAILS / "announcement.html",
    ),
    "newsletter": Example(
        _("Newsletter"),
        _("A greeting and three short articles."),
        "What is new this month",
        "html",
        _MAILS / "newsletter.html",
    ),
    "letter": Example(
        _("Letter"),
        _("Plain text in Markdown."),
        "A word from the department",
        "markdown",
        _MAILS / "letter.md",
    ),
}


@router.get("/new")
async def new_page(request: Request, signed_in: Editor) -> Response:
    chosen = request.query_params.get("list", "")
    example = EXAMPLES.get(request.query_params.get("example", ""))
    values = {"list": chosen, "kind": "html", "on_doubt": OnDoubt.RESEND.value}
    if example:
        body = example.file.read_text(encoding="utf-8")
        values |= {"subject": example.subject, "kind": example.kind, "body": body}
    return await _form(request, signed_in, Form(values), None)


@router.get("/write")
async def write_nothing(request: Request, signed_in: Editor) -> Response:
    """A reload of the page that showed a form with errors."""
    return go("/admin/messages/new")


@router.post("/write")
async def create(request: Request, signed_in: Editor) -> Response:
    form = await posted_message(request)
    said = await read_input(form)
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    if said:
        draft = Draft(**said._asdict())
        try:
            with _mistakes_in(form):
                done = await create_draft(request, signed_in, form, draft)
                return go(done.what, "created")
        except StorageError:
            form.keep_for_later()
            status = HTTPStatus.SERVICE_UNAVAILABLE
    return await _form(request, signed_in, form, None, status)


async def create_draft(
    request: Request, signed_in: SignedIn, form: Form, draft: Draft
) -> SubmitResult:
    """Create a draft once per form; a repeated call finds the draft of the first by its ref."""

    async def create(turn: Submission) -> SubmitResult:
        origin = Origin(turn.call, ref_of_call(turn.call, turn.at)) if turn.call else None
        try:
            message = await compose.compose(act_of(request, signed_in, turn.at), draft, origin)
        except Conflict:  # of this moment alone: the next try has another ref
            raise WrongState(_("Somebody saved a message at the same time. Save again.")) from None
        return SubmitResult(f"/admin/messages/{message.ref}")

    return await act_once(request, signed_in, form, create)


@router.get("/{ref}/write")
async def edit_page(request: Request, signed_in: Editor, ref: str) -> Response:
    storage = context_of(request).storage
    message, etag = await messages.read_with_etag(storage.tables, ref)
    if message.status not in EDITABLE:
        return go(f"/admin/messages/{ref}", "not-editable")
    values = await values_of(storage, message)
    if request.query_params.get("kind") in KIND_NAMES:  # the check offers the one that fits
        values["kind"] = request.query_params["kind"]
    return await _form(request, signed_in, Form(values | {"etag": etag}), message)


@router.post("/{ref}/write")
async def edit(request: Request, signed_in: Editor, ref: str) -> Response:
    """Save; a change by somebody else is shown beside the fields."""
    storage = context_of(request).storage
    form = await posted_message(request)
    said = await read_input(form)
    try:
        if said and await _save(storage, ref, said, form):
            return go(f"/admin/messages/{ref}", "saved")
        left = await _find(storage.tables, ref)
    except StorageError:
        form.keep_for_later()
        named = MessageName(ref, form.value("subject"))
        return await _form(request, signed_in, form, named, HTTPStatus.SERVICE_UNAVAILABLE)
    if left is None:
        form.mistakes.pop("list", None)
        form.mistake = _("Somebody deleted this message. Saving creates a new one.")
    return await _form(request, signed_in, form, left, 409 if form.others or not left else 422)


async def _save(storage: Storage, ref: str, said: MessageInput, form: Form) -> bool:
    """Whether it is saved as the form says; if not, the form says why."""
    revision = Revision(**said._asdict())
    try:
        with _mistakes_in(form):
            await compose.edit(storage, ref, revision, form.value("etag"))
            return True
    except Conflict:
        found = await messages.find_live(storage.tables, ref)
        if found:
            return not form.show_others(await values_of(storage, found.value), found.etag)
        form.mistake = _("This message has been sent and can no longer be edited.")
    return False


@contextlib.contextmanager
def _mistakes_in(form: Form) -> Iterator[None]:
    """Show a refusal beside the field that caused it."""
    try:
        yield
    except WrongState as error:
        form.mistake = str(error)
    except NotFound as error:
        form.mistakes["list"] = str(error)
    except BadInput as error:
        form.mistakes["body"] = str(error)


async def _find(tables: Tables, ref: str) -> Message | None:
    """None also for an invalid ref."""
    try:
        return await messages.read(tables, ref)
    except NotFound:
        return None


# --- Preview ----------------------------------------------------------------------------------


@router.post("/preview")
async def checks(request: Request, signed_in: Editor) -> Response:
    """The text and the warnings beside the editor."""
    looked = await _look(request, await posted_message(request))
    return HTMLResponse(part("messages/checks.html", looked=looked, in_editor=True))


@router.post("/mail/preview")
async def mail_as_typed(request: Request, signed_in: Editor) -> Response:
    """The email for the frame beside the editor; nothing is stored."""
    looked = await _look(request, await posted_message(request))
    if looked.mail_view is None:
        words = looked.mistake or _("Nothing to preview yet. Write a body first.")
    elif looked.mail_view.html is None:
        words = _("This message has no HTML. Everybody gets the text.")
    else:
        return framed(looked.mail_view.html)
    return framed(part("messages/no_mail.html", words=words))


async def _look(request: Request, form: Form) -> CheckReport:
    context = context_of(request)
    tables = context.storage.tables
    mailing_list = await _list_of(tables, form.value("list"))
    person, nobody = await find_person(
        tables, mailing_list.name if mailing_list else "none", form.value("as")
    )
    if mailing_list is None:
        return CheckReport(person, mistake=str(_("Choose a list first.")))
    try:
        html, text, _markdown = await bodies_in(form)
        message = Message(
            ref="0",
            list_name=mailing_list.name,
            list_created_at=mailing_list.created_at,
            subject=form.value("subject").strip() or str(_("(no subject)")),
            sender=mailing_list.sender,
            status=Status.DRAFT,
            created_at=context.clock.now(),
        )
    except BadInput as error:
        return CheckReport(person, mistake=str(error))
    written = WrittenMessage(message, mailing_list, html, text)
    people = await sample(tables, mailing_list.name)
    looked = await check(written, person, people, context.site, context.clock.now())
    return msgspec.structs.replace(
        looked, warnings=[nobody, *looked.warnings] if nobody else looked.warnings
    )


# --- The form ---------------------------------------------------------------------------------


async def _form(
    request: Request,
    signed_in: SignedIn,
    form: Form,
    message: Message | MessageName | None,
    status: int = 200,
) -> Response:
    names = [form.value("list")]
    fields = list[str]()
    try:
        names, fields = await _offer(context_of(request).storage.tables, form)
    except StorageError:
        if status == HTTPStatus.OK:
            raise
        # What was typed comes back all the same.
    return show(
        request,
        signed_in,
        "messages/form.html",
        status,
        form=form,
        message=message,
        lists=[(name, name) for name in names],
        kinds=KINDS,
        doubts=DOUBTS,
        examples=EXAMPLES,
        fields=fields,
        saves_itself=not form.others and (message is None or _is_draft(message)),
    )


def _is_draft(message: Message | MessageName) -> bool:
    """A scheduled message is sent as it was last saved by hand."""
    return isinstance(message, MessageName) or message.status is Status.DRAFT


async def _offer(tables: Tables, form: Form) -> tuple[list[str], list[str]]:
    """The lists to choose from, and the merge fields of the chosen one."""
    found, _more = await lists.page(tables, limit=LISTS_OFFERED_MAX)
    names = [each.name for each in found]
    chosen = form.value("list")
    if not chosen and names:
        chosen = form.values["list"] = names[0]
    if chosen and chosen not in names:
        names.append(chosen)
    people = await sample(tables, chosen) if await _list_of(tables, chosen) else None
    return names, people.fields if people else []


async def _list_of(tables: Tables, name: str) -> MailingList | None:
    with contextlib.suppress(NotFound):
        return await lists.find(tables, list_named(name))
    return None
