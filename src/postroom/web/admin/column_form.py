"""The form in which a person chooses what the columns of a file are, and what happens to people."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    is_ours: bool


class RowsShown(msgspec.Struct, frozen=True):
    """The first rows of a file as the page shows them."""

    beginning: Beginning
    encoding: str

    @property
    def delimiter(self) -> Text | str:
        delimiter = self.beginning.delimiter
        return DELIMITER_NAMES.get(delimiter, delimiter)

    @property
    def columns(self) -> Iterator[Column]:
        rows, names = self.beginning.rows, self.beginning.names
        people = rows[1:] if self.beginning.has_header else rows
        for at in range(min(self.beginning.width, COLUMNS_MAX)):
            heading = rows[0][at] if self.beginning.has_header and at < len(rows[0]) else ""
            samples = [clipped(row[at]) for row in people if at < len(row)]
            yield Column(at, heading, samples[:SAMPLES], names[at] in _NOT_ATTRIBUTES)

    @property
    def is_too_wide(self) -> bool:
        return self.beginning.width > COLUMNS_MAX


def first_form(job: ImportJob, beginning: Beginning) -> Form:
    """What was chosen before or, at first, what the file seems to be."""
    # The purpose is never preselected: a person must decide whether people are mailed.
    values = {"purpose": job.purpose.value} if job.is_mapped else {}
    values |= {"existing": job.existing.value, "basis": job.basis}
    columns = job.columns if job.is_mapped else _guess(beginning)
    values["email"] = str(columns.email)
    values["header"] = "yes" if columns.has_header else ""
    return Form(values | {f"name-{at}": name for at, name in columns.attributes})


def chosen(job: ImportJob, beginning: Beginning, form: Form) -> ImportJob | None:
    """The job with what the form says; None, with errors in the form, if it cannot be used."""
    email = form.take("email", _position_among(beginning))
    purpose = Purpose(form.value("purpose")) if form.value("purpose") in set(Purpose) else None
    basis = form.take("basis", lambda text: check_basis(text, purpose))
    if purpose is None:
        form.mistakes["purpose"] = _("Choose what happens to these people.")
    existing = Existing(form.value("existing")) if form.value("existing") in set(Existing) else None
    attributes = _attributes(form, beginning, email)
    if not form.is_good or email is None or purpose is None:
        return None
    columns = Columns(
        email,
        tuple(attributes.items()),
        _place_of_subscription(beginning),
        beginning.width,
        has_header=form.is_ticked("header"),
    )
    return mapped(job, columns, purpose, existing or Existing.LEAVE, basis or "")


def _guess(beginning: Beginning) -> Columns:
    email, names = beginning.email, beginning.names[:COLUMNS_MAX]
    attributes = tuple(
        (at, name) for at, name in enumerate(names) if at != email and _is_attribute(name)
    )
    return Columns(email, attributes[:ATTRIBUTES_MAX], None, 0, beginning.has_header)


def _is_attribute(name: str) -> bool:
    try:
        return bool(check_column_name(name))
    except BadInput:
        return False


def _attributes(form: Form, beginning: Beginning, email: int | None) -> dict[int, str]:
    """Names by position; a column without a name is left out."""
    found: dict[int, str] = {}
    for at in range(min(beginning.width, COLUMNS_MAX)):
        field = f"name-{at}"
        if at == email or not form.value(field).strip():
            continue
        name = form.take(field, check_column_name)
        if name in found.values():
            form.mistakes[field] = _("Two columns cannot both be {name}: rename one.", name=name)
        elif name:
            found[at] = name
    if len(found) > ATTRIBUTES_MAX:
        form.mistake = _(
            "At most {limit} columns can be kept: leave some out.", limit=ATTRIBUTES_MAX
        )
    return found


def _position_among(beginning: Beginning) -> Callable[[str], int]:
    def position(text: str) -> int:
        if text in map(str, range(min(beginning.width, COLUMNS_MAX))):
            return int(text)
        raise BadInput(_("Say which column holds the addresses."))

    return position


def _place_of_subscription(beginning: Beginning) -> int | None:
    names = beginning.names
    return names.index(SUBSCRIPTION) if SUBSCRIPTION in names else None
