"""An import job: one file, one list, checked by a dry run first and then imported."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from postroom.domain.consent import ConsentSource, SourceKind
from postroom.domain.csv_rows import BadRow
from postroom.domain.errors import BadInput, WrongState
from postroom.domain.job_status import JobStatus
from postroom.domain.subscriber import clean_attributes
from postroom.domain.texts import _
from postroom.importing.csv_people import Columns

KEPT = timedelta(days=30)
FILE_NAME_CHARS_MAX = 60
BASIS_CHARS_MAX = 220
BAD_ROWS_SHOWN = 10
_NO_COLUMNS = Columns(0, (), None, 0)


class Purpose(StrEnum):
    """What happens to the people in the file."""

    CONFIRMED = "confirmed"  # they have confirmed: they are mailed
    ASK = "ask"  # each gets a confirmation email
    KEEP = "keep"  # they are added unverified
    SUPPRESS = "suppress"  # nobody is added: they are marked as removed


class ExistingFields(StrEnum):
    """What happens to the attributes of people who are already on the list."""

    LEAVE = "leave"
    FILL = "fill"  # add only attributes that they do not have
    OVERWRITE = "overwrite"  # an empty cell overwrites nothing


class ImportCounts(msgspec.Struct, kw_only=True):
    """The results so far."""

    # Each row is one of these.
    added: int = 0  # if the purpose is to suppress: marked as removed
    already: int = 0
    duplicates: int = 0  # an address that is in the group already: its first row counts
    unsubscribed: int = 0  # unsubscribed earlier, and not added again
    bad: int = 0
    # It may be several of these.
    confirmed: int = 0  # of those already there
    updated: int = 0  # of those already there
    asked: int = 0  # of those added, or already there
    corrected: int = 0  # addresses with an obvious typing error, which was corrected
    mistyped: int = 0  # addresses that look mistyped; only a dry run counts them

    @property
    def rows(self) -> int:
        return self.added + self.already + self.duplicates + self.unsubscribed + self.bad


COUNTED = ImportCounts.__struct_fields__


class Refusals(msgspec.Struct, frozen=True):
    """The first rows that could not be used."""

    rows: list[BadRow] = []


class ImportJob(ImportCounts, frozen=True, kw_only=True):  # type: ignore[misc]  # for dataclasses
    id: str
    list_name: str
    file_name: str
    size: int  # bytes
    chunks: int  # blobs that hold the file (upload.py)
    user: str  # who uploaded it
    created_at: datetime
    purpose: Purpose = Purpose.KEEP
    existing: ExistingFields = ExistingFields.LEAVE
    basis: str = ""  # why these people may be mailed
    columns: Columns = _NO_COLUMNS
    status: JobStatus = JobStatus.WAITING
    is_rehearsal: bool = True  # the counts are those of a dry run
    run: str = ""  # names the worker that may write to the row: a new token for each
    language: str = ""  # of the person who started it, for the report
    is_stop_asked: bool = False
    started_at: datetime | None = None
    seen_at: datetime | None = None  # when a worker last wrote; None while none has begun
    ended_at: datetime | None = None
    line: int = 0  # everything up to this line of the file is done and counted
    read_bytes: int = 0
    report_parts: int = 0  # blobs that hold the report
    encoding: str = ""
    first_bad: Refusals = Refusals()
    first_noted: Refusals = Refusals()  # rows that were corrected, or look mistyped
    mistake: str = ""  # why it failed

    @property
    def is_mapped(self) -> bool:
        return self.columns.count > 0

    @property
    def is_running(self) -> bool:
        return self.status is JobStatus.RUNNING

    @property
    def is_rehearsed(self) -> bool:
        return self.is_rehearsal and self.status is JobStatus.DONE

    @property
    def is_finished(self) -> bool:
        return not self.is_rehearsal and self.status is JobStatus.DONE

    @property
    def changes_somebody(self) -> bool:
        return bool(self.added or self.confirmed or self.updated or self.asked)

    @property
    def is_suppression(self) -> bool:
        return self.purpose is Purpose.SUPPRESS

    @property
    def source(self) -> ConsentSource:
        """What the consent record says about everybody in the import."""
        return ConsentSource(SourceKind.IMPORT, self.file_name, basis=self.basis)


def mapped(
    job: ImportJob, columns: Columns, purpose: Purpose, existing: ExistingFields, basis: str
) -> ImportJob:
    """The job with what a person chose; the results of earlier runs no longer count."""
    check_not_running(job)
    return msgspec.structs.replace(
        job,
        columns=columns,
        purpose=purpose,
        existing=existing,
        basis=basis,
        status=JobStatus.WAITING,
        is_rehearsal=True,
    )


def started(job: ImportJob, now: datetime, language: str, *, is_rehearsal: bool) -> ImportJob:
    """The job ready for a worker; one that was stopped or failed continues where it ended."""
    check_not_running(job)
    if not job.is_mapped:
        raise WrongState(_("Choose the columns first."))
    if not is_rehearsal and job.is_rehearsal and not job.is_rehearsed:
        raise WrongState(_("Check the file first. Nobody is added before that."))
    is_unfinished = job.status in (JobStatus.STOPPED, JobStatus.FAILED)
    if not is_unfinished or job.is_rehearsal != is_rehearsal:
        job = msgspec.structs.replace(
            job,
            line=0,
            read_bytes=0,
            report_parts=0,
            first_bad=Refusals(),
            first_noted=Refusals(),
            **dict.fromkeys(COUNTED, 0),
        )
    return msgspec.structs.replace(
        job,
        status=JobStatus.RUNNING,
        is_rehearsal=is_rehearsal,
        run="",
        language=language,
        is_stop_asked=False,
        started_at=now,
        seen_at=None,
        ended_at=None,
        mistake="",
    )


def stopped(job: ImportJob, now: datetime) -> ImportJob:
    """The job after a person asked to stop it; one that no worker has begun stops at once."""
    if not job.is_running:
        return job
    if job.seen_at is None:
        return msgspec.structs.replace(job, status=JobStatus.STOPPED, ended_at=now)
    return msgspec.structs.replace(job, is_stop_asked=True)


def check_not_running(job: ImportJob) -> None:
    """WrongState unless the job can be changed or started."""
    if job.is_running:
        raise WrongState(_("This import is running. Stop it first."))
    if job.is_finished:
        raise WrongState(_("This import is done. To run another one, upload the file again."))


def check_basis(text: str, purpose: Purpose | None) -> str:
    """The reason why these people may be mailed; required only if they count as confirmed."""
    text = " ".join(text.split())
    if not text and purpose is Purpose.CONFIRMED:
        raise BadInput(
            _(
                "Say why you are allowed to email these people. It is stored in each person’s "
                "consent record."
            )
        )
    if len(text) > BASIS_CHARS_MAX:
        raise BadInput(_("Use at most {limit} characters.", limit=BASIS_CHARS_MAX))
    return text


def attributes_after(
    existing: ExistingFields, known: dict[str, str], in_file: dict[str, str]
) -> dict[str, str]:
    """The attributes of somebody on the list after an import; BadInput if they become too many."""
    match existing:
        case ExistingFields.LEAVE:
            return known
        case ExistingFields.FILL:
            return clean_attributes(in_file | known)
        case ExistingFields.OVERWRITE:
            return clean_attributes(known | in_file)


def clean_file_name(text: str) -> str:
    """The last part of the path that a browser sends, printable and short."""
    name = text.replace("\\", "/").rpartition("/")[2]
    name = "".join(filter(str.isprintable, name)).strip()
    return name[-FILE_NAME_CHARS_MAX:] or "file"
