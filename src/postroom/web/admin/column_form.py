"""The form of an import: what each column of the file is, and what to do with the people."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from postroom.domain.csv_rows import DELIMITER_NAMES, SINCE, SUBSCRIPTION, clipped
from postroom.domain.errors import BadInput
from postroom.domain.subscriber import ATTRIBUTES_MAX
from postroom.domain.texts import Text, _
from postroom.importing.csv_people import Beginning, Columns, check_column_name
from postroom.importing.job import Existing, ImportJob, Purpose, check_basis, mapped
from postroom.web.forms import Form

COLUMNS_MAX = 60  # twice as many as a person has attributes
SAMPLES = 3
_NOT_ATTRIBUTES = (SUBSCRIPTION, SINCE)  # columns of our own exports


class Column(msgspec.Struct, frozen=True):
    at: int
    heading: str
    samples: list[str]
    is_ours: bool  # a column of our own exports that is not an attribute


class FilePreview(msgspec.Struct, frozen=True):
    """The first rows of a file, as shown on the page."""

    beginning: Beginning
    encoding: str

    @property
    def delimiter(self) -> Text | str:
        return DELIMITER_NAMES.get(self.beginning.delimiter, self.beginning.delimiter)

    @property
    def columns(self) -> Iterator[Column]:
        rows = self.beginning.rows
        header = rows[0] if self.beginning.has_header else []
        people = rows[1:] if self.beginning.has_header else rows
        for at, name in enumerate(self.beginning.names[:COLUMNS_MAX]):
            heading = header[at] if at < len(header) else ""
            samples = [clipped(row[at]) for row in people if at < len(row)]
            yield Column(at, heading, samples[:SAMPLES], name in _NOT_ATTRIBUTES)

    @property
    def is_too_wide(self) -> bool:
        return self.beginning.width > COLUMNS_MAX


def initial_form(job: ImportJob, beginning: Beginning) -> Form:
    """What was chosen before or, at first, what the file seems to be."""
    # The purpose is never preselected: a person must decide whether people are mailed.
    values = {"purpose": job.purpose.value} if job.is_mapped else {}
    values |= {"existing": job.existing.value, "basis": job.basis}
    columns = job.columns if job.is_mapped else _guess(beginning)
    values["email"] = str(columns.email)
    values["header"] = "yes" if columns.has_header else ""
    return Form(values | {f"name-{at}": name for at, name in columns.attributes})


def job_from(form: Form, job: ImportJob, beginning: Beginning) -> ImportJob | None:
    """The job with what the form says; None, with errors in the form, if it cannot be used."""
    names = beginning.names

    def parse_position(text: str) -> int:
        if text in map(str, range(min(beginning.width, COLUMNS_MAX))):
            return int(text)
        raise BadInput(_("Choose the column with the email addresses."))

    email = form.take("email", parse_position)
    purpose = Purpose(form.value("purpose")) if form.value("purpose") in set(Purpose) else None
    basis = form.take("basis", lambda text: check_basis(text, purpose))
    if purpose is None:
        form.mistakes["purpose"] = _("Choose what to do with these people.")
    existing = Existing(form.value("existing")) if form.value("existing") in set(Existing) else None
    attributes = _attributes_in(form, beginning, email)
    if not form.is_good or email is None or purpose is None:
        return None
    columns = Columns(
        email,
        tuple(attributes.items()),
        names.index(SUBSCRIPTION) if SUBSCRIPTION in names else None,
        beginning.width,
        has_header=form.is_ticked("header"),
    )
    return mapped(job, columns, purpose, existing or Existing.LEAVE, basis or "")


def _guess(beginning: Beginning) -> Columns:
    attributes: list[tuple[int, str]] = []
    for at, name in enumerate(beginning.names[:COLUMNS_MAX]):
        with contextlib.suppress(BadInput):
            if at != beginning.email and check_column_name(name):
                attributes.append((at, name))
    first = tuple(attributes[:ATTRIBUTES_MAX])
    return Columns(beginning.email, first, None, 0, beginning.has_header)


def _attributes_in(form: Form, beginning: Beginning, email: int | None) -> dict[int, str]:
    """Names by position; a column without a name is left out."""
    found: dict[int, str] = {}
    for at in range(min(beginning.width, COLUMNS_MAX)):
        field = f"name-{at}"
        if at == email or not form.value(field).strip():
            continue
        name = form.take(field, check_column_name)
        if name in found.values():
            form.mistakes[field] = _(
                "Another column is already called {name}. Rename one of them.", name=name
            )
        elif name:
            found[at] = name
    if len(found) > ATTRIBUTES_MAX:
        form.mistake = _(
            "At most {limit} columns can be imported as attributes. Clear the names of some.",
            limit=ATTRIBUTES_MAX,
        )
    return found
