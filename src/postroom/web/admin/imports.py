"""Imports: upload a file, choose its columns, check it, import it, read the report.

The pages only write and read the job's row and the blobs; a worker in a scheduler process runs the
job (importing/worker.py), so any web process can show it.
"""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.mailing_list import check_list_name
from postroom.domain.texts import _, language
from postroom.importing import jobs, worker
from postroom.importing.csv_people import beginning
from postroom.importing.job import ImportJob, check_not_running, clean_file_name
from postroom.importing.upload import (
    CHUNK_BYTES,
    UploadWriter,
    delete_blobs,
    open_upload,
    read_report,
)
from postroom.records import lists
from postroom.storage.port import Blobs, Conflict, StorageError
from postroom.web.admin.column_form import RowsShown, chosen, first_form
from postroom.web.admin.subscribers import list_choices
from postroom.web.context import context_of
from postroom.web.forms import Form, posted
from postroom.web.pages import go, part, show
from postroom.web.security import TooLarge
from postroom.web.signed_in import Editor, SignedIn, Viewer, act_of
from postroom.web.uploads import Upload, receive_file

router = APIRouter(prefix="/imports")
SHOWN_MAX = 50
ROWS_READ = 6  # a heading and five people
_CHANGED = _("Somebody else changed this import at the same moment. Check it and try again.")


@router.get("")
async def index(request: Request, signed_in: Viewer) -> Response:
    newest = await jobs.newest(context_of(request).storage.tables, limit=SHOWN_MAX)
    return show(request, signed_in, "imports/index.html", jobs=newest)


@router.get("/new")
async def new_page(request: Request, signed_in: Editor) -> Response:
    return await _upload_page(
        request, signed_in, Form({"list": request.query_params.get("list", "")})
    )


@router.post("/upload")
async def upload(request: Request, signed_in: Editor) -> Response:
    """Write the file to blobs and check its beginning; the row comes last (importing/upload.py)."""
    context = context_of(request)
    blobs = context.storage.blobs
    id_ = jobs.new_id(context.clock.now())
    form = Form()
    writer = UploadWriter(blobs, id_)
    job: ImportJob | None = None
    try:
        received = await receive_file(request, "file", CHUNK_BYTES, writer.write)
        form.values |= received.fields
        list_name = form.take("list", check_list_name)
        if list_name and await lists.find(context.storage.tables, list_name) is None:
            form.mistakes["list"] = _("There is no such list.")
        await _check_file(form, blobs, id_, writer.chunks, received)
        if form.is_good and list_name:
            job = ImportJob(
                id=id_,
                list_name=list_name,
                file_name=clean_file_name(received.file_name),
                size=received.size,
                chunks=writer.chunks,
                user=signed_in.user.address,
                created_at=context.clock.now(),
            )
            await jobs.create(context.storage.tables, job)
    except TooLarge:
        form.mistakes["file"] = _("The file is larger than 1 GiB. Split it into several files.")
    except BadInput as error:
        form.mistake = str(error)
    finally:
        if job is None:
            with contextlib.suppress(StorageError):  # then the sweep deletes them
                await delete_blobs(blobs, id_)
    if job is None:
        return await _upload_page(request, signed_in, form, 422)
    return go(f"/admin/imports/{id_}/columns")


@router.get("/{id_}")
async def details(request: Request, signed_in: Viewer, id_: str) -> Response:
    job = await _read(request, id_)
    if not job.is_mapped and signed_in.may("editor"):
        return go(f"/admin/imports/{id_}/columns")
    return _details(request, signed_in, job)


@router.get("/{id_}/live")
async def live(request: Request, signed_in: Viewer, id_: str) -> Response:
    """The part of the page that changes; it reloads itself while the import runs."""
    job = await _read(request, id_)
    return HTMLResponse(part("imports/progress.html", signed_in=signed_in, job=job))


@router.get("/{id_}/columns")
async def columns_page(request: Request, signed_in: Editor, id_: str) -> Response:
    job = await _read(request, id_)
    try:
        check_not_running(job)
        seen = await _beginning(context_of(request).storage.blobs, id_, job.chunks, job.file_name)
    except (BadInput, WrongState) as error:
        return _details(request, signed_in, job, Form(mistake=str(error)), 409)
    return _columns(request, signed_in, job, seen, first_form(job, seen.beginning))


@router.post("/{id_}/columns")
async def choose_columns(request: Request, signed_in: Editor, id_: str) -> Response:
    """Store what becomes of each column and of the people, then start the dry run."""
    storage = context_of(request).storage
    form = await posted(request)
    job, etag = await jobs.read(storage.tables, id_)
    try:
        check_not_running(job)
        seen = await _beginning(storage.blobs, id_, job.chunks, job.file_name)
        wanted = chosen(job, seen.beginning, form)
        if wanted is None:
            return _columns(request, signed_in, job, seen, form, 422)
        await jobs.replace(storage.tables, wanted, etag)
    except (BadInput, WrongState) as error:
        return _details(request, signed_in, job, Form(mistake=str(error)), 409)
    except Conflict:
        return _details(request, signed_in, job, Form(mistake=_CHANGED), 409)
    return await _start(request, signed_in, id_, is_rehearsal=True)


@router.post("/{id_}/start")
async def start(request: Request, signed_in: Editor, id_: str) -> Response:
    """Start what the page offered: the dry run, the import, or the rest of either."""
    form = await posted(request)
    return await _start(request, signed_in, id_, is_rehearsal=form.is_ticked("rehearsal"))


@router.post("/{id_}/stop")
async def stop(request: Request, signed_in: Editor, id_: str) -> Response:
    await worker.stop(act_of(request, signed_in), id_)
    return go(f"/admin/imports/{id_}")


@router.post("/{id_}/discard")
async def discard(request: Request, signed_in: Editor, id_: str) -> Response:
    """Delete the row and the blobs; people who were added stay."""
    storage = context_of(request).storage
    try:
        job, etag = await jobs.read(storage.tables, id_)
    except NotFound:  # a second click, or somebody else: it is deleted, as was wanted
        return go("/admin/imports", "deleted")
    if job.is_running:
        form = Form(mistake=_("This import is running: stop it first."))
        return _details(request, signed_in, job, form, 409)
    await jobs.delete(storage.tables, id_, etag)
    await delete_blobs(storage.blobs, id_)
    return go("/admin/imports", "deleted")


@router.get("/{id_}/report/export")
async def report(request: Request, signed_in: Viewer, id_: str) -> Response:
    """Every row that could not be used: line, value, reason."""
    job = await _read(request, id_)
    name = f'attachment; filename="{job.list_name}-report.csv"'
    return StreamingResponse(
        read_report(context_of(request).storage.blobs, job),
        media_type="text/csv",
        headers={"content-disposition": name},
    )


async def _start(
    request: Request, signed_in: SignedIn, id_: str, *, is_rehearsal: bool
) -> Response:
    act = act_of(request, signed_in)
    try:
        await worker.start(act, id_, language().tag, is_rehearsal=is_rehearsal)
    except WrongState as error:
        form = Form(mistake=str(error))
    except Conflict:
        form = Form(mistake=_CHANGED)
    else:
        return go(f"/admin/imports/{id_}")
    return _details(request, signed_in, await _read(request, id_), form, 409)


async def _read(request: Request, id_: str) -> ImportJob:
    job, _etag = await jobs.read(context_of(request).storage.tables, id_)
    return job


def _details(
    request: Request,
    signed_in: SignedIn,
    job: ImportJob,
    form: Form | None = None,
    status: int = 200,
) -> Response:
    form = form or Form()
    return show(request, signed_in, "imports/details.html", status, job=job, form=form)


def _columns(
    request: Request,
    signed_in: SignedIn,
    job: ImportJob,
    seen: RowsShown,
    form: Form,
    status: int = 200,
) -> Response:
    return show(request, signed_in, "imports/columns.html", status, job=job, seen=seen, form=form)


async def _beginning(blobs: Blobs, id_: str, chunks: int, name: str) -> RowsShown:
    _file, source = await open_upload(blobs, id_, chunks, name, 0)
    rows = await asyncio.to_thread(beginning, iter(source), ROWS_READ)  # may take a while
    return RowsShown(rows, source.encoding)


async def _upload_page(
    request: Request, signed_in: SignedIn, form: Form, status: int = 200
) -> Response:
    choices = await list_choices(context_of(request).storage.tables, form.value("list"))
    return show(request, signed_in, "imports/new.html", status, form=form, choices=choices)


async def _check_file(form: Form, blobs: Blobs, id_: str, chunks: int, received: Upload) -> None:
    if received.files > 1:
        form.mistakes["file"] = _("Choose one file: each is an import of its own.")
        return
    if not received.file_name:
        form.mistakes["file"] = _("Choose a file.")
        return
    try:
        await _beginning(blobs, id_, chunks, clean_file_name(received.file_name))
    except BadInput as error:
        form.mistakes["file"] = str(error)
