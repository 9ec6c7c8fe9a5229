"""Imports: upload a file, choose its columns, look it over, bring it in, read the report."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta
from pathlib import Path

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import FileResponse, HTMLResponse, Response

from postroom.domain.csv_people import beginning
from postroom.domain.csv_source import opened
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.import_job import KEPT, ImportJob, clean_file_name
from postroom.domain.mailing_list import check_list_name
from postroom.domain.texts import _
from postroom.records import imports, lists
from postroom.storage.port import Conflict
from postroom.web.admin.column_form import RowsShown, chosen, first_form
from postroom.web.admin.import_files import files_of
from postroom.web.admin.import_runs import runs_of
from postroom.web.admin.subscribers import list_choices
from postroom.web.context import WebContext, context_of
from postroom.web.forms import Form, posted
from postroom.web.pages import go, part, show
from postroom.web.security import TooLarge
from postroom.web.signed_in import Editor, SignedIn, Viewer
from postroom.web.uploads import Upload, receive_file

router = APIRouter(prefix="/imports")
SHOWN_MAX = 50
ROWS_READ = 6  # a heading and five people
TIDIED_UP_MAX = 100  # rows an upload, and files
COMING_IN = timedelta(hours=1)  # a file is written to until its row is there
_TRIES_MAX = 5
_CHANGED = _("Somebody else did something with this import at the same moment: look, and decide.")


@router.get("")
async def index(request: Request, signed_in: Viewer) -> Response:
    context = context_of(request)
    found = await imports.newest(context.storage.tables, limit=SHOWN_MAX)
    jobs = [job.as_of(context.clock.now()) for job in found]
    return show(request, signed_in, "imports/index.html", jobs=jobs)


@router.get("/new")
async def new_page(request: Request, signed_in: Editor) -> Response:
    return await _upload_page(
        request, signed_in, Form({"list": request.query_params.get("list", "")})
    )


@router.post("/upload")
async def upload(request: Request, signed_in: Editor) -> Response:
    """Onto the disk of this machine, then to the columns. Old files go at the same time."""
    context = context_of(request)
    tables, id_, form = context.storage.tables, imports.new_id(context.clock.now()), Form()
    received = await _received(request, id_, form)
    if received is None:
        return await _upload_page(request, signed_in, form, 422)
    form.values |= received.fields
    list_name = form.take("list", check_list_name)
    if list_name and await lists.find(tables, list_name) is None:
        form.mistakes["list"] = _("There is no such list.")
    await _check_file(form, context, id_, received)
    if not form.is_good:
        files_of(context).remove(id_)
        return await _upload_page(request, signed_in, form, 422)
    assert list_name
    await imports.create(tables, _job(context, signed_in, id_, list_name, received))
    return go(f"/admin/imports/{id_}/columns")


@router.get("/{id_}")
async def details(request: Request, signed_in: Viewer, id_: str) -> Response:
    job = await _read(request, id_)
    if not job.is_mapped and signed_in.may("editor"):
        return go(f"/admin/imports/{id_}/columns")
    return _details(request, signed_in, job)


@router.get("/{id_}/live")
async def live(request: Request, signed_in: Viewer, id_: str) -> Response:
    """The part of the page that changes; it asks again by itself while the import runs."""
    job = await _read(request, id_)
    has_report = _has_report(context_of(request), job)
    piece = part("imports/progress.html", signed_in=signed_in, job=job, has_report=has_report)
    return HTMLResponse(piece)


@router.get("/{id_}/columns")
async def columns_page(request: Request, signed_in: Editor, id_: str) -> Response:
    job = await _read(request, id_)
    try:
        seen = await asyncio.to_thread(_beginning, context_of(request), job)
    except BadInput as error:
        return _details(request, signed_in, job, Form(mistake=str(error)), 409)
    return _columns(request, signed_in, job, seen, first_form(job, seen.beginning))


@router.post("/{id_}/columns")
async def choose_columns(request: Request, signed_in: Editor, id_: str) -> Response:
    """What becomes of each column, and on which terms; then the file is looked over."""
    tables, form = context_of(request).storage.tables, await posted(request)
    job, etag = await imports.read(tables, id_)
    job = job.as_of(context_of(request).clock.now())
    try:
        seen = await asyncio.to_thread(_beginning, context_of(request), job)
        wanted = chosen(job, seen.beginning, form)
        if wanted is None:
            return _columns(request, signed_in, job, seen, form, 422)
        await imports.replace(tables, wanted, etag)
    except (BadInput, WrongState) as error:
        return _details(request, signed_in, job, Form(mistake=str(error)), 409)
    except Conflict:
        return _details(request, signed_in, job, Form(mistake=_CHANGED), 409)
    return await _start(request, signed_in, id_, is_rehearsal=True)


@router.post("/{id_}/start")
async def start(request: Request, signed_in: Editor, id_: str) -> Response:
    """The run that the page offered: for real once the file was looked over, or going on."""
    form = await posted(request)
    return await _start(request, signed_in, id_, is_rehearsal=form.is_ticked("rehearsal"))


@router.post("/{id_}/stop")
async def stop(request: Request, signed_in: Editor, id_: str) -> Response:
    """Whichever process has it, it finds the word in the row."""
    tables = context_of(request).storage.tables
    for _try in range(_TRIES_MAX):
        job, etag = await imports.read(tables, id_)
        try:
            await imports.replace(tables, msgspec.structs.replace(job, is_stop_asked=True), etag)
            break
        except Conflict:
            continue  # it told how far it is
    runs_of(request).stop(id_)
    return go(f"/admin/imports/{id_}")


@router.post("/{id_}/discard")
async def discard(request: Request, signed_in: Editor, id_: str) -> Response:
    """The row and the files; whoever was added stays."""
    context = context_of(request)
    try:
        job, etag = await imports.read(context.storage.tables, id_)
    except NotFound:  # a second click, or somebody else: it is gone, as was wanted
        return go("/admin/imports", "deleted")
    if job.as_of(context.clock.now()).is_running:
        form = Form(mistake=_("This import is running: stop it first."))
        return _details(request, signed_in, job, form, 409)
    await imports.delete(context.storage.tables, job, etag)
    files_of(context).remove(id_)
    return go("/admin/imports", "deleted")


@router.get("/{id_}/report/export")
async def report(request: Request, signed_in: Viewer, id_: str) -> Response:
    """Every row that could not be used: line, value, reason."""
    job = await _read(request, id_)
    path = files_of(context_of(request)).report(job.id)
    if not path.exists():
        raise NotFound(_("The report is on {machine}.", machine=job.machine))
    return FileResponse(path, media_type="text/csv", filename=f"{job.list_name}-report.csv")


async def _start(
    request: Request, signed_in: SignedIn, id_: str, *, is_rehearsal: bool
) -> Response:
    try:
        await runs_of(request).start(id_, is_rehearsal=is_rehearsal)
    except WrongState as error:
        form = Form(mistake=str(error))
    except Conflict:
        form = Form(mistake=_CHANGED)
    else:
        return go(f"/admin/imports/{id_}")
    return _details(request, signed_in, await _read(request, id_), form, 409)


async def _read(request: Request, id_: str) -> ImportJob:
    context = context_of(request)
    job, _etag = await imports.read(context.storage.tables, id_)
    return job.as_of(context.clock.now())


def _details(
    request: Request,
    signed_in: SignedIn,
    job: ImportJob,
    form: Form | None = None,
    status: int = 200,
) -> Response:
    return show(
        request,
        signed_in,
        "imports/details.html",
        status,
        job=job,
        form=form or Form(),
        has_report=_has_report(context_of(request), job),
    )


def _has_report(context: WebContext, job: ImportJob) -> bool:
    return not job.is_running and files_of(context).report(job.id).exists()


def _columns(
    request: Request,
    signed_in: SignedIn,
    job: ImportJob,
    seen: RowsShown,
    form: Form,
    status: int = 200,
) -> Response:
    return show(request, signed_in, "imports/columns.html", status, job=job, seen=seen, form=form)


def _beginning(context: WebContext, job: ImportJob) -> RowsShown:
    path = files_of(context).of(job.id)
    if not job.is_finished and not path.exists():
        raise BadInput(_("The file is not here, but on {machine}.", machine=job.machine))
    return _read_beginning(path, job.file_name)


def _read_beginning(path: Path, name: str) -> RowsShown:
    """Takes time and the disk: for a thread."""
    with opened(path, name) as source:
        return RowsShown(beginning(iter(source), ROWS_READ), source.encoding)


async def _upload_page(
    request: Request, signed_in: SignedIn, form: Form, status: int = 200
) -> Response:
    choices = await list_choices(context_of(request).storage.tables, form.value("list"))
    return show(request, signed_in, "imports/new.html", status, form=form, choices=choices)


async def _received(request: Request, id_: str, form: Form) -> Upload | None:
    """The upload; None, and a sentence in the form, if it did not come through."""
    context = context_of(request)
    files = files_of(context)
    try:
        files.make_folder()
        await _tidy_up(context)
        return await receive_file(request, "file", files.of(id_))
    except TooLarge:
        form.mistakes["file"] = _("The file is larger than 1 GiB: split it, and import the pieces.")
    except BadInput as error:
        form.mistake = str(error)
    except OSError as error:
        form.mistake = _("The file cannot be kept here: {why}.", why=error.strerror)
    return None


async def _check_file(form: Form, context: WebContext, id_: str, received: Upload) -> None:
    if received.files > 1:
        form.mistakes["file"] = _("Choose one file: each is an import of its own.")
        return
    if not received.file_name:
        form.mistakes["file"] = _("Choose a file.")
        return
    try:
        name = clean_file_name(received.file_name)
        await asyncio.to_thread(_read_beginning, files_of(context).of(id_), name)
    except BadInput as error:
        form.mistakes["file"] = str(error)


def _job(
    context: WebContext, signed_in: SignedIn, id_: str, list_name: str, received: Upload
) -> ImportJob:
    return ImportJob(
        id=id_,
        list_name=list_name,
        file_name=clean_file_name(received.file_name),
        size=received.size,
        machine=socket.gethostname(),
        user=signed_in.user.address,
        created_at=context.clock.now(),
    )


async def _tidy_up(context: WebContext) -> None:
    """What is past its age: rows everywhere, files on this machine. And what has no row any more.

    An import that was deleted at another web leaves its files here; one that is just coming in has
    files and no row yet.
    """
    tables, files, now = context.storage.tables, files_of(context), context.clock.now()
    await imports.forget_before(tables, now - KEPT, limit=TIDIED_UP_MAX)
    files.remove_before(now - KEPT)
    for id_ in sorted(files.ids_before(now - COMING_IN))[:TIDIED_UP_MAX]:
        if await imports.is_deleted(tables, id_):
            files.remove(id_)
