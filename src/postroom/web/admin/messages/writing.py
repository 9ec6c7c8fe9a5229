"""Writing a message: in blocks, as HTML, Markdown or MJML, or uploaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from http import HTTPStatus

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from postroom.act import Act
from postroom.actions import manage_media, manage_templates
from postroom.actions.attach_files import attach, copy_attachments, detach
from postroom.actions.manage_templates import document_of_template
from postroom.domain.attachment import Attachment, NewFile, new_attachments
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.block import (
    KIND_TITLES,
    BlockDocument,
    HtmlBlock,
    check_document,
    encode_document,
    parse_document,
)
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import (
    EDITABLE,
    BodyKind,
    Message,
    OnDoubt,
    Status,
    check_body,
    ref_of_call,
)
from postroom.domain.message_template import TemplateKind, with_snippet, with_template
from postroom.domain.texts import Text, _
from postroom.flow import compose
from postroom.flow.compose import Draft, Origin, Revision
from postroom.mail.preview_text import check_preview_text
from postroom.parsing import in_thread
from postroom.records import lists, messages, templates
from postroom.storage.port import Conflict, Storage, StorageError, Tables
from postroom.web.admin.admin_request import AdminRequest, Editor
from postroom.web.admin.block_pictures import chooser_of, is_search, place_picture
from postroom.web.admin.messages.attachments import AttachmentsView, attachments_view
from postroom.web.admin.messages.form import (
    ATTACHMENTS,
    MessageForm,
    MessageInput,
    bodies_in,
    posted_message,
    read_input,
    values_of,
)
from postroom.web.block_form import BlockEditorView, edited, make_undoable, undo_steps
from postroom.web.forms import Form, list_named
from postroom.web.mail_view import framed
from postroom.web.message_checks import CheckReport, WrittenMessage, check, sample
from postroom.web.pages import go, part
from postroom.web.submit_once import Submission, SubmitResult
from postroom.writing.block_checks import fixed
from postroom.writing.body_blocks import blocks_from
from postroom.writing.body_checks import FIX as FIX_BODY
from postroom.writing.body_checks import repaired
from postroom.writing.mjml import direction_of
from postroom.writing.ready_made import ready_made
from postroom.writing.sources import BodySource, html_from_source

router = APIRouter(prefix="/messages")
LISTS_OFFERED_MAX = 200
KINDS = [
    (BodyKind.HTML.value, _("HTML")),
    (BodyKind.MARKDOWN.value, _("Markdown")),
    (BodyKind.MJML.value, _("MJML")),
]
BLOCKS_PATH = "/admin/messages/blocks"
FIRST_TEMPLATE = "announcement"  # of a list without a template of its own
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


@router.get("/new")
async def new_page(request: Editor) -> Response:
    """In blocks, with the template that was chosen, or else that of the list."""
    list_name = request.query("list")
    kind = request.query("kind")
    values = {"list": list_name, "kind": kind, "on_doubt": OnDoubt.RESEND.value}
    if kind not in dict(KINDS):
        found = await _find_list(request.tables, list_name) or await _only_list(request.tables)
        template_id = request.query("template") or (found.template if found else "")
        document = await manage_templates.first_document(
            request.storage, template_id or FIRST_TEMPLATE
        )
        values |= {
            "kind": BodyKind.BLOCKS.value,
            "template": request.query("template"),
            "document": encode_document(document or ready_made(FIRST_TEMPLATE)),
        }
    return await _show_form(request, Form(values), None)


async def _only_list(tables: Tables) -> MailingList | None:
    """The list that the form will show."""
    found, _more = await lists.page(tables, limit=1)
    return found[0] if found else None


@router.get("/blocks")
@router.get("/write")
async def redirect_to_new_message(request: Editor) -> Response:
    """A reload of the page that showed a form with errors."""
    return go("/admin/messages/new")


@router.post("/write")
async def create(request: Editor) -> Response:
    form = await posted_message(request.http)
    if is_search(form):
        return await _show_form(request, form, None, is_unsaved=True)
    await place_picture(request, form)
    content = await read_input(form, request.tables)
    if content:
        try:
            with _mistakes_in(form):
                draft = Draft(**content._asdict())
                result = await create_draft(request, form, draft, files=form.files)
                return _go_on(form, result.what, "created")
        except StorageError:
            form.keep_for_later()
    return await _show_form(request, form, None, form.status)


async def create_draft(
    request: AdminRequest,
    form: Form,
    draft: Draft,
    *,
    files: Sequence[NewFile] = (),
    attached_to: Message | None = None,
) -> SubmitResult:
    """Create a draft once per form; a repeated call finds the draft of the first by its ref.

    It gets these files, or those of another message.
    """

    async def create(submission: Submission) -> SubmitResult:
        call = submission.call
        origin = Origin(call, ref_of_call(call, submission.at)) if call else None
        try:
            message = await compose.compose(request.act(submission.at), draft, origin)
        except Conflict:  # two messages at the same moment; the next try has another ref
            raise WrongState(_("Somebody saved a message at the same time. Save again.")) from None
        if files:
            await attach(request.act(submission.at), message.ref, files, call=call)
        if attached_to:
            await copy_attachments(request.storage, attached_to, message.ref)
        return SubmitResult(f"/admin/messages/{message.ref}")

    return await request.act_once(form, create)


def _go_on(form: Form, path: str, notice: str) -> Response:
    """To the message; after a button of the attachments, back to them."""
    if form.value("attach"):
        return go(f"{path}/write#{ATTACHMENTS}", "files-attached")
    if form.value("remove"):
        return go(f"{path}/write#{ATTACHMENTS}", "file-removed")
    return go(path, notice)


@router.get("/{ref}/write")
async def edit_page(request: Editor, ref: str) -> Response:
    message, etag = await messages.read_with_etag(request.tables, ref)
    if message.status not in EDITABLE:
        return go(f"/admin/messages/{ref}", "not-editable")
    values = await values_of(request.storage, message)
    if (
        request.query("kind") in dict(KINDS) and "body" in values
    ):  # the checks link to the format that fits
        values["kind"] = request.query("kind")
    return await _show_form(request, Form(values | {"etag": etag}), message)


@router.post("/blocks")
async def change_blocks(request: Editor) -> Response:
    """Carry out a button of the block editor; nothing is stored before the form is saved.

    With htmx only the blocks are shown again; without script, the whole page.
    """
    form = await posted_message(request.http)
    ref = form.value("ref")  # a field, because the first autosave gives the form its message
    before = form.value("document")
    await place_picture(request, form)
    try:
        await _carry_out(request.storage, ref, form)
    except (BadInput, NotFound) as error:
        is_body = form.value("kind") != BodyKind.BLOCKS
        form.mistakes["body" if is_body else "document"] = str(error)
    if before and form.value("kind") == BodyKind.BLOCKS:
        make_undoable(form, before)
    if request.http.headers.get("HX-Request"):
        editor = await _block_editor(request, form)
        return HTMLResponse(part("blocks_part.html", editor=editor, block_kinds=KIND_TITLES))
    found = await messages.read(request.tables, ref) if ref else None
    return await _show_form(request, form, found, HTTPStatus.OK, is_unsaved=True)


async def _carry_out(storage: Storage, ref: str, form: Form) -> None:
    """The operations that are more than a change of the blocks themselves."""
    match form.value("done"):
        case "kind:html":
            made = await bodies_in(form)
            form.values |= {"kind": BodyKind.HTML.value, "body": made.html or ""}
        case "kind:blocks":
            form.values |= {
                "kind": BodyKind.BLOCKS.value,
                "document": encode_document(await in_thread(_as_blocks, form)),
            }
        case "template":
            chosen = await document_of_template(storage, form.value("template"))
            document = with_template(parse_document(form.value("document")), chosen)
            form.values["document"] = encode_document(document)
        case "snippet":
            chosen = await document_of_template(storage, form.value("snippet"))
            before = parse_document(form.value("document"))
            document = with_snippet(before, chosen)
            form.values["document"] = encode_document(document)
            added = document.blocks[len(before.blocks) :]
            form.values["touched"] = added[0].id if added else ""
        case "theirs":
            found = await messages.read(storage.tables, ref)
            form.values["document"] = (await values_of(storage, found)).get("document", "")
        case operation if operation.startswith(f"{FIX_BODY}:"):
            body = check_body(form.value("body"))
            form.values["body"] = await in_thread(repaired, body, operation)
        case operation if operation.startswith("fix:"):
            document = parse_document(form.value("document"))
            pictures = await manage_media.pictures_in(storage.tables, form.value("document"))
            form.values["document"] = encode_document(fixed(document, operation, pictures))


def _as_blocks(form: Form) -> BlockDocument:
    """What was typed, as one block that shows the same."""
    body = form.value("body")
    kind = BodyKind(form.value("kind")) if form.value("kind") in dict(KINDS) else BodyKind.HTML
    if kind is BodyKind.MARKDOWN:
        return blocks_from(kind, body)
    html = html_from_source(BodySource(kind, body)) if kind is not BodyKind.HTML else body
    return check_document(BlockDocument(blocks=[HtmlBlock(id="b1", html=html)] if html else []))


@router.post("/{ref}/write")
async def edit(request: Editor, ref: str) -> Response:
    """Save; a change by somebody else is shown beside the fields."""
    form = await posted_message(request.http)
    if is_search(form):
        found = await messages.read(request.tables, ref)
        return await _show_form(request, form, found, is_unsaved=True)
    await place_picture(request, form)
    content = await read_input(form, request.tables)
    message: Message | dict[str, str] | None = None
    try:
        if content and await _save(request, ref, content, form):
            return _go_on(form, f"/admin/messages/{ref}", "saved")
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


async def _save(request: AdminRequest, ref: str, content: MessageInput, form: MessageForm) -> bool:
    """Save what the form says; False, with the reason in the form, if that did not work."""
    storage = request.storage
    act = request.act()
    revision = Revision(**content._asdict())
    after = values_text({"subject": revision.subject})
    seen = form.value("etag")
    if not await _can_attach(request.tables, ref, form):
        return False
    with _mistakes_in(form):
        try:
            async with act.audited(AuditKind.MESSAGE, ref, AuditAction.CHANGE, after=after):
                await compose.edit(storage, ref, revision, seen)
        except Conflict:
            found = await messages.find_live(storage.tables, ref)
            if found is None:
                form.mistake = _("This message has been sent and can no longer be edited.")
                return False
            if form.show_others(await values_of(storage, found.value), found.etag):
                return False  # else only its attachments changed, or this is a second click
        await _change_attachments(act, ref, form, seen)
        return True
    return False


async def _change_attachments(act: Act, ref: str, form: MessageForm, seen: str) -> None:
    """Add or remove files beside what others changed; a second click attaches nothing twice."""
    if form.files:
        await attach(act, ref, form.files, call=f"{ref} {seen} {form.value('attached')}")
    elif removed := form.value("remove"):
        with contextlib.suppress(NotFound):  # by somebody else
            await detach(act, ref, removed)


async def _can_attach(tables: Tables, ref: str, form: MessageForm) -> bool:
    """Whether the files fit beside those that the message has; checked before anything is saved."""
    if not form.files:
        return True
    message = await messages.read(tables, ref)
    try:
        await in_thread(new_attachments, form.files, message.attachments)
    except BadInput as error:
        form.mistakes[ATTACHMENTS] = str(error)
        return False
    return True


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
        is_blocks = form.value("kind") == BodyKind.BLOCKS
        form.mistakes["document" if is_blocks else "body"] = str(error)


@router.post("/preview")
async def preview_checks(request: Editor) -> Response:
    """The text and the warnings beside the editor."""
    report = await _check(request)
    return HTMLResponse(
        part("messages/checks.html", report=report, in_editor=True, blocks_path=BLOCKS_PATH)
    )


@router.post("/mail/preview")
async def preview_mail(request: Editor) -> Response:
    """The email for the frame beside the editor; nothing is stored."""
    report = await _check(request)
    if report.mail_view is None:
        sentence = report.mistake or _("There is nothing to preview yet. Write a body first.")
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
        content = await bodies_in(form, mailing_list.language)
        message = Message(
            ref="0",
            list_name=mailing_list.name,
            list_created_at=mailing_list.created_at,
            subject=form.value("subject").strip() or str(_("(no subject)")),
            sender=mailing_list.sender,
            status=Status.DRAFT,
            created_at=request.now(),
            preview_text=check_preview_text(form.value("preview_text")),
            attachments=await _attached_to(request.tables, form.value("ref")),
        )
    except BadInput as error:
        return CheckReport(mistake=str(error))
    written = WrittenMessage(message, mailing_list, content)
    return await check(request.context, written, form.value("as"))


async def _attached_to(tables: Tables, ref: str) -> tuple[Attachment, ...]:
    """Of the draft that the form has become; none if it was deleted."""
    try:
        return (await messages.read(tables, ref)).attachments if ref else ()
    except NotFound:
        return ()


async def _show_form(
    request: AdminRequest,
    form: Form,
    message: Message | dict[str, str] | None,
    status: int = 200,
    *,
    is_unsaved: bool = False,
) -> Response:
    names = [form.value("list")]
    fields = list[str]()
    templates_offered = list[tuple[str, Text | str]]()
    attached = AttachmentsView("", (), 0)
    editor = BlockEditorView(edited(""), BLOCKS_PATH, form)
    try:
        names, fields = await _offer(request.tables, form)
        templates_offered = await manage_templates.choices(request.tables)
        editor = await _block_editor(request, form)
        if isinstance(message, Message):
            attached = await attachments_view(request.tables, message, form.value("list"))
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
        templates=templates_offered,
        editor=editor,
        block_kinds=KIND_TITLES,
        fields=fields,
        attached=attached,
        has_lost_files=isinstance(form, MessageForm) and bool(form.files),
        saves_itself=not form.others and is_draft,
        is_unsaved=is_unsaved or not form.is_good,
    )


async def _block_editor(request: AdminRequest, form: Form) -> BlockEditorView:
    document = edited(form.value("document"))
    document.undo = undo_steps(form)
    document.touched = form.value("touched")
    found = await templates.all_templates(request.tables)
    snippets = [each for each in found if each.kind is TemplateKind.SNIPPET]
    chooser = await chooser_of(request, form)
    chosen = await _find_list(request.tables, form.value("list"))
    language = form.value("language").strip() or (chosen.language if chosen else "")
    is_rtl = direction_of(language) == "rtl"
    return BlockEditorView(document, BLOCKS_PATH, form, snippets, chooser, is_rtl)


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
