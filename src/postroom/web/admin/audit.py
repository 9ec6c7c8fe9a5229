"""The audit log: who changed what; filters, pages, and the same as a CSV file."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.audit import (
    AUDIT_COLUMNS,
    KIND_TEXTS,
    AuditAction,
    AuditEntry,
    AuditKind,
    values_text,
)
from postroom.domain.csv_rows import BYTE_ORDER_MARK, csv_text
from postroom.records import audit
from postroom.records.audit import AuditFilter
from postroom.web.admin.admin_request import AdminRequest, Owner, csv_download

router = APIRouter(prefix="/audit")
PATH = "/admin/audit"
ENTRIES_A_PAGE = 50
FILTER_CHARS_MAX = 200
EXPORTED_AT_A_TIME = 500
_FIELDS = ("person", "kind", "since", "until", "text")
_AFTER = re.compile(r"[0-9]{15}-[0-9a-f]{12}")


@router.get("")
async def index(request: Owner) -> Response:
    values = _values(request)
    after = request.query("after")
    is_first = not _AFTER.fullmatch(after)
    page = await audit.page(
        request.tables,
        request.context.clock,
        _filter(values),
        limit=ENTRIES_A_PAGE,
        after=None if is_first else after,
    )
    return request.show(
        "audit/index.html",
        entries=page.entries,
        values=values,
        is_filtered=any(values.values()),
        kinds=[(kind.value, KIND_TEXTS[kind]) for kind in AuditKind],
        export_path=_path("/export", values),
        next_path=_path("", values | {"after": page.next}) if page.next else "",
        is_short=len(page.entries) < ENTRIES_A_PAGE,
        first_path="" if is_first else _path("", values),
    )


@router.get("/export")
async def export(request: Owner) -> Response:
    """Everything that the filters match, as a stream; the export itself is recorded too."""
    values = _values(request)
    given = {name: value for name, value in values.items() if value}
    audited = request.act().audited(
        AuditKind.SETTING, "audit log", AuditAction.EXPORT, after=values_text(given)
    )
    async with audited:
        entries = audit.everything(request.tables, request.context.clock, _filter(values))
    return csv_download(_csv_pieces(entries), f"audit-{request.now():%Y-%m-%d}.csv")


async def _csv_pieces(entries: AsyncIterator[AuditEntry]) -> AsyncIterator[str]:
    yield BYTE_ORDER_MARK + csv_text([AUDIT_COLUMNS])
    waiting: list[list[object]] = []
    async for entry in entries:
        values = msgspec.structs.asdict(entry)
        waiting.append([values[name] for name in AUDIT_COLUMNS])
        if len(waiting) == EXPORTED_AT_A_TIME:
            yield csv_text(waiting)
            waiting = []
    yield csv_text(waiting)


def _values(request: AdminRequest) -> dict[str, str]:
    return {name: request.query(name).strip()[:FILTER_CHARS_MAX] for name in _FIELDS}


def _filter(values: dict[str, str]) -> AuditFilter:
    """Values that cannot be parsed are ignored; the page shows what was entered."""
    until = _day(values["until"])
    return AuditFilter(
        person=values["person"],
        kind=AuditKind(values["kind"]) if values["kind"] in set(AuditKind) else None,
        since=_day(values["since"]),
        before=until + timedelta(days=1) if until else None,
        text=values["text"],
    )


def _day(text: str) -> datetime | None:
    """The beginning of a day in UTC."""
    try:
        day = date.fromisoformat(text)
        return datetime(day.year, day.month, day.day, tzinfo=UTC) if day.year < 9000 else None
    except ValueError:
        return None


def _path(below: str, values: dict[str, str]) -> str:
    query = urlencode({name: value for name, value in values.items() if value})
    return f"{PATH}{below}?{query}" if query else f"{PATH}{below}"
