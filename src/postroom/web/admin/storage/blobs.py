"""Blobs of the storage explorer: list, look into, download, upload, delete.

Nothing of a blob is ever rendered: a page shows it as escaped text, and a download is an attachment
of no particular type, so a blob with a script in it cannot act on our site.
"""

from __future__ import annotations

import io
import re
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions import edit_storage
from postroom.actions.edit_storage import digest
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.seal import seal, unseal
from postroom.domain.texts import _
from postroom.records.names import STORAGE_NAMES
from postroom.storage.port import BLOB_BYTES_MAX, Conflict
from postroom.web.admin.admin_request import AdminRequest, Owner
from postroom.web.forms import Form
from postroom.web.pages import go
from postroom.web.security import TooLarge
from postroom.web.uploads import receive_file

router = APIRouter(prefix="/storage/blobs")
PATH = "/admin/storage/blobs"
NAMES_A_PAGE = 100
SHOWN_BYTES_MAX = 64 * 1024
PIECE_BYTES = 1024 * 1024
NAME_CHARS_MAX = 1024
_BLOB, _AFTER = "blob", "page of blobs"
_SKIP = re.compile(r"[0-9]{1,6}")  # names of a page that were shown before
_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9._-]")


@router.get("")
async def index(request: Owner) -> Response:
    return await _index(request, Form())


@router.post("/upload")
async def upload(request: Owner) -> Response:
    """Create a blob, or replace the content that the page of the blob has shown."""
    content = io.BytesIO()
    form = Form()

    async def write(piece: bytes) -> None:
        content.write(piece)

    try:
        received = await receive_file(request.http, "file", PIECE_BYTES, write)
        form.values |= received.fields
        if not received.file_name:
            form.mistakes["file"] = _("Choose a file.")
        if not form.value("name"):
            form.mistakes["name"] = _("Enter a name.")
        if form.is_good:
            name, seen = form.value("name"), form.value("seen")
            await edit_storage.put_blob(request.act(), name, content.getvalue(), seen=seen)
            return go(blob_path(request, name), "blob-saved")
    except TooLarge:
        limit = BLOB_BYTES_MAX // 1024**2
        form.mistakes["file"] = _("A blob can be at most {limit} MiB.", limit=limit)
    except BadInput as error:
        form.mistakes["name"] = str(error)
    except Conflict:
        return await _refuse_upload(request, form)
    return await _index(request, form, 422)


async def _refuse_upload(request: AdminRequest, form: Form) -> Response:
    name = form.value("name")
    if form.value("seen"):
        changed = _("The blob has changed since you opened this page. Nothing was replaced.")
        return await _show_blob(request, name, Form(mistake=changed), 409)
    form.mistakes["name"] = _(
        "There is already a blob with this name. Open it to replace its content."
    )
    return await _index(request, form, 409)


@router.get("/{sealed}")
async def blob_page(request: Owner, sealed: str) -> Response:
    return await _show_blob(request, _name(request, sealed), Form())


@router.get("/{sealed}/download")
async def download(request: Owner, sealed: str) -> Response:
    name = _name(request, sealed)
    content = await _read(request, name)
    file_name = _NOT_IN_FILE_NAMES.sub("_", name.rpartition("/")[2])
    headers = {
        "Content-Disposition": f'attachment; filename="{file_name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    return Response(content, media_type="application/octet-stream", headers=headers)


@router.get("/{sealed}/delete")
async def delete_page(request: Owner, sealed: str) -> Response:
    name = _name(request, sealed)
    return await _show_delete(request, name, Form())


@router.post("/{sealed}/delete")
async def delete(request: Owner, sealed: str) -> Response:
    name = _name(request, sealed)
    form = await request.form()
    try:
        await edit_storage.delete_blob(request.act(), name, seen=form.value("seen"))
    except NotFound:  # deleted by a second click or by somebody else
        pass
    except Conflict:
        form.mistake = _("The blob has changed. Check its current content, and try again.")
        return await _show_delete(request, name, form, 409)
    return go(PATH, "blob-deleted")


def blob_path(request: AdminRequest, name: str) -> str:
    return f"{PATH}/{seal(request.context.site.secret, _BLOB, name)}"


def _name(request: AdminRequest, sealed: str) -> str:
    name = unseal(request.context.site.secret, _BLOB, sealed)
    if name is None:
        raise NotFound(_("There is no such blob."))
    return name


async def _read(request: AdminRequest, name: str) -> bytes:
    content = await request.storage.blobs.get(name)
    if content is None:
        raise NotFound(_("There is no longer a blob with this name."))
    return content


async def _index(request: AdminRequest, form: Form, status: int = 200) -> Response:
    """A page of names; engines give up to a thousand at a time, so some are cut off here."""
    secret = request.context.site.secret
    prefix = request.query("prefix")[:NAME_CHARS_MAX]
    after = unseal(secret, _AFTER, request.query("after"))
    start = int(request.query("skip")) if _SKIP.fullmatch(request.query("skip")) else 0
    names, following = await request.storage.blobs.list(prefix, after=after)
    shown = names[start : start + NAMES_A_PAGE]
    values = {"prefix": prefix, "after": request.query("after"), "skip": ""}
    next_path = ""
    if start + NAMES_A_PAGE < len(names):
        next_path = _path(values | {"skip": str(start + NAMES_A_PAGE)})
    elif following:
        next_path = _path(values | {"after": seal(secret, _AFTER, following)})
    return request.show(
        "storage/blobs.html",
        status,
        container=STORAGE_NAMES.container,
        prefix=prefix,
        form=form,
        blobs=[(name, blob_path(request, name)) for name in shown],
        next_path=next_path,
        first_path=_path({"prefix": prefix}) if after or start else "",
    )


async def _show_blob(request: AdminRequest, name: str, form: Form, status: int = 200) -> Response:
    content = await _read(request, name)
    head = content[:SHOWN_BYTES_MAX]
    return request.show(
        "storage/blob.html",
        status,
        name=name,
        bytes=len(content),
        seen=digest(content),
        text=_as_text(head),
        hex=head[:1024].hex(" "),
        is_cut=len(content) > len(head),
        blob_path=blob_path(request, name),
        form=form,
    )


async def _show_delete(request: AdminRequest, name: str, form: Form, status: int = 200) -> Response:
    content = await _read(request, name)
    return request.show(
        "storage/delete_blob.html",
        status,
        name=name,
        bytes=len(content),
        seen=digest(content),
        blob_path=blob_path(request, name),
        form=form,
    )


def _as_text(head: bytes) -> str | None:
    """The text of a blob; None if it is not text. A character at the end may be cut in two."""
    if b"\0" in head:
        return None
    for cut in range(4):
        try:
            return head[: len(head) - cut].decode()
        except UnicodeDecodeError:
            continue
    return None


def _path(values: dict[str, str]) -> str:
    query = urlencode({name: value for name, value in values.items() if value})
    return f"{PATH}?{query}" if query else PATH
