"""The media library: upload pictures, describe them, see where they are used, delete them."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.datastructures import UploadFile
from starlette.responses import Response

from postroom.actions import manage_media
from postroom.domain.errors import BadInput, WrongState
from postroom.domain.picture import (
    UPLOAD_BYTES_MAX,
    UPLOADS_MAX,
    Picture,
    clean_name,
    is_picture_id,
)
from postroom.domain.texts import _
from postroom.records import media
from postroom.storage.port import Conflict, StorageError
from postroom.web.admin.admin_request import AdminRequest, Editor, Viewer
from postroom.web.forms import Form, opened
from postroom.web.pages import go

router = APIRouter(prefix="/media")
PATH = "/admin/media"
PAGE_PICTURES = 24
USERS_SHOWN = 20
FILES_MAX = 5 * UPLOADS_MAX  # up to so many, the error says how many are allowed


@router.get("")
async def index(request: Viewer) -> Response:
    return await _show_library(request, Form())


async def _show_library(
    request: AdminRequest, form: Form, status: int = HTTPStatus.OK, added: int = 0
) -> Response:
    words = request.query("q")
    after = request.query("after") if is_picture_id(request.query("after")) else None
    pictures, following = await media.page(
        request.tables, request.context.clock, words, limit=PAGE_PICTURES, after=after
    )
    return request.show(
        "media/index.html",
        status,
        form=form,
        pictures=pictures,
        words=words,
        added=added,
        is_first=after is None,
        next_path=_page_path(words, following) if following else "",
        first_path=_page_path(words) if after else "",
    )


def _page_path(words: str, after: str = "") -> str:
    query = urlencode({name: value for name, value in (("q", words), ("after", after)) if value})
    return f"{PATH}?{query}" if query else PATH


@router.get("/upload")
async def upload_page(request: Viewer) -> Response:
    """A reload of the page that showed errors of an upload."""
    return go(PATH)


@router.post("/upload")
async def upload(request: Editor) -> Response:
    """Add every picture that can be used; the others are named with the reason.

    Submitted again, it adds nothing twice: the same bytes are the same picture.
    """
    form = Form()
    added: list[Picture] = []
    refused: list[str] = []
    async with opened(request.http, files_max=FILES_MAX) as submitted:
        files = submitted.all_files.get("pictures", [])
        if not files:
            form.mistakes["pictures"] = _("Choose one or more pictures.")
        elif len(files) > UPLOADS_MAX:
            form.mistakes["pictures"] = _(
                "You chose {count} files. Upload at most {limit} at a time.",
                count=len(files),
                limit=UPLOADS_MAX,
            )
            files = []
        for file in files:
            try:
                added.append(await _add(request, file))
            except BadInput as error:
                name = clean_name(file.filename or "")
                refused.append(str(_("{name}: {why}", name=name, why=error)))
            except StorageError:
                form.keep_for_later()
                break
    if refused:
        form.mistakes["pictures"] = " ".join(refused)
    if form.is_good and len(added) == 1:
        return go(f"{PATH}/{added[0].id}", "picture-added")
    if form.is_good:
        return go(PATH, "pictures-added", len(added))
    return await _show_library(request, form, form.status, added=len(added))


async def _add(request: AdminRequest, file: UploadFile) -> Picture:
    content = await file.read(UPLOAD_BYTES_MAX + 1)
    return await manage_media.add(request.act(), content, file.filename or "")


@router.get("/{picture_id}")
async def picture_page(request: Viewer, picture_id: str) -> Response:
    picture, etag = await media.read(request.tables, picture_id)
    return await _show_picture(request, picture, Form(_values(picture) | {"etag": etag}))


async def _show_picture(
    request: AdminRequest, picture: Picture, form: Form, status: int = HTTPStatus.OK
) -> Response:
    return request.show(
        "media/picture.html",
        status,
        picture=picture,
        form=form,
        uses=await manage_media.uses_of(request.storage, picture.id),
        users_shown=USERS_SHOWN,
        address=f"{request.context.site.url}{picture.path}",
    )


def _values(picture: Picture) -> dict[str, str]:
    return {"name": picture.name, "alt": picture.alt}


@router.post("/{picture_id}")
async def describe(request: Editor, picture_id: str) -> Response:
    form = await request.form()
    found = await media.read(request.tables, picture_id)
    if "name" not in form.values:  # the small form of the library asks only for the alt text
        form.values["name"] = found.value.name
    try:
        name, alt, etag = form.value("name"), form.value("alt"), form.value("etag") or found.etag
        await manage_media.describe(request.act(), picture_id, name, alt, etag)
        is_in_library = form.value("back") == "library"
        return go(PATH if is_in_library else f"{PATH}/{picture_id}", "saved")
    except BadInput as error:
        form.mistakes["alt" if form.value("name").strip() else "name"] = str(error)
    except Conflict:
        found = await media.read(request.tables, picture_id)
        if not form.show_others(_values(found.value), found.etag):
            return go(f"{PATH}/{picture_id}", "saved")
    except StorageError:
        form.keep_for_later()
    form.values.setdefault("etag", found.etag)
    return await _show_picture(request, found.value, form, form.status)


@router.get("/{picture_id}/delete")
async def delete_page(request: Editor, picture_id: str) -> Response:
    picture, etag = await media.read(request.tables, picture_id)
    return await _show_delete(request, picture, Form({"etag": etag}))


async def _show_delete(
    request: AdminRequest, picture: Picture, form: Form, status: int = HTTPStatus.OK
) -> Response:
    return request.show(
        "media/delete.html",
        status,
        picture=picture,
        form=form,
        uses=await manage_media.uses_of(request.storage, picture.id),
        users_shown=USERS_SHOWN,
    )


@router.post("/{picture_id}/delete")
async def delete(request: Editor, picture_id: str) -> Response:
    form = await request.form()
    found = await media.find(request.tables, picture_id)
    if found is None:  # deleted by a second click or by somebody else
        return go(PATH, "deleted")
    try:
        is_forced = form.is_ticked("anyway")
        await manage_media.delete(
            request.act(), picture_id, form.value("etag"), is_forced=is_forced
        )
        return go(PATH, "deleted")
    except WrongState as error:
        form.mistakes["anyway"] = str(error)
    except Conflict:
        form.values["etag"] = found.etag
        form.mistake = _("Somebody just changed this picture. Check it and try again.")
    return await _show_delete(request, found.value, form, HTTPStatus.CONFLICT)
