"""Imports: upload a file, choose its columns, check it, import it, read the report.

The pages only write and read the job's row and the blobs; a worker in a scheduler process runs the
job (importing/worker.py), so any web process can show it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import msgspec
from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.csv_rows import DELIMITER_NAMES, SINCE, SUBSCRIPTION, clipped
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.mailing_list import check_list_name
from postroom.domain.subscriber import ATTRIBUTES_MAX
from postroom.domain.texts import Text, _, language
from postroom.importing import jobs, worker
from postroom.importing.csv_people import Columns, CsvSample, check_column_name, csv_sample
from postroom.importing.job import (
    ExistingFields,
    ImportJob,
    Purpose,
    check_basis,
    check_not_running,
    clean_file_name,
    mapped,
)
from postroom.importing.upload import (
    CHUNK_BYTES,
    UploadWriter,
    delete_blobs,
    open_upload,
    read_report,
)
from postroom.records import lists
from postroom.storage.port import Blobs, Conflict, StorageError
from postroom.web.admin.admin_request import AdminRequest, Editor, Viewer, csv_download
from postroom.web.admin.lists import list_choices
from postroom.web.forms import Form
from postroom.web.pages import go, part
from postroom.web.security import TooLarge
from postroom.web.uploads import receive_file

router = APIRouter(prefix="/imports")
SHOWN_MAX = 50
ROWS_READ = 6  # a header and five people
COLUMNS_MAX = 60  # twice as many as a person can have attributes
SAMPLES = 3
_NOT_ATTRIBUTES = (SUBSCRIPTION, SINCE)  # columns of our own exports


class Column(msgspec.Struct, frozen=True):
    at: int
    heading: str
    samples: list[str]
    is_ours: bool  # a column of our own exports that is not an attribute


class FilePreview(msgspec.Struct, frozen=True):
    """The first rows of a file, as shown on the page."""

    sample: CsvSample
    encoding: str

    @property
    def delimiter(self) -> Text | str:
        return DELIMITER_NAMES.get(self.sample.delimiter, self.sample.delimiter)

    @property
    def columns(self) -> Iterator[Column]:
        rows = self.sample.rows
        header = rows[0] if self.sample.has_header else []
        people = rows[1:] if self.sample.has_header else rows
        for at, name in enumerate(self.sample.names[:COLUMNS_MAX]):
            heading = header[at] if at < len(header) else ""
            samples = [clipped(row[at]) for row in people if at < len(row)]
            yield Column(at, heading, samples[:SAMPLES], name in _NOT_ATTRIBUTES)

    @property
    def is_too_wide(self) -> bool:
        return self.sample.width > COLUMNS_MAX


@router.get("")
async def index(request: Viewer) -> Response:
    newest = await jobs.newest(request.tables, limit=SHOWN_MAX)
    return request.show("imports/index.html", jobs=newest)


@router.get("/new")
async def new_page(request: Editor) -> Response:
    return await _show_upload(request, Form({"list": request.query("list")}))


@router.post("/upload")
async def upload(request: Editor) -> Response:
    """Write the file to blobs and check its beginning; the row comes last (importing/upload.py)."""
    blobs = request.storage.blobs
    id_ = jobs.new_id(request.now())
    form = Form()
    writer = UploadWriter(blobs, id_)
    job: ImportJob | None = None
    try:
        received = await receive_file(request.http, "file", CHUNK_BYTES, writer.write)
        form.values |= received.fields
        list_name = form.take("list", check_list_name)
        if list_name and await lists.find(request.tables, list_name) is None:
            form.mistakes["list"] = _("There is no such list.")
        file_name = clean_file_name(received.file_name)
        if received.files > 1:
            form.mistakes["file"] = _("Choose one file. Import each file separately.")
        elif not received.file_name:
            form.mistakes["file"] = _("Choose a file.")
        else:
            try:
                await _preview(blobs, id_, writer.chunks, file_name)
            except BadInput as error:
                form.mistakes["file"] = str(error)
        if form.is_good and list_name:
            job = ImportJob(
                id=id_,
                list_name=list_name,
                file_name=file_name,
                size=received.size,
                chunks=writer.chunks,
                user=request.signed_in.user.address,
                created_at=request.now(),
            )
            await jobs.create(request.tables, job)
    except TooLarge:
        form.mistakes["file"] = _("The file is larger than 1 GiB. Split it into several files.")
    except BadInput as error:
        form.mistake = str(error)
    finally:
        if job is None:
            with contextlib.suppress(StorageError):  # then the sweep deletes them
                await delete_blobs(blobs, id_)
    if job is None:
        return await _show_upload(request, form, 422)
    return go(f"/admin/imports/{id_}/columns")


@router.get("/{id_}")
async def details(request: Viewer, id_: str) -> Response:
    job, _etag = await jobs.read(request.tables, id_)
    if not job.is_mapped and request.signed_in.may("editor"):
        return go(f"/admin/imports/{id_}/columns")
    return request.show("imports/details.html", job=job, form=Form())


@router.get("/{id_}/live")
async def live(request: Viewer, id_: str) -> Response:
    """The part of the page that changes; it reloads itself while the import runs."""
    job, _etag = await jobs.read(request.tables, id_)
    return HTMLResponse(part("imports/progress.html", signed_in=request.signed_in, job=job))


@router.get("/{id_}/columns")
async def columns_page(request: Editor, id_: str) -> Response:
    job, _etag = await jobs.read(request.tables, id_)
    try:
        check_not_running(job)
        preview = await _preview(request.storage.blobs, id_, job.chunks, job.file_name)
    except (BadInput, WrongState) as error:
        return _refuse(request, job, error)
    form = _initial_form(job, preview.sample)
    return request.show("imports/columns.html", job=job, preview=preview, form=form)


@router.post("/{id_}/columns")
async def choose_columns(request: Editor, id_: str) -> Response:
    """Store what to do with each column and with the people, then start the dry run."""
    form = await request.form()
    job, etag = await jobs.read(request.tables, id_)
    try:
        check_not_running(job)
        preview = await _preview(request.storage.blobs, id_, job.chunks, job.file_name)
        mapped_job = _job_from(form, job, preview.sample)
        if mapped_job is None:
            return request.show("imports/columns.html", 422, job=job, preview=preview, form=form)
        await jobs.replace(request.tables, mapped_job, etag)
    except (BadInput, WrongState, Conflict) as error:
        return _refuse(request, job, error)
    return await _start(request, id_, is_rehearsal=True)


@router.post("/{id_}/start")
async def start(request: Editor, id_: str) -> Response:
    """Start what the page offered: the dry run, the import, or the rest of either."""
    form = await request.form()
    return await _start(request, id_, is_rehearsal=form.is_ticked("rehearsal"))


@router.post("/{id_}/stop")
async def stop(request: Editor, id_: str) -> Response:
    act = request.act()
    async with act.audited(AuditKind.IMPORT, id_, AuditAction.STOP):
        await worker.stop(act, id_)
    return go(f"/admin/imports/{id_}")


@router.post("/{id_}/discard")
async def discard(request: Editor, id_: str) -> Response:
    """Delete the row and the blobs; people who were added stay."""
    try:
        job, etag = await jobs.read(request.tables, id_)
    except NotFound:  # deleted by a second click or by somebody else
        return go("/admin/imports", "deleted")
    if job.is_running:
        return _refuse(request, job, WrongState(_("This import is running. Stop it first.")))
    name = f"{job.list_name} {job.file_name}"
    async with request.act().audited(AuditKind.IMPORT, name, AuditAction.DELETE):
        await jobs.delete(request.tables, id_, etag)
        await delete_blobs(request.storage.blobs, id_)
    return go("/admin/imports", "deleted")


@router.get("/{id_}/report/export")
async def report(request: Viewer, id_: str) -> Response:
    """Every row that was not imported: line, value, reason."""
    job, _etag = await jobs.read(request.tables, id_)
    return csv_download(read_report(request.storage.blobs, job), f"{job.list_name}-report.csv")


async def _start(request: AdminRequest, id_: str, *, is_rehearsal: bool) -> Response:
    try:
        await worker.start(request.act(), id_, language().tag, is_rehearsal=is_rehearsal)
    except (WrongState, Conflict) as error:
        job, _etag = await jobs.read(request.tables, id_)
        return _refuse(request, job, error)
    return go(f"/admin/imports/{id_}")


def _refuse(request: AdminRequest, job: ImportJob, error: Exception) -> Response:
    """The import's page, with what is wrong."""
    changed = _("Somebody else changed this import at the same time. Check it and try again.")
    form = Form(mistake=changed if isinstance(error, Conflict) else str(error))
    return request.show("imports/details.html", 409, job=job, form=form)


async def _preview(blobs: Blobs, id_: str, chunks: int, name: str) -> FilePreview:
    _file, source = await open_upload(blobs, id_, chunks, name, 0)
    rows = await asyncio.to_thread(csv_sample, iter(source), ROWS_READ)  # may take a while
    return FilePreview(rows, source.encoding)


async def _show_upload(request: AdminRequest, form: Form, status: int = 200) -> Response:
    choices = await list_choices(request.tables, form.value("list"))
    return request.show("imports/new.html", status, form=form, choices=choices)


def _initial_form(job: ImportJob, found: CsvSample) -> Form:
    """What was chosen before or, at first, what the file seems to be."""
    # The purpose is never preselected: a person must decide whether people are mailed.
    values = {"purpose": job.purpose.value} if job.is_mapped else {}
    values |= {"existing": job.existing.value, "basis": job.basis}
    columns = job.columns if job.is_mapped else _guess(found)
    values["email"] = str(columns.email)
    values["header"] = "yes" if columns.has_header else ""
    return Form(values | {f"name-{at}": name for at, name in columns.attributes})


def _job_from(form: Form, job: ImportJob, found: CsvSample) -> ImportJob | None:
    """The job with what the form says; None, with errors in the form, if it cannot be used."""

    def parse_position(text: str) -> int:
        if text in map(str, range(min(found.width, COLUMNS_MAX))):
            return int(text)
        raise BadInput(_("Choose the column with the email addresses."))

    email = form.take("email", parse_position)
    purpose = Purpose(form.value("purpose")) if form.value("purpose") in set(Purpose) else None
    basis = form.take("basis", lambda text: check_basis(text, purpose))
    if purpose is None:
        form.mistakes["purpose"] = _("Choose what to do with these people.")
    existing = (
        ExistingFields(form.value("existing"))
        if form.value("existing") in set(ExistingFields)
        else None
    )
    attributes = _attributes_in(form, found, email)
    if not form.is_good or email is None or purpose is None:
        return None
    columns = Columns(
        email,
        tuple(attributes.items()),
        found.names.index(SUBSCRIPTION) if SUBSCRIPTION in found.names else None,
        found.width,
        has_header=form.is_ticked("header"),
    )
    return mapped(job, columns, purpose, existing or ExistingFields.LEAVE, basis or "")


def _guess(found: CsvSample) -> Columns:
    attributes: list[tuple[int, str]] = []
    for at, name in enumerate(found.names[:COLUMNS_MAX]):
        with contextlib.suppress(BadInput):
            if at != found.email and check_column_name(name):
                attributes.append((at, name))
    first = tuple(attributes[:ATTRIBUTES_MAX])
    return Columns(found.email, first, None, 0, found.has_header)


def _attributes_in(form: Form, found: CsvSample, email: int | None) -> dict[int, str]:
    """Names by position; a column without a name is left out."""
    names: dict[int, str] = {}
    for at in range(min(found.width, COLUMNS_MAX)):
        field = f"name-{at}"
        if at == email or not form.value(field).strip():
            continue
        name = form.take(field, check_column_name)
        if name in names.values():
            form.mistakes[field] = _(
                "Two columns are called {name}. Rename one of them.", name=name
            )
        elif name:
            names[at] = name
    if len(names) > ATTRIBUTES_MAX:
        form.mistake = _(
            "At most {limit} columns can be imported as attributes. Clear the names of some.",
            limit=ATTRIBUTES_MAX,
        )
    return names
