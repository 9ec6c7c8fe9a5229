"""The suppression list: look up, explain, add, import, export; owners remove and erase.

Pages are found by the sealed address key, so that no path contains an email address.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions import manage_suppressions
from postroom.actions.manage_suppressions import EXPORT_COLUMNS, NotSuppressed
from postroom.domain.address import Address, BadAddress, key_prefix, parse_address
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.consent import ConsentSource, SourceKind
from postroom.domain.csv_rows import BYTE_ORDER_MARK, BadRow, csv_text
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.seal import seal, unseal
from postroom.domain.suppression import (
    Suppression,
    SuppressionReason,
    SuppressionScope,
    check_lists,
    check_note,
    check_scope,
)
from postroom.domain.texts import Text, _
from postroom.importing.csv_source import HEAD_BYTES, Source, check_is_text
from postroom.importing.import_suppressions import (
    SuppressionCounts,
    SuppressionTerms,
    import_suppressions,
)
from postroom.importing.job import BAD_ROWS_SHOWN, clean_file_name
from postroom.importing.suppression_rows import SuppressionRows
from postroom.records import suppressions
from postroom.records.stored import Stored
from postroom.storage.port import Tables
from postroom.web.admin.admin_request import AdminRequest, Editor, Owner, Viewer, csv_download
from postroom.web.admin.lists import list_choices
from postroom.web.context import WebContext
from postroom.web.forms import Form
from postroom.web.pages import go
from postroom.web.security import TooLarge, limits_for
from postroom.web.uploads import receive_file

router = APIRouter(prefix="/suppression")
PATH = "/admin/suppression"
ENTRIES_A_PAGE = 50
EXPORTED_AT_A_TIME = 500  # rows
PIECE_BYTES = 1024 * 1024
_AFTER, _ENTRY = "page of suppressions", "suppression"


@router.get("")
async def index(request: Viewer) -> Response:
    """Entries by the start of their address; an erased person by the whole address."""
    secret = request.context.site.secret
    text = request.query("q")
    after = unseal(secret, _AFTER, request.query("after")) or ""
    try:
        page = await suppressions.page(
            request.tables, prefix=key_prefix(text), after=after, limit=ENTRIES_A_PAGE
        )
    except BadAddress:  # no address starts like this
        page = suppressions.SuppressionPage([], None)

    def path(sealed_after: str) -> str:
        values = {"q": text, "after": sealed_after}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"{PATH}?{query}" if query else PATH

    return request.show(
        "suppression/index.html",
        text=text,
        rows=[(each, entry_path(request.context, each.key)) for each in page.entries],
        erased_path=await _find_erased(request, text),
        next_path=path(seal(secret, _AFTER, page.next)) if page.next else "",
        first_path=path("") if after else "",
    )


@router.get("/export")
async def export(request: Viewer) -> Response:
    """The same file as `postroom suppression export`, as a stream."""
    async with request.act().audited(AuditKind.SUPPRESSION, "", AuditAction.EXPORT):
        pieces = _csv_pieces(request.tables)
    return csv_download(pieces, f"suppression-{request.now():%Y-%m-%d}.csv")


@router.get("/new")
async def new_page(request: Editor) -> Response:
    return await _show_form(request, Form({"scope": SuppressionScope.BULK.value}))


@router.post("/new")
async def add(request: Editor) -> Response:
    """Add; sent a second time, it changes nothing."""
    form = await request.form()
    address = form.take("address", parse_address)
    scope = form.take("scope", check_scope)
    note = form.take("note", check_note)
    names = _list_names(form, scope)
    if not form.is_good or address is None or scope is None:
        return await _show_form(request, form, 422)
    try:
        added = await manage_suppressions.add(
            request.act(),
            request.context.site.secret,
            address,
            scope,
            list_names=names,
            note=note or "",
        )
    except NotFound as error:  # the list was deleted meanwhile
        form.mistakes["list"] = str(error)
        return await _show_form(request, form, 422)
    path = entry_path(request.context, address.storage_key)
    return go(path, "suppressed" if added.is_changed else "already-suppressed")


@router.get("/import")
async def import_page(request: Editor) -> Response:
    return await _show_import(request, Form({"scope": SuppressionScope.BULK.value}))


@router.post("/import")
async def import_file(request: Editor) -> Response:
    """Import a file at once; sent a second time, everybody in it is suppressed already."""
    file = io.BytesIO()
    form = Form()
    result: ImportResult | None = None

    async def write(piece: bytes) -> None:
        file.write(piece)

    try:
        received = await receive_file(request.http, "file", PIECE_BYTES, write)
        form.values |= received.fields
        if not received.file_name:
            form.mistakes["file"] = _("Choose a file.")
        result = await _import(request, form, file, clean_file_name(received.file_name))
    except TooLarge:
        form.mistakes["file"] = _(
            "The file is larger than {size} MiB. Import it with “postroom suppression import”.",
            size=_file_mib_max(),
        )
    except BadInput as error:
        form.mistakes["file"] = str(error)
    if result and not result.counts.bad:
        counts = result.counts
        done = (counts.added + counts.widened, counts.already)
        return go(PATH, "suppressions-imported", *done)
    return await _show_import(request, form, 422, result)


@router.get("/erase")
async def erase_page(request: Owner) -> Response:
    return request.show("suppression/erase.html", form=Form())


@router.post("/erase")
async def erase(request: Owner) -> Response:
    form = await request.form()
    address = form.take("address", parse_address)
    if not form.is_ticked("sure"):
        form.mistakes["sure"] = _("Select this to confirm: it cannot be undone.")
    if not form.is_good or address is None:
        return request.show("suppression/erase.html", 422, form=form)
    await manage_suppressions.erase(request.act(), request.context.site.secret, address)
    return go(PATH, "erased")


@router.get("/{entry_id}")
async def details(request: Viewer, entry_id: str) -> Response:
    entry, _etag = await _find(request, entry_id)
    secret = request.context.site.secret
    return request.show(
        "suppression/entry.html",
        entry=entry,
        here=f"{PATH}/{entry_id}",
        cause=await manage_suppressions.find_cause(request.tables, secret, entry),
    )


@router.get("/{entry_id}/remove")
async def remove_page(request: Owner, entry_id: str) -> Response:
    entry, _etag = await _find(request, entry_id)
    return request.show("suppression/remove.html", entry=entry, here=f"{PATH}/{entry_id}")


@router.post("/{entry_id}/remove")
async def remove(request: Owner, entry_id: str) -> Response:
    """Remove; a second click finds nothing to do."""
    key = _key_of(request.context, entry_id)
    await suppressions.remove(request.tables, request.context.site.secret, key)
    return go(PATH, "unsuppressed")


def entry_path(context: WebContext, key: str) -> str:
    return f"{PATH}/{seal(context.site.secret, _ENTRY, key)}"


def _key_of(context: WebContext, entry_id: str) -> str:
    key = unseal(context.site.secret, _ENTRY, entry_id)
    if key is None:
        raise NotFound(_("This address is not suppressed."))
    return key


async def _find(request: AdminRequest, entry_id: str) -> Stored[Suppression]:
    key = _key_of(request.context, entry_id)
    found = await suppressions.find(request.tables, request.context.site.secret, key)
    if found is None:
        raise NotFound(_("This address is no longer suppressed."))
    return found


async def _find_erased(request: AdminRequest, text: str) -> str:
    """The path of an erased person, if the text is their whole address."""
    try:
        address: Address = parse_address(text)
        secret = request.context.site.secret
        entry, _etag = await manage_suppressions.read(request.tables, secret, address)
    except (BadAddress, NotSuppressed):
        return ""
    is_erased = entry.reason is SuppressionReason.ERASED
    return entry_path(request.context, address.storage_key) if is_erased else ""


# --- Forms and files --------------------------------------------------------------------------


class ImportResult(msgspec.Struct):
    """What an import did, and the first bad rows."""

    counts: SuppressionCounts
    first_bad: list[BadRow]


class _BadRows:
    """Keeps the first bad rows of an import."""

    def __init__(self) -> None:
        self.first: list[BadRow] = []

    def may_go_on(self) -> bool:
        return True

    def refused(self, row: BadRow) -> None:
        if len(self.first) < BAD_ROWS_SHOWN:
            self.first.append(row)

    def counted(self, counts: SuppressionCounts) -> None:
        return


async def _import(
    request: AdminRequest, form: Form, file: io.BytesIO, name: str
) -> ImportResult | None:
    """Import the file; None, with errors in the form, if it says something impossible."""
    scope = form.take("scope", check_scope)
    names = _list_names(form, scope)
    if not form.is_good or scope is None:
        return None
    head = file.getvalue()[:HEAD_BYTES]
    check_is_text(name, head)
    file.seek(0)
    trace = msgspec.structs.replace(
        request.act().trace, source=ConsentSource(SourceKind.IMPORT, name)
    )
    act = dataclasses.replace(request.act(), trace=trace)
    terms = SuppressionTerms(act, request.context.site.secret, scope, names)
    bad = _BadRows()
    rows = SuppressionRows(iter(Source(file, head, file.getbuffer().nbytes)))
    return ImportResult(await import_suppressions(terms, rows, bad), bad.first)


def _list_names(form: Form, scope: SuppressionScope | None) -> tuple[str, ...]:
    """The list of the form, if the scope asks for one; errors stand beside the field."""
    if scope is not SuppressionScope.LIST:
        return ()
    names = form.take("list", lambda text: (check_list_name(text),) if text else ())
    if names is not None:
        form.take("list", lambda _text: check_lists(scope, names))
    return names or ()


def _scopes() -> list[tuple[str, Text]]:
    return [
        (SuppressionScope.BULK.value, _("Messages to all lists")),
        (SuppressionScope.LIST.value, _("Messages to one list")),
        (SuppressionScope.ALL.value, _("All email, including confirmation and test emails")),
    ]


async def _show_form(request: AdminRequest, form: Form, status: int = 200) -> Response:
    choices = [("", "–"), *await list_choices(request.tables, form.value("list"))]
    values = {"form": form, "scopes": _scopes(), "choices": choices}
    return request.show("suppression/new.html", status, **values)


async def _show_import(
    request: AdminRequest, form: Form, status: int = 200, result: ImportResult | None = None
) -> Response:
    choices = [("", "–"), *await list_choices(request.tables, form.value("list"))]
    return request.show(
        "suppression/import.html",
        status,
        form=form,
        scopes=_scopes(),
        choices=choices,
        result=result,
        mib_max=_file_mib_max(),
    )


def _file_mib_max() -> int:
    return limits_for(f"{PATH}/import").body_bytes // (1024 * 1024)


async def _csv_pieces(tables: Tables) -> AsyncIterator[str]:
    yield BYTE_ORDER_MARK + csv_text([EXPORT_COLUMNS])
    waiting: list[list[object]] = []
    async for row in manage_suppressions.export_rows(tables):
        waiting.append(row)
        if len(waiting) == EXPORTED_AT_A_TIME:
            yield csv_text(waiting)
            waiting = []
    yield csv_text(waiting)
