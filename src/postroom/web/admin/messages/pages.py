"""Messages: the index, one message, its content and outcomes; copy and delete."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.csv_rows import BYTE_ORDER_MARK, csv_text
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message import EDITABLE, GOING_OUT, SUBJECT_CHARS_MAX, Message, Status
from postroom.domain.texts import Text, _
from postroom.flow import compose
from postroom.flow.compose import Draft
from postroom.records import (
    bodies,
    feedback,
    leases,
    lists,
    messages,
    recipient_outcomes,
    trials,
)
from postroom.records.recipient_outcomes import OUTCOMES, AudiencePosition, RecipientOutcome
from postroom.storage.port import Conflict, Tables
from postroom.web.admin.admin_request import AdminRequest, Editor, Viewer, csv_download
from postroom.web.admin.lists import list_choices
from postroom.web.admin.messages.attachments import attachments_view
from postroom.web.admin.messages.progress import progress_of
from postroom.web.admin.messages.writing import create_draft
from postroom.web.forms import Form, list_named
from postroom.web.live_updates import polls_of
from postroom.web.mail_server import shared_troubles
from postroom.web.mail_view import framed
from postroom.web.message_checks import CheckReport, WrittenMessage, check
from postroom.web.pages import go, part

router = APIRouter(prefix="/messages")
MESSAGES_A_PAGE = 30
COUNTED_MAX = 500  # messages that are not archived: a few milliseconds
PAGES_SEARCHED_MAX = 5  # for messages of one status or one list
PEOPLE_A_PAGE = 50
SEARCHES_MAX = 6  # to find a few among a million; each reads about a hundred thousand
_REF = re.compile(r"[0-9]{1,18}")
_POSITION = re.compile(r"([0-9]{1,9})\.([0-9]{1,3})")


class Tab(NamedTuple):
    name: str
    title: Text
    statuses: frozenset[Status]
    is_counted: bool = True  # there are too many past messages to count


TABS = [
    Tab("draft", _("Drafts"), frozenset({Status.DRAFT})),
    Tab("scheduled", _("Scheduled"), frozenset({Status.PENDING})),
    Tab("sending", _("Sending"), GOING_OUT | {Status.PAUSED}),
    Tab("sent", _("Sent"), frozenset({Status.COMPLETED}), is_counted=False),
    Tab("cancelled", _("Cancelled"), frozenset({Status.CANCELLED}), is_counted=False),
]


@router.get("")
async def index(request: Viewer) -> Response:
    tab = next((each for each in TABS if each.name == request.query("status")), None)
    after = request.query("after")
    list_name = request.query("list")
    if after and not _REF.fullmatch(after):
        raise NotFound(_("There is no such page."))
    if list_name:
        list_named(list_name)
    found, next_ = await _page(request.tables, tab, list_name, after)
    return request.show(
        "messages/index.html",
        messages=found,
        tabs=TABS,
        counts=await _counts(request.tables, list_name),
        only=tab.name if tab else "",
        choices=await list_choices(request.tables),
        list_name=list_name,
        after=after,
        next=next_,
    )


async def _page(
    tables: Tables, tab: Tab | None, list_name: str, after: str
) -> tuple[list[Message], str]:
    """A page may be short, because only a limited number of messages is searched."""
    found: list[Message] = []
    cursor: str | None = after or None
    statuses = tab.statuses if tab else frozenset(Status)
    for _search in range(PAGES_SEARCHED_MAX):
        page, cursor = await messages.newest(tables, limit=MESSAGES_A_PAGE, after=cursor)
        found += [
            each for each in page if each.status in statuses and list_name in ("", each.list_name)
        ]
        if cursor is None or not (tab or list_name) or len(found) >= MESSAGES_A_PAGE:
            break
    return found, cursor or ""


async def _counts(tables: Tables, list_name: str) -> dict[str, int]:
    """The count of each tab; none if there are too many to count."""
    live, has_more = await messages.first_live(tables, limit=COUNTED_MAX)
    if has_more:
        return {}
    found = [each.status for each in live if list_name in ("", each.list_name)]
    return {
        tab.name: sum(status in tab.statuses for status in found) for tab in TABS if tab.is_counted
    }


@router.get("/{ref}")
async def details_page(request: Viewer, ref: str) -> Response:
    return await details(request, await messages.read(request.tables, ref), Form())


async def details(
    request: AdminRequest, message: Message, form: Form, status: int = 200
) -> Response:
    """The checks before sending, the progress from then on."""
    is_due = message.due_at is not None and message.due_at <= request.now()
    if message.status in EDITABLE and not (message.status is Status.PENDING and is_due):
        return request.show(
            "messages/draft.html",
            status,
            message=message,
            form=form,
            report=await _check(request, message),
            chosen=request.query("as"),
            view_path=request.context.site.view_path(message.ref),
            attached=await attachments_view(request.tables, message),
            **await _test_outcome(request, message.ref),
        )
    progress = await progress_of(polls_of(request.http), request.context, message)
    message = progress.message
    outcome = request.query("outcome")
    if outcome not in OUTCOMES:  # show the one that needs attention first
        urgent = [name for name in ("held", "failed") if getattr(message.books, name)]
        outcome = urgent[0] if urgent else "sent"
    people, next_ = await _people(request, message, outcome)
    return request.show(
        "messages/watch.html",
        status,
        message=message,
        progress=progress,
        form=form,
        mailing_list=await lists.find(request.tables, message.list_name),
        feedback=await feedback.find_summary(request.tables, message.ref),
        attached=await attachments_view(request.tables, message),
        outcome=outcome,
        people=people,
        after=request.query("after"),
        next=next_,
    )


@router.get("/{ref}/test/live")
async def test_outcome(request: Editor, ref: str) -> Response:
    """The outcome of a test email; the fragment reloads itself until the outcome is known."""
    return HTMLResponse(part("messages/test_outcome.html", **await _test_outcome(request, ref)))


async def _test_outcome(request: AdminRequest, ref: str) -> dict[str, Any]:
    """The values of the fragment; the mail server is checked only while the email waits."""
    now = request.now()
    trial = await trials.find(request.tables, ref, request.signed_in.user.key)
    alive = await leases.living(request.tables, now) if trial and trial.is_open else []
    return {
        "ref": ref,
        "trial": trial,
        "now": now,
        "is_test_mode": request.context.has_outbox,
        "has_sender": bool(leases.senders_among(alive)),
        "mail_troubles": shared_troubles(alive, now),
    }


@router.get("/{ref}/look")
async def content_page(request: Viewer, ref: str) -> Response:
    """The content of a message, sent or not."""
    message = await messages.read(request.tables, ref)
    report = await _check(request, message)
    chosen = request.query("as")
    return request.show(
        "messages/content.html",
        message=message,
        report=report,
        chosen=chosen,
        attached=await attachments_view(request.tables, message),
    )


@router.get("/{ref}/mail")
async def mail(request: Viewer, ref: str) -> Response:
    """For the frame."""
    report = await _check(request, await messages.read(request.tables, ref))
    if report.mail_view is None or report.mail_view.html is None:
        raise NotFound(_("This message has no HTML."))
    return framed(report.mail_view.html)


async def _check(request: AdminRequest, message: Message) -> CheckReport:
    try:
        content = await bodies.load_all(request.storage.blobs, message)
    except NotFound as error:
        return CheckReport(mistake=str(error))
    mailing_list = await lists.find(request.tables, message.list_name)
    written = WrittenMessage(message, mailing_list, content)
    return await check(request.context, written, request.query("as"))


async def _people(
    request: AdminRequest, message: Message, outcome: str
) -> tuple[list[RecipientOutcome], str]:
    if not getattr(message.books, outcome):
        return [], ""
    after = _POSITION.fullmatch(request.query("after"))
    found: list[RecipientOutcome] = []
    next_: AudiencePosition | None = (
        AudiencePosition(int(after[1]), int(after[2])) if after else AudiencePosition()
    )
    for _search in range(SEARCHES_MAX):
        if found or next_ is None:
            break
        found, next_ = await recipient_outcomes.page(
            request.tables, message, OUTCOMES[outcome], limit=PEOPLE_A_PAGE, start=next_
        )
    is_all = not after and len(found) == getattr(message.books, outcome)
    return found, f"{next_.batch}.{next_.position}" if next_ and not is_all else ""


@router.get("/{ref}/people/export")
async def export(request: Viewer, ref: str) -> Response:
    """Stream the recipients, one batch at a time."""
    message = await messages.read(request.tables, ref)
    outcome = request.query("outcome")
    only = OUTCOMES.get(outcome)
    name = f"{message.list_name}-{ref}-{outcome if only else 'everybody'}.csv"

    async def pieces() -> AsyncIterator[str]:
        yield BYTE_ORDER_MARK + csv_text([("email", "outcome", "at", "words")])
        async for each in recipient_outcomes.all_outcomes(request.tables, message, only):
            yield csv_text([(each.address, each.outcome, each.at, each.words)])

    return csv_download(pieces(), name)


@router.post("/{ref}/copy")
async def copy(request: Editor, ref: str) -> Response:
    """A new draft with the same body and attachments, opened for editing."""
    blobs = request.storage.blobs
    form = await request.form()
    message = await messages.read(request.tables, ref)
    try:
        content = await bodies.load_all(blobs, message)
        draft = Draft(
            list_name=message.list_name,
            subject=str(_("Copy of {subject}", subject=message.subject))[:SUBJECT_CHARS_MAX],
            html=content.html,
            text=content.text,
            source=content.source,
            preview_text=message.preview_text,
            language=message.language,
            on_doubt=message.on_doubt,
        )
        result = await create_draft(request, form, draft, attached_to=message)
    except (NotFound, BadInput, WrongState) as error:  # its list or its bodies were deleted
        return await details(request, message, Form(mistake=str(error)), 409)
    return go(f"{result.what}/write", "copied")


@router.get("/{ref}/delete")
async def delete_page(request: Editor, ref: str) -> Response:
    message, etag = await messages.read_with_etag(request.tables, ref)
    if message.status not in EDITABLE:
        return go(f"/admin/messages/{ref}")
    return request.show("messages/delete.html", message=message, form=Form({"etag": etag}))


@router.post("/{ref}/delete")
async def delete(request: Editor, ref: str) -> Response:
    form = await request.form()
    try:
        message, etag = await messages.read_with_etag(request.tables, ref)
    except NotFound:  # deleted by a second click or by somebody else
        return go("/admin/messages", "deleted")
    try:
        async with request.act().audited(AuditKind.MESSAGE, ref, AuditAction.DELETE):
            await compose.discard(request.storage, ref, form.value("etag"))
        return go("/admin/messages", "deleted")
    except WrongState as error:
        return await details(request, message, Form(mistake=str(error)), 409)
    except Conflict:
        form.values["etag"] = etag
        form.mistake = _("Somebody just changed this message. Check it and try again.")
    return request.show("messages/delete.html", 409, message=message, form=form)
