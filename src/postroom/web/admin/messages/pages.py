"""Messages: the index, one message, its content and outcomes; copy and delete."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from postroom.domain.csv_rows import BYTE_ORDER_MARK, csv_text
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message import (
    EDITABLE,
    GOING_OUT,
    SUBJECT_CHARS_MAX,
    Message,
    Status,
)
from postroom.domain.texts import Text, _
from postroom.flow import compose, report
from postroom.flow.compose import Draft
from postroom.records import bodies, lists, messages, recipient_outcomes
from postroom.records.recipient_outcomes import OUTCOMES, AudiencePosition, RecipientOutcome
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Tables
from postroom.web.admin.messages.mail_checks import (
    CheckReport,
    WrittenMessage,
    check,
    find_person,
    sample,
)
from postroom.web.admin.messages.progress import MessageProgress, has_fresh_books, progress_of
from postroom.web.admin.messages.test_outcomes import test_outcome
from postroom.web.admin.messages.writing import create_draft
from postroom.web.admin.subscribers import list_choices
from postroom.web.context import context_of
from postroom.web.forms import Form, list_named, posted
from postroom.web.live_updates import polls_of
from postroom.web.mail_view import framed
from postroom.web.pages import go, show
from postroom.web.signed_in import Editor, SignedIn, Viewer

router = APIRouter(prefix="/messages")
MESSAGES_A_PAGE = 30
COUNTED_MAX = 500  # messages that are not archived: a few milliseconds
PAGES_LOOKED_THROUGH = 5  # for those of one status or one list
PEOPLE_A_PAGE = 50
SEARCHES_MAX = 6  # for the first of a few among a million: about a hundred thousand each
_REF = re.compile(r"[0-9]{1,18}")
_PLACE = re.compile(r"([0-9]{1,9})\.([0-9]{1,3})")


class Tab(NamedTuple):
    name: str
    title: Text
    statuses: frozenset[Status]
    is_counted: bool = True  # those of the past are too many to count


TABS = [
    Tab("draft", _("Drafts"), frozenset({Status.DRAFT})),
    Tab("scheduled", _("Scheduled"), frozenset({Status.PENDING})),
    Tab("sending", _("Sending"), GOING_OUT | {Status.PAUSED}),
    Tab("sent", _("Sent"), frozenset({Status.COMPLETED}), is_counted=False),
    Tab("cancelled", _("Cancelled"), frozenset({Status.CANCELLED}), is_counted=False),
]
_EVERY = frozenset(Status)


@router.get("")
async def index(request: Request, signed_in: Viewer) -> Response:
    tables = context_of(request).storage.tables
    query = request.query_params
    tab = next((each for each in TABS if each.name == query.get("status", "")), None)
    after = query.get("after", "")
    list_name = query.get("list", "")
    if after and not _REF.fullmatch(after):
        raise NotFound(_("There is no such page."))
    if list_name:
        list_named(list_name)
    choices = await list_choices(tables)
    statuses = tab.statuses if tab else _EVERY
    found, next_ = await _page(tables, statuses, list_name, after)
    return show(
        request,
        signed_in,
        "messages/index.html",
        messages=found,
        tabs=TABS,
        counts=await _counts(tables, list_name),
        only=tab.name if tab else "",
        choices=choices,
        list_name=list_name,
        after=after,
        next=next_,
        has_list=bool(choices),
    )


async def _page(
    tables: Tables, statuses: frozenset[Status], list_name: str, after: str
) -> tuple[list[Message], str]:
    """A page may be short, because only a limited number of messages is searched."""
    found: list[Message] = []
    cursor: str | None = after or None
    is_filtered = bool(list_name) or statuses != _EVERY
    for _look in range(PAGES_LOOKED_THROUGH):
        page, cursor = await messages.newest(tables, limit=MESSAGES_A_PAGE, after=cursor)
        found += [
            each for each in page if each.status in statuses and list_name in ("", each.list_name)
        ]
        if cursor is None or not is_filtered or len(found) >= MESSAGES_A_PAGE:
            break
    return found, cursor or ""


async def _counts(tables: Tables, list_name: str) -> dict[str, int]:
    """The count of each tab; none if there are too many to count."""
    live, has_more = await messages.first_live(tables, limit=COUNTED_MAX)
    if has_more:
        return {}
    wanted = [each.status for each in live if list_name in ("", each.list_name)]
    return {
        tab.name: sum(status in tab.statuses for status in wanted) for tab in TABS if tab.is_counted
    }


@router.get("/{ref}")
async def details_page(request: Request, signed_in: Viewer, ref: str) -> Response:
    message, _etag = await read_for(request, ref)
    return await details(request, signed_in, message, Form())


async def details(
    request: Request, signed_in: SignedIn, message: Message, form: Form, status: int = 200
) -> Response:
    """The checks before sending, the progress from then on."""
    now = context_of(request).clock.now()
    is_due = message.due_at is not None and message.due_at <= now
    if message.status in EDITABLE and not (message.status is Status.PENDING and is_due):
        return await _to_check(request, signed_in, message, form, status)
    return await _to_watch(request, signed_in, message, form, status)


async def _to_check(
    request: Request, signed_in: SignedIn, message: Message, form: Form, status: int
) -> Response:
    looked = await _look(request, message)
    return show(
        request,
        signed_in,
        "messages/draft.html",
        status,
        message=message,
        form=form,
        looked=looked,
        chosen=request.query_params.get("as", ""),
        **await test_outcome(request, signed_in, message.ref),
    )


async def _to_watch(
    request: Request, signed_in: SignedIn, message: Message, form: Form, status: int
) -> Response:
    context = context_of(request)
    progress = await progress_of(polls_of(request), context, message)
    assert progress.message
    outcome = _outcome(request, progress)
    people, next_ = await _people(request, progress.message, outcome)
    return show(
        request,
        signed_in,
        "messages/watch.html",
        status,
        message=progress.message,
        progress=progress,
        form=form,
        mailing_list=await lists.find(context.storage.tables, message.list_name),
        outcome=outcome,
        outcomes=list(OUTCOMES),
        people=people,
        after=request.query_params.get("after", ""),
        next=next_,
    )


@router.get("/{ref}/look")
async def look_page(request: Request, signed_in: Viewer, ref: str) -> Response:
    """Its content, sent or not."""
    message, _etag = await read_for(request, ref)
    looked = await _look(request, message)
    chosen = request.query_params.get("as", "")
    return show(
        request, signed_in, "messages/look.html", message=message, looked=looked, chosen=chosen
    )


@router.get("/{ref}/mail")
async def mail(request: Request, signed_in: Viewer, ref: str) -> Response:
    """For the frame."""
    message, _etag = await read_for(request, ref)
    looked = await _look(request, message)
    if looked.mail_view is None or looked.mail_view.html is None:
        raise NotFound(_("This message has no HTML."))
    return framed(looked.mail_view.html)


async def _look(request: Request, message: Message) -> CheckReport:
    context = context_of(request)
    tables = context.storage.tables
    chosen = request.query_params.get("as", "")
    person, nobody = await find_person(tables, message.list_name, chosen)
    try:
        html, text = await bodies.load(context.storage.blobs, message)
    except NotFound as error:
        return CheckReport(person, mistake=str(error))
    mailing_list = await lists.find(tables, message.list_name)
    people = await sample(tables, message.list_name)
    written = WrittenMessage(message, mailing_list, html, text)
    looked = await check(written, person, people, context.site, context.clock.now())
    warnings = [nobody, *looked.warnings] if nobody else looked.warnings
    return msgspec.structs.replace(looked, warnings=warnings)


# --- Who got what -----------------------------------------------------------------------------


def _outcome(request: Request, progress: MessageProgress) -> str:
    """The requested outcome, or the one that needs attention first."""
    wanted = request.query_params.get("outcome", "")
    if wanted in OUTCOMES:
        return wanted
    assert progress.message
    books = progress.message.books
    return next((name for name in ("held", "failed") if getattr(books, name)), "sent")


async def _people(
    request: Request, message: Message, outcome: str
) -> tuple[list[RecipientOutcome], str]:
    if not getattr(message.books, outcome):
        return [], ""
    place = _PLACE.fullmatch(request.query_params.get("after", ""))
    start = AudiencePosition(int(place[1]), int(place[2])) if place else AudiencePosition()
    tables = context_of(request).storage.tables
    found: list[RecipientOutcome] = []
    next_: AudiencePosition | None = start
    for _search in range(SEARCHES_MAX):
        if found or next_ is None:
            break
        found, next_ = await recipient_outcomes.page(
            tables, message, OUTCOMES[outcome], limit=PEOPLE_A_PAGE, start=next_
        )
    is_all = not place and len(found) == getattr(message.books, outcome)
    return found, f"{next_.batch}.{next_.position}" if next_ and not is_all else ""


@router.get("/{ref}/people/export")
async def export(request: Request, signed_in: Viewer, ref: str) -> Response:
    """Stream the recipients, with one batch in memory."""
    message, _etag = await read_for(request, ref)
    outcome = request.query_params.get("outcome", "")
    only = OUTCOMES.get(outcome)
    name = f"{message.list_name}-{ref}-{outcome if only else 'everybody'}.csv"
    return StreamingResponse(
        _csv(recipient_outcomes.all_outcomes(context_of(request).storage.tables, message, only)),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _csv(people: AsyncIterator[RecipientOutcome]) -> AsyncIterator[str]:
    yield BYTE_ORDER_MARK + csv_text([("email", "outcome", "at", "words")])
    async for fate in people:
        yield csv_text([(fate.address, fate.outcome, fate.at, fate.words)])


# --- Copy, delete -----------------------------------------------------------------------------


@router.post("/{ref}/copy")
async def copy(request: Request, signed_in: Editor, ref: str) -> Response:
    """A new draft with the same body, opened for editing."""
    storage = context_of(request).storage
    form = await posted(request)
    message, _etag = await read_for(request, ref)
    try:
        html, text = await bodies.load(storage.blobs, message)
        draft = Draft(
            list_name=message.list_name,
            subject=str(_("Copy of {subject}", subject=message.subject))[:SUBJECT_CHARS_MAX],
            html=html,
            text=text,
            markdown=await bodies.load_markdown(storage.blobs, message),
            on_doubt=message.on_doubt,
        )
        done = await create_draft(request, signed_in, form, draft)
    except (NotFound, BadInput, WrongState) as error:  # its list or its bodies are gone
        return await details(request, signed_in, message, Form(mistake=str(error)), 409)
    return go(f"{done.what}/write", "copied")


@router.get("/{ref}/delete")
async def delete_page(request: Request, signed_in: Editor, ref: str) -> Response:
    message, etag = await read_for(request, ref)
    if message.status not in EDITABLE:
        return go(f"/admin/messages/{ref}")
    form = Form({"etag": etag})
    return show(request, signed_in, "messages/delete.html", message=message, form=form)


@router.post("/{ref}/delete")
async def delete(request: Request, signed_in: Editor, ref: str) -> Response:
    form = await posted(request)
    try:
        message, etag = await read_for(request, ref)
    except NotFound:  # a second click, or somebody else: it is gone, as was wanted
        return go("/admin/messages", "deleted")
    try:
        await compose.discard(context_of(request).storage, ref, form.value("etag"))
        return go("/admin/messages", "deleted")
    except WrongState as error:
        return await details(request, signed_in, message, Form(mistake=str(error)), 409)
    except Conflict:
        form.values["etag"] = etag
        form.mistake = _("Somebody just changed this message. Check it and try again.")
    return show(request, signed_in, "messages/delete.html", 409, message=message, form=form)


async def read_for(request: Request, ref: str, *, with_books: bool = False) -> Stored[Message]:
    tables = context_of(request).storage.tables
    found = await messages.read_with_etag(tables, ref)
    if with_books and not has_fresh_books(found.value):
        return Stored(await report.books_of(tables, found.value), found.etag)
    return found
