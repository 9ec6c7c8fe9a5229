"""Writing a message: typed as HTML or Markdown, uploaded, or started from an example."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import NamedTuple

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import EDITABLE, Message, OnDoubt, Status, ref_of_call
from postroom.domain.texts import Text, _
from postroom.flow import compose
from postroom.flow.compose import Draft, Origin, Revision
from postroom.records import lists, messages
from postroom.storage.port import Conflict, StorageError, Tables
from postroom.web.admin.admin_request import AdminRequest, Editor
from postroom.web.admin.messages.form import (
    MessageInput,
    bodies_in,
    posted_message,
    read_input,
    values_of,
)
from postroom.web.admin.messages.mail_checks import CheckReport, WrittenMessage, check, sample
from postroom.web.forms import Form, list_named
from postroom.web.mail_view import framed
from postroom.web.pages import go, part
from postroom.web.submit_once import Submission, SubmitResult
from postroom.web.templating import TEMPLATES

router = APIRouter(prefix="/messages")
LISTS_OFFERED_MAX = 200
KINDS = [("html", _("HTML")), ("markdown", _("Markdown"))]
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


class Example(NamedTuple):
    title: Text
    sentence: Text
    subject: str
    file_name: str

    @property
    def kind(self) -> str:
        return "markdown" if self.file_name.endswith(".md") else "html"

    def body(self) -> str:
        return (TEMPLATES / "mails" / self.file_name).read_text(encoding="utf-8")


EXAMPLES = {
    "announcement": Example(
        _("Announcement"),
        _("One news item and a button."),
        "New lecture series",
        "announcement.html",
    ),
    "newsletter": Example(
        _("Newsletter"),
        _("A greeting and three short articles."),
        "What is new this month",
        "newsletter.html",
    ),
    "letter": Example(
        _("Letter"), _("Plain text in Markdown."), "A word from the department", "letter.md"
    ),
}


@router.get("/new")
async def new_page(request: Editor) -> Response:
    example = EXAMPLES.get(request.query("example"))
    values = {"list": request.query("list"), "kind": "html", "on_doubt": OnDoubt.RESEND.value}
    if example:
        values |= {"subject": example.subject, "kind": example.kind, "body": example.body()}
    return await _show_form(request, Form(values), None)


@router.get("/write")
async def write_nothing(request: Editor) -> Response:
    """A reload of the page that showed a form with errors."""
    return go("/admin/messages/new")


@router.post("/write")
async def create(request: Editor) -> Response:
    form = await posted_message(request.http)
    content = await read_input(form)
    if content:
        try:
            with _mistakes_in(form):
                result = await create_draft(request, form, Draft(**content._asdict()))
                return go(result.what, "created")
        except StorageError:
            form.keep_for_later()
    return await _show_form(request, form, None, form.status)


async def create_draft(request: AdminRequest, form: Form, draft: Draft) -> SubmitResult:
    """Create a draft once per form; a repeated call finds the draft of the first by its ref."""

    async def create(submission: Submission) -> SubmitResult:
        call = submission.call
        origin = Origin(call, ref_of_call(call, submission.at)) if call else None
        try:
            message = await compose.compose(request.act(submission.at), draft, origin)
        except Conflict:  # two messages at the same moment; the next try has another ref
            raise WrongState(_("Somebody saved a message at the same time. Save again.")) from None
        return SubmitResult(f"/admin/messages/{message.ref}")

    return await request.act_once(form, create)


@router.get("/{ref}/write")
async def edit_page(request: Editor, ref: str) -> Response:
    message, etag = await messages.read_with_etag(request.tables, ref)
    if message.status not in EDITABLE:
        return go(f"/admin/messages/{ref}", "not-editable")
    values = await values_of(request.storage, message)
    if request.query("kind") in dict(KINDS):  # the checks link to the format that fits
        values["kind"] = request.query("kind")
    return await _show_form(request, Form(values | {"etag": etag}), message)


@router.post("/{ref}/write")
async def edit(request: Editor, ref: str) -> Response:
    """Save; a change by somebody else is shown beside the fields."""
    form = await posted_message(request.http)
    content = await read_input(form)
    message: Message | dict[str, str] | None = None
    try:
        if content and await _save(request, ref, content, form):
            return go(f"/admin/messages/{ref}", "saved")
        message = await messages.read(request.tables, ref)
    except NotFound:  # deleted, or not a valid ref
        form.mistakes.pop("list", None)
        form.mistake = _("Somebody deleted this message. Saving creates a new one.")
        form.status = HTTPStatus.CONFLICT
    except StorageError:
        form.keep_for_later()
        # What the page needs of its message when storage does not respond.
        message = {"ref": ref, "subject": form.value("subject")}
    return await _show_form(request, form, message, form.status)


async def _save(request: AdminRequest, ref: str, content: MessageInput, form: Form) -> bool:
    """Save what the form says; False, with the reason in the form, if that did not work."""
    storage = request.storage
    act = request.act()
    revision = Revision(**content._asdict())
    after = values_text({"subject": revision.subject})
    try:
        with _mistakes_in(form):
            async with act.audited(AuditKind.MESSAGE, ref, AuditAction.CHANGE, after=after):
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


@router.post("/preview")
async def preview_checks(request: Editor) -> Response:
    """The text and the warnings beside the editor."""
    report = await _check(request)
    return HTMLResponse(part("messages/checks.html", report=report, in_editor=True))


@router.post("/mail/preview")
async def preview_mail(request: Editor) -> Response:
    """The email for the frame beside the editor; nothing is stored."""
    report = await _check(request)
    if report.mail_view is None:
        sentence = report.mistake or _("Nothing to preview yet. Write a body first.")
    elif report.mail_view.html is None:
        sentence = _("This message has no HTML. Everybody gets the text.")
    else:
        return framed(report.mail_view.html)
    return framed(part("messages/no_mail.html", sentence=sentence))


async def _check(request: AdminRequest) -> CheckReport:
    """Check the message in the form, as it was typed."""
    form = await posted_message(request.http)
    mailing_list = await _find_list(request.tables, form.value("list"))
    if mailing_list is None:
        return CheckReport(mistake=str(_("Choose a list first.")))
    try:
        html, text, _markdown = await bodies_in(form)
        message = Message(
            ref="0",
            list_name=mailing_list.name,
            list_created_at=mailing_list.created_at,
            subject=form.value("subject").strip() or str(_("(no subject)")),
            sender=mailing_list.sender,
            status=Status.DRAFT,
            created_at=request.now(),
        )
    except BadInput as error:
        return CheckReport(mistake=str(error))
    written = WrittenMessage(message, mailing_list, html, text)
    return await check(request.context, written, form.value("as"))


async def _show_form(
    request: AdminRequest, form: Form, message: Message | dict[str, str] | None, status: int = 200
) -> Response:
    names = [form.value("list")]
    fields = list[str]()
    try:
        names, fields = await _offer(request.tables, form)
    except StorageError:
        if status == HTTPStatus.OK:
            raise
        # Show what was typed all the same.
    # A scheduled message is sent as it was last saved by hand.
    is_draft = not isinstance(message, Message) or message.status is Status.DRAFT
    return request.show(
        "messages/form.html",
        status,
        form=form,
        message=message,
        lists=[(name, name) for name in names],
        kinds=KINDS,
        doubts=DOUBTS,
        examples=EXAMPLES,
        fields=fields,
        saves_itself=not form.others and is_draft,
    )


async def _offer(tables: Tables, form: Form) -> tuple[list[str], list[str]]:
    """The lists to choose from, and the merge fields of the chosen one."""
    found, _more = await lists.page(tables, limit=LISTS_OFFERED_MAX)
    names = [each.name for each in found]
    chosen = form.value("list")
    if not chosen and names:
        chosen = form.values["list"] = names[0]
    if chosen and chosen not in names:
        names.append(chosen)
    people = await sample(tables, chosen) if await _find_list(tables, chosen) else None
    return names, sorted(people.having) if people else []


async def _find_list(tables: Tables, name: str) -> MailingList | None:
    with contextlib.suppress(NotFound):
        return await lists.find(tables, list_named(name))
    return None
