"""Import a page from another tool: a file, or a zip with its pictures, becomes a draft."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions.import_page import ImportedPage, SeveralPages, import_file
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message import SUBJECT_CHARS_MAX
from postroom.domain.picture import clean_name
from postroom.domain.texts import _
from postroom.flow.compose import Draft
from postroom.records import bodies, lists, messages
from postroom.storage.port import StorageError
from postroom.web.admin.admin_request import AdminRequest, Editor
from postroom.web.admin.lists import list_choices
from postroom.web.admin.messages.writing import create_draft
from postroom.web.forms import Form, list_named
from postroom.web.pages import go
from postroom.web.uploads import receive_file
from postroom.writing.zip_files import ZIP_BYTES_MAX

router = APIRouter(prefix="/messages")
PIECE_BYTES = 256 * 1024


@router.get("/import")
async def import_page(request: Editor) -> Response:
    return await _show(request, Form({"list": request.query("list")}))


@router.post("/import")
async def import_page_file(request: Editor) -> Response:
    """Read the file, add its pictures to the media library, and create a draft."""
    form = Form()
    try:
        content, file_name = await _received(request, form)
        if form.is_good:
            imported = await _import(request, form, content)
            path = await _draft(request, form, imported, file_name)
            return go(f"{path}/imported", "imported")
    except SeveralPages as error:
        form.mistakes["page"] = _(
            "The zip contains several pages. Choose one, then choose the file again."
        )
        pages = error.names
        return await _show(request, form, form.status, pages)
    except (NotFound, WrongState) as error:
        form.mistakes["list"] = str(error)
    except BadInput as error:
        form.mistakes["file"] = str(error)
    except StorageError:
        form.keep_for_later()
    return await _show(request, form, form.status)


async def _received(request: AdminRequest, form: Form) -> tuple[bytes, str]:
    content = bytearray()

    async def write(piece: bytes) -> None:
        if len(content) <= ZIP_BYTES_MAX:  # one piece more shows that it is too long
            content.extend(piece)

    received = await receive_file(request.http, "file", PIECE_BYTES, write)
    form.values |= received.fields
    if not received.file_name:
        form.mistakes["file"] = _("Choose a file.")
    return bytes(content), clean_name(received.file_name, "")


async def _import(request: AdminRequest, form: Form, content: bytes) -> ImportedPage:
    found = await lists.read(request.tables, list_named(form.value("list")))
    site_url = request.context.site.url
    return await import_file(request.act(), content, found.language, site_url, form.value("page"))


async def _draft(request: AdminRequest, form: Form, imported: ImportedPage, file_name: str) -> str:
    subject = form.value("subject").strip() or imported.title or file_name
    draft = Draft(
        list_name=form.value("list"),
        subject=subject[:SUBJECT_CHARS_MAX],
        html=imported.content.html,
        source=imported.content.source,
    )
    path = (await create_draft(request, form, draft)).what
    ref = path.rpartition("/")[2]
    await bodies.put_report(request.storage.blobs, ref, imported.report)
    return path


@router.get("/{ref}/imported")
async def imported_page(request: Editor, ref: str) -> Response:
    """What happened to the page, and where to go from here."""
    message = await messages.read(request.tables, ref)
    report = await bodies.load_report(request.storage.blobs, ref)
    return request.show("messages/imported.html", message=message, report=report)


async def _show(
    request: AdminRequest, form: Form, status: int = 200, pages: list[str] | None = None
) -> Response:
    return request.show(
        "messages/import.html",
        status,
        form=form,
        choices=await list_choices(request.tables, form.value("list")),
        pages=[(name, name) for name in pages or []],
    )
