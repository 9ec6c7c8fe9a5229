"""Templates and snippets: ours to copy, and those of the installation to change and delete."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from postroom.actions import manage_media, manage_templates
from postroom.domain.block import (
    KIND_TITLES,
    BadBlock,
    BlockDocument,
    encode_document,
    parse_document,
)
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message_template import MessageTemplate, TemplateKind, check_template_title
from postroom.domain.texts import _
from postroom.mail.finishing import MessageFields, finished_bodies
from postroom.mail.mime import filled_with_defaults
from postroom.parsing import in_thread
from postroom.records import templates
from postroom.storage.port import Conflict, StorageError
from postroom.web.admin.admin_request import AdminRequest, Editor, Viewer
from postroom.web.admin.block_pictures import FILE as PICTURE_FILE
from postroom.web.admin.block_pictures import chooser_of, is_search, place_picture, read_picture
from postroom.web.block_form import (
    FIELDS_MAX,
    BlockEditorView,
    edited,
    gather_blocks,
    make_undoable,
    undo_steps,
)
from postroom.web.forms import Form, opened
from postroom.web.mail_view import framed
from postroom.web.pages import go, part
from postroom.web.submit_once import Submission, SubmitResult
from postroom.writing.block_checks import fixed
from postroom.writing.layout import html_from_blocks
from postroom.writing.ready_made import READY_MADE

router = APIRouter(prefix="/templates")
PATH = "/admin/templates"
FIELD_BYTES_MAX = 1024 * 1024
_NOTHING = BlockDocument()


@router.get("")
async def index(request: Viewer) -> Response:
    found = await templates.all_templates(request.tables)
    return request.show(
        "templates/index.html",
        templates=[each for each in found if each.kind is TemplateKind.TEMPLATE],
        snippets=[each for each in found if each.kind is TemplateKind.SNIPPET],
        ready_made=READY_MADE,
    )


@router.get("/new")
async def new_page(request: Editor) -> Response:
    """From a message, from another template, or empty."""
    form = Form(
        {
            "kind": request.query("kind") or TemplateKind.TEMPLATE.value,
            "message": request.query("message"),
            "from": request.query("from"),
        }
    )
    return request.show("templates/new.html", form=form)


@router.post("/new")
async def create(request: Editor) -> Response:
    form = await request.form()
    is_snippet = form.value("kind") == TemplateKind.SNIPPET
    kind = TemplateKind.SNIPPET if is_snippet else TemplateKind.TEMPLATE
    title = form.take("title", check_template_title)
    if title is not None:

        async def create_template(submission: Submission) -> SubmitResult:
            document = await _beginning(request, form)
            act = request.act(submission.at)
            made = await manage_templates.create(act, kind, title, document, submission.call)
            return SubmitResult(f"{PATH}/{made.id}")

        try:
            return go((await request.act_once(form, create_template)).what, "created")
        except (BadInput, NotFound, WrongState) as error:
            form.mistake = str(error)
        except StorageError:
            form.keep_for_later()
    return request.show("templates/new.html", form.status, form=form)


async def _beginning(request: AdminRequest, form: Form) -> BlockDocument:
    if form.value("message"):
        return await manage_templates.document_of_message(request.storage, form.value("message"))
    if form.value("from"):
        return await manage_templates.document_of_template(request.storage, form.value("from"))
    return _NOTHING


@router.get("/{template_id}")
async def edit_page(request: Editor, template_id: str) -> Response:
    if template_id in READY_MADE:
        return go(f"{PATH}/new?from={template_id}")
    found, etag = await templates.read(request.tables, template_id)
    document = await templates.load_document(request.storage.blobs, found)
    values = {"title": found.title, "document": encode_document(document), "etag": etag}
    return await _show_form(request, found, Form(values))


@router.post("/{template_id}")
async def edit(request: Editor, template_id: str) -> Response:
    form = await _posted(request.http)
    found = await templates.read(request.tables, template_id)
    if is_search(form):
        return await _show_form(request, found.value, form)
    await place_picture(request, form)
    document = None
    with _mistakes_in(form):
        document = parse_document(form.value("document"))
    title = form.take("title", check_template_title)
    if document and title and form.is_good and await _save(request, found.value, form, document):
        return go(PATH, "saved")
    return await _show_form(request, found.value, form, form.status)


async def _save(
    request: AdminRequest, template: MessageTemplate, form: Form, document: BlockDocument
) -> bool:
    try:
        with _mistakes_in(form):
            await manage_templates.edit(
                request.act(), template.id, form.value("title"), document, form.value("etag")
            )
            return True
    except Conflict:
        now, etag = await templates.read(request.tables, template.id)
        stored = encode_document(await templates.load_document(request.storage.blobs, now))
        return not form.show_others({"title": now.title, "document": stored}, etag)
    except StorageError:
        form.keep_for_later()
    return False


@router.post("/{template_id}/blocks")
async def change_blocks(request: Editor, template_id: str) -> Response:
    """Carry out a button of the block editor; nothing is stored before the form is saved."""
    form = await _posted(request.http)
    found = (await templates.read(request.tables, template_id)).value
    before = form.value("document")
    await place_picture(request, form)
    operation = form.value("done")
    with _mistakes_in(form):
        if operation.startswith("fix:"):
            document = parse_document(form.value("document"))
            pictures = await manage_media.pictures_in(request.tables, form.value("document"))
            form.values["document"] = encode_document(fixed(document, operation, pictures))
        elif operation == "theirs":
            stored = await templates.load_document(request.storage.blobs, found)
            form.values["document"] = encode_document(stored)
    make_undoable(form, before)
    if request.http.headers.get("HX-Request"):
        editor = await _editor(request, found, form)
        return HTMLResponse(part("blocks_part.html", editor=editor, block_kinds=KIND_TITLES))
    return await _show_form(request, found, form)


@router.get("/{template_id}/blocks")
async def blocks_page(request: Editor, template_id: str) -> Response:
    """A reload of the page that showed changed blocks."""
    return go(f"{PATH}/{template_id}")


@router.get("/{template_id}/preview")
async def preview(request: Viewer, template_id: str) -> Response:
    """The email, for a frame or a tab of its own."""
    document = await manage_templates.document_of_template(request.storage, template_id)
    return framed(await in_thread(_sample, document, request.context.site.url))


def _sample(document: BlockDocument, site_url: str) -> str:
    title, postal = str(_("your list")), str(_("your address"))
    own = MessageFields(list_title=title, postal_address=postal, site_url=site_url)
    html, _text = finished_bodies(html_from_blocks(document), None, own)
    return filled_with_defaults(html or "", is_html=True)


@router.get("/{template_id}/delete")
async def delete_page(request: Editor, template_id: str) -> Response:
    found, etag = await templates.read(request.tables, template_id)
    return request.show("templates/delete.html", kept=found, form=Form({"etag": etag}))


@router.post("/{template_id}/delete")
async def delete(request: Editor, template_id: str) -> Response:
    form = await request.form()
    found = await templates.find(request.tables, template_id)
    if found is None:  # deleted by a second click or by somebody else
        return go(PATH, "deleted")
    try:
        await manage_templates.delete(request.act(), template_id, form.value("etag"))
        return go(PATH, "deleted")
    except WrongState as error:
        form.mistake = str(error)
    except Conflict:
        form.values["etag"] = found.etag
        form.mistake = _("Somebody just changed this template. Check it and try again.")
    return request.show("templates/delete.html", HTTPStatus.CONFLICT, kept=found.value, form=form)


async def _posted(http: Request) -> Form:
    async with opened(
        http, fields_max=FIELDS_MAX, field_bytes_max=FIELD_BYTES_MAX, files_max=1
    ) as submitted:
        form = Form(submitted.fields)
        gather_blocks(form)
        await read_picture(form, submitted.files.get(PICTURE_FILE))
        return form


@contextlib.contextmanager
def _mistakes_in(form: Form) -> Iterator[None]:
    """Show a refusal beside the block that caused it."""
    try:
        yield
    except BadBlock as error:
        form.mistakes[f"block-{error.block_id}" if error.block_id else "document"] = str(error)
    except BadInput as error:
        form.mistakes["document"] = str(error)


async def _editor(request: AdminRequest, template: MessageTemplate, form: Form) -> BlockEditorView:
    document = edited(form.value("document"))
    document.undo = undo_steps(form)
    document.touched = form.value("touched")
    path = f"{PATH}/{template.id}/blocks"
    return BlockEditorView(document, path, form, chooser=await chooser_of(request, form))


async def _show_form(
    request: AdminRequest, template: MessageTemplate, form: Form, status: int = HTTPStatus.OK
) -> Response:
    return request.show(
        "templates/form.html",
        status,
        kept=template,
        form=form,
        editor=await _editor(request, template, form),
        block_kinds=KIND_TITLES,
    )
