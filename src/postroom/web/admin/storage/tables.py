"""Tables of the storage explorer: rows by key, with filters, side by side; edited with their etag.

Keys may contain addresses, so they are sealed in links. Secrets are masked (secret_rows.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from postroom.actions import edit_storage
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.errors import AlreadyThere, BadInput, NotFound, WrongState
from postroom.domain.seal import seal, unseal
from postroom.domain.texts import _
from postroom.domain.typed_value import (
    VALUE_TYPE_TEXTS,
    Value,
    ValueType,
    parse_value,
    type_of,
    value_text,
)
from postroom.records.names import QUEUES, TABLE_TEXTS, TABLES
from postroom.records.row_search import search_rows
from postroom.records.rows import all_rows
from postroom.records.secret_rows import (
    is_locked,
    is_secret,
    masked_key,
    masked_properties,
    row_data,
)
from postroom.storage.port import PROPERTY_CHARS_MAX, Conflict, Row
from postroom.web.admin.admin_request import AdminRequest, Owner
from postroom.web.admin.dead_letters import queue_state
from postroom.web.admin.storage.row_filter import RowFilter
from postroom.web.forms import Form, opened
from postroom.web.pages import go

router = APIRouter(prefix="/storage")
PATH = "/admin/storage"
ROWS_A_PAGE = 50
COLUMNS_MAX = 24  # side by side; the page of a row has all
NEW_FIELDS = 3  # empty fields for new properties
FIELDS_MAX = 3 * 252 + 20
FIELD_BYTES_MAX = 12 * PROPERTY_CHARS_MAX  # percent-encoded UTF-8 at its longest
_ROW, _AFTER = "row of a table", "page of a table"
TYPES = [(each.value, VALUE_TYPE_TEXTS[each]) for each in ValueType]


class RowView(msgspec.Struct, frozen=True):
    path: str
    partition: str
    key: str
    values: dict[str, str]


@router.get("")
async def overview(request: Owner) -> Response:
    queues = request.storage.queues
    return request.show(
        "storage/index.html",
        tables=[(name, TABLE_TEXTS[name]) for name in TABLES],
        queues=[await queue_state(queues, name) for name in QUEUES],
    )


@router.get("/tables/{table}")
async def index(request: Owner, table: str) -> Response:
    """A page of rows; a filter that matches little gives a short page, in bounded time."""
    _check_table(table)
    form = RowFilter.form(request)
    after = unseal(request.context.site.secret, _AFTER + table, request.query("after"))
    rows: list[Row] = []
    next_: str | None = None
    if chosen := RowFilter.read(form):
        try:
            found = await search_rows(
                request.tables,
                request.context.clock,
                table,
                chosen.keys,
                where=chosen.where,
                limit=ROWS_A_PAGE,
                after=after,
            )
            rows, next_ = found.rows, found.next
        except ValueError as error:
            form.mistake = _("This is not a valid key: {error}.", error=str(error))
    return request.show(
        "storage/table.html",
        200 if form.is_good else 422,
        table=table,
        purpose=TABLE_TEXTS[table],
        form=form,
        types=TYPES,
        columns=_columns(rows),
        rows=[_view(request, table, row) for row in rows],
        is_locked=is_locked(table, ""),
        is_filtered=any(form.values.values()),
        is_short=len(rows) < ROWS_A_PAGE,
        export_path=_path(f"{table}/export", form.values),
        first_path=_path(table, form.values) if after else "",
        next_path=_next_path(request, table, form.values, next_),
    )


@router.get("/tables/{table}/export")
async def export(request: Owner, table: str) -> Response:
    """Every row that the filters match, one JSON object per line, with secrets masked."""
    _check_table(table)
    form = RowFilter.form(request)
    chosen = RowFilter.read(form)
    if chosen is None:
        return go(_path(table, form.values))
    async with request.act().audited(AuditKind.ROW, table, AuditAction.EXPORT):
        rows = all_rows(request.tables, table, chosen.keys, where=chosen.where)
        try:
            first = await anext(rows, None)
        except ValueError:  # the page says which key is not valid
            return go(_path(table, form.values))
    headers = {"Content-Disposition": f'attachment; filename="{table}.jsonl"'}
    lines = _lines(table, first, rows)
    return StreamingResponse(lines, media_type="application/jsonl", headers=headers)


async def _lines(table: str, first: Row | None, others: AsyncIterator[Row]) -> AsyncIterator[bytes]:
    if first is not None:
        yield msgspec.json.encode(row_data(table, first)) + b"\n"
    async for row in others:
        yield msgspec.json.encode(row_data(table, row)) + b"\n"


@router.get("/tables/{table}/new")
async def new_page(request: Owner, table: str) -> Response:
    _check_table(table)
    return _show_new(request, table, Form({"partition": request.query("partition")}))


@router.post("/tables/{table}/new")
async def create(request: Owner, table: str) -> Response:
    _check_table(table)
    form = await _posted(request)
    partition = form.value("partition")
    key = form.value("key")
    properties = _typed(form, table, partition)
    if not key:
        form.mistakes["key"] = _("Enter a key.")
    if form.is_good:
        try:
            await edit_storage.insert_row(request.act(), table, partition, key, properties)
            return go(row_path(request, table, partition, key), "row-created")
        except (AlreadyThere, BadInput, WrongState) as error:
            form.mistake = str(error)
    return _show_new(request, table, form, 422)


@router.get("/tables/{table}/rows/{sealed}")
async def row_page(request: Owner, table: str, sealed: str) -> Response:
    row = await _read(request, table, sealed)
    return _show_row(request, table, row, Form(_values(table, row) | {"etag": row.etag}))


@router.post("/tables/{table}/rows/{sealed}")
async def edit(request: Owner, table: str, sealed: str) -> Response:
    """Save what the form says if the row is the one that was seen; else show the differences."""
    form = await _posted(request)
    row = await _read(request, table, sealed)
    properties = _typed(form, table, row.partition)
    if not form.is_good:
        return _show_row(request, table, row, form, 422)
    seen = msgspec.structs.replace(row, etag=form.value("etag"))
    try:
        if row.etag != seen.etag:
            raise Conflict("the row has changed")
        await edit_storage.replace_row(request.act(), table, seen, properties)
    except Conflict:
        row = await _read(request, table, sealed)
        removed = {name: "" for name in form.values if name.startswith("value-")}
        # If nothing differs, this was a second click.
        if not form.show_others(removed | _values(table, row), row.etag):
            return go(row_path(request, table, row.partition, row.key), "row-saved")
        return _show_row(request, table, row, form, 409)
    except (BadInput, WrongState) as error:
        form.mistake = str(error)
        return _show_row(request, table, row, form, 422)
    return go(row_path(request, table, row.partition, row.key), "row-saved")


@router.get("/tables/{table}/rows/{sealed}/delete")
async def delete_page(request: Owner, table: str, sealed: str) -> Response:
    row = await _read(request, table, sealed)
    return _show_delete(request, table, row, Form({"etag": row.etag}))


@router.post("/tables/{table}/rows/{sealed}/delete")
async def delete(request: Owner, table: str, sealed: str) -> Response:
    form = await request.form()
    row = await _read(request, table, sealed)
    seen = msgspec.structs.replace(row, etag=form.value("etag"))
    try:
        await edit_storage.delete_row(request.act(), table, seen)
    except Conflict:
        form.values["etag"] = row.etag
        form.mistake = _("The row has changed. Check its current values, and try again.")
        return _show_delete(request, table, row, form, 409)
    except WrongState as error:
        form.mistake = str(error)
        return _show_delete(request, table, row, form, 409)
    return go(f"{PATH}/tables/{table}", "row-deleted")


def row_path(request: AdminRequest, table: str, partition: str, key: str) -> str:
    sealed = seal(request.context.site.secret, _ROW + table, f"{partition}/{key}")
    return f"{PATH}/tables/{table}/rows/{sealed}"


async def _read(request: AdminRequest, table: str, sealed: str) -> Row:
    _check_table(table)
    place = unseal(request.context.site.secret, _ROW + table, sealed)
    if place is None:
        raise NotFound(_("There is no such row."))
    partition, _slash, key = place.partition("/")
    row = await request.tables.get(table, partition, key)
    if row is None:
        raise NotFound(_("This row was deleted."))
    return row


def _check_table(table: str) -> None:
    if table not in TABLES:
        raise NotFound(_("There is no such table."))


async def _posted(request: AdminRequest) -> Form:
    async with opened(
        request.http, fields_max=FIELDS_MAX, field_bytes_max=FIELD_BYTES_MAX
    ) as submitted:
        return Form(submitted.fields)


def _values(table: str, row: Row) -> dict[str, str]:
    """A row as the fields of its form, without secrets."""
    values: dict[str, str] = {}
    for name, value in row.properties.items():
        if not is_secret(table, row.partition, name):
            values |= {f"type-{name}": type_of(value).value, f"value-{name}": value_text(value)}
    return values


def _typed(form: Form, table: str, partition: str) -> dict[str, Value]:
    """The properties that the form has, with errors beside the fields that are not valid."""
    properties: dict[str, Value] = {}

    def take(name: str, type_: str, field: str) -> None:
        value = form.take(field, lambda text: _parse(form.value(type_), text))
        if value is not None:
            properties[name] = value

    for field in [each for each in form.values if each.startswith("value-")]:
        name = field.removeprefix("value-")
        if not form.is_ticked(f"remove-{name}") and not is_secret(table, partition, name):
            take(name, f"type-{name}", field)
    for number in range(NEW_FIELDS):
        name = form.value(f"new-name-{number}").strip()
        if name in properties or is_secret(table, partition, name):
            form.mistakes[f"new-name-{number}"] = _("Choose another name.")
        elif name:
            take(name, f"new-type-{number}", f"new-value-{number}")
    return properties


def _parse(type_: str, text: str) -> Value:
    if type_ not in set(ValueType):
        raise BadInput(_("Choose a type."))
    return parse_value(ValueType(type_), text)


def _show_row(
    request: AdminRequest, table: str, row: Row, form: Form, status: int = 200
) -> Response:
    """Fields that were removed meanwhile are shown as well, so that nothing typed is lost."""
    shown = [*row.properties]
    typed = [each.removeprefix("value-") for each in form.values if each.startswith("value-")]
    names = [*shown, *(name for name in typed if name not in row.properties)]
    path = row_path(request, table, row.partition, row.key)
    return request.show(
        "storage/row.html",
        status,
        table=table,
        partition=row.partition,
        key=masked_key(table, row.partition, row.key),
        etag=row.etag,
        row_path=path,
        names=[(name, is_secret(table, row.partition, name)) for name in names],
        form=form,
        types=TYPES,
        new_fields=range(NEW_FIELDS),
        is_locked=is_locked(table, row.partition),
        values=masked_properties(table, row),
    )


def _show_new(request: AdminRequest, table: str, form: Form, status: int = 200) -> Response:
    return request.show(
        "storage/new_row.html",
        status,
        table=table,
        form=form,
        types=TYPES,
        new_fields=range(NEW_FIELDS),
    )


def _show_delete(
    request: AdminRequest, table: str, row: Row, form: Form, status: int = 200
) -> Response:
    return request.show(
        "storage/delete_row.html",
        status,
        table=table,
        partition=row.partition,
        key=masked_key(table, row.partition, row.key),
        values=masked_properties(table, row),
        row_path=row_path(request, table, row.partition, row.key),
        form=form,
    )


def _view(request: AdminRequest, table: str, row: Row) -> RowView:
    return RowView(
        row_path(request, table, row.partition, row.key),
        row.partition,
        masked_key(table, row.partition, row.key),
        {name: value_text(value) for name, value in masked_properties(table, row).items()},
    )


def _columns(rows: Sequence[Row]) -> list[str]:
    """The properties of all rows, those of most rows first."""
    count = Counter(name for row in rows for name in row.properties)
    return [name for name, _count in count.most_common(COLUMNS_MAX)]


def _next_path(request: AdminRequest, table: str, values: dict[str, str], next_: str | None) -> str:
    if next_ is None:
        return ""
    sealed = seal(request.context.site.secret, _AFTER + table, next_)
    return _path(table, values | {"after": sealed})


def _path(below: str, values: dict[str, str]) -> str:
    query = urlencode({name: value for name, value in values.items() if value})
    return f"{PATH}/tables/{below}?{query}" if query else f"{PATH}/tables/{below}"
