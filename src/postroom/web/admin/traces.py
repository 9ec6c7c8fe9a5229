"""Traces: what every role did and what went wrong, with filters; live while the page is open."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.errors import NotFound
from postroom.domain.texts import Text, _
from postroom.domain.trace_entry import LEVEL_TEXTS, ROLE_TEXTS, TraceLevel, is_person_id
from postroom.domain.trace_sentences import trace_sentence
from postroom.records import traces
from postroom.records.traces import KeyedTrace, TraceFilter, TracePage
from postroom.web.admin.admin_request import AdminRequest, Viewer
from postroom.web.forms import Form
from postroom.web.live_updates import SharedPoll, Update, polls_of, stream
from postroom.web.pages import part

router = APIRouter(prefix="/traces")
TRACES_A_PAGE = 50
TEXT_CHARS_MAX = 100
SPANS = {
    "10m": (timedelta(minutes=10), _("last 10 minutes")),
    "1h": (timedelta(hours=1), _("last hour")),
    "1d": (timedelta(days=1), _("last day")),
    "7d": (timedelta(days=7), _("last 7 days")),
}
_REF = re.compile(r"[0-9]{1,18}")
_NAMES = ("level", "role", "instance", "message", "person", "text", "span", "from", "to")


@router.get("")
async def index(request: Viewer) -> Response:
    form, wanted = _filter(request)
    before = request.query("before")
    if before and not traces.is_trace_key(before):
        raise NotFound(_("There is no such page."))
    if form.mistakes:
        page = TracePage([], None, is_complete=True)
    else:
        page = await traces.read_page(request.tables, wanted, limit=TRACES_A_PAGE, before=before)
    is_live = not (before or wanted.until or form.mistakes)
    return request.show(
        "traces/index.html",
        422 if form.mistakes else 200,
        form=form,
        query=_query(form),
        is_live=is_live,
        before=before,
        levels=LEVEL_TEXTS,
        spans=SPANS,
        **_values(page),
    )


@router.get("/live")
async def live(request: Viewer) -> Response:
    """The newest traces that match, as they arrive."""
    form, wanted = _filter(request)
    if form.mistakes:
        raise NotFound(_("There is no such page."))
    tables = request.tables

    async def read() -> TracePage:
        return await traces.read_page(tables, wanted, limit=TRACES_A_PAGE)

    def render(now: TracePage, shown: TracePage | None) -> Update:
        if shown is not None and shown.traces[:1] == now.traces[:1]:
            return Update()
        return Update(part("traces/rows.html", query=_query(form), **_values(now)))

    clock = request.context.clock
    poll = polls_of(request.http).of(f"traces?{_query(form)}", lambda: SharedPoll(read, clock))
    return stream(request.http, request.signed_in, poll, "traces", render)


def _query(form: Form) -> str:
    return urlencode({name: form.value(name) for name in _NAMES if form.value(name)})


def _values(page: TracePage) -> dict[str, object]:
    return {
        "rows": [(entry, _sentence(each)) for each in page.traces for entry in [each.entry]],
        "next": page.next or "",
        "is_complete": page.is_complete,
        "roles": ROLE_TEXTS,
        "reached_at": traces.time_of(page.next) if page.next else None,
    }


def _sentence(trace: KeyedTrace) -> Text:
    return trace_sentence(trace.entry.event, trace.entry.fields)


def _filter(request: AdminRequest) -> tuple[Form, TraceFilter]:
    """What the page was asked for; mistakes are in the form."""
    form = Form({name: request.query(name).strip() for name in _NAMES})
    level = form.value("level") or TraceLevel.INFO.value
    if level not in set(TraceLevel):
        form.mistakes["level"] = _("There is no such level.")
        level = TraceLevel.INFO.value
    if form.value("message") and not _REF.fullmatch(form.value("message")):
        form.mistakes["message"] = _("A message number has up to 18 digits.")
    person = form.value("person")
    if person and not is_person_id(person):
        form.mistakes["person"] = _(
            "Enter the 8 characters shown as the trace id on the subscriber’s page."
        )
    span = SPANS.get(form.value("span"))
    return form, TraceFilter(
        level=TraceLevel(level),
        role=form.value("role"),
        instance=form.value("instance"),
        ref=form.value("message"),
        person=person,
        text=form.value("text")[:TEXT_CHARS_MAX],
        since=request.now() - span[0] if span else _time(form, "from"),
        until=_time(form, "to"),
    )


def _time(form: Form, name: str) -> datetime | None:
    """A time in UTC, as browsers send it: 2026-11-18T04:00."""
    if not form.value(name):
        return None
    try:
        return datetime.fromisoformat(form.value(name)).replace(tzinfo=UTC)
    except ValueError:
        form.mistakes[name] = _("Enter a date and a time such as 2026-11-18 09:00.")
        return None
