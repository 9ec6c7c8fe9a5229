"""The test mailbox: every email as HTML, as text, with headers, as source.

Mails have links to confirm and to leave, by which whoever reads them acts for their receiver: that
is not for viewers.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.domain.errors import NotFound
from postroom.domain.texts import _
from postroom.records import outbox
from postroom.web.context import TestMailbox, WebContext, context_of, one_per_app
from postroom.web.mail_view import framed, read_mail, subject_of
from postroom.web.pages import go, show
from postroom.web.signed_in import Editor, Owner

router = APIRouter(prefix="/outbox")
MAILS_A_PAGE = 30  # each is opened for its subject
VIEWS = ("html", "text", "headers", "source")
DELETED_A_REQUEST = 1000  # takes a second or two
COUNTED_MAX = 999  # with one more, a single page of rows


@router.get("")
async def index(request: Request, signed_in: Editor) -> Response:
    context = await _context(request)
    after = request.query_params.get("after", "")
    mails, next_ = await outbox.newest(context.storage.tables, limit=MAILS_A_PAGE, after=after)
    rows = [(mail, await _subject(context, mail.key)) for mail in mails]
    return show(
        request,
        signed_in,
        "outbox/index.html",
        rows=rows,
        after=after,
        next=next_,
        count=await outbox.count(context.storage.tables, most=COUNTED_MAX),
        count_max=COUNTED_MAX,
    )


@router.get("/empty")
async def empty_page(request: Request, signed_in: Owner) -> Response:
    is_empty = await outbox.is_empty((await _context(request)).storage.tables)
    return show(request, signed_in, "outbox/empty.html", is_empty=is_empty, is_rest=False)


@router.post("/empty")
async def empty(request: Request, signed_in: Owner) -> Response:
    """Delete as many as one request may; the page offers to delete the rest."""
    storage = (await _context(request)).storage
    if await outbox.delete_newest(storage, limit=DELETED_A_REQUEST) < DELETED_A_REQUEST:
        one_per_app(request.app, TestMailbox).is_emptied = True
        return go("/admin/outbox", "emptied")
    return show(request, signed_in, "outbox/empty.html", is_empty=False, is_rest=True)


@router.get("/{key}")
async def mail_page(request: Request, signed_in: Editor, key: str) -> Response:
    kept, source = await outbox.read((await _context(request)).storage, key)
    mail_view = read_mail(source)
    wanted = request.query_params.get("view", "")
    first = "html" if mail_view.html is not None else "text"
    view = wanted if wanted in VIEWS else first
    return show(request, signed_in, "outbox/mail.html", kept=kept, mail_view=mail_view, view=view)


@router.get("/{key}/html")
async def mail_html(request: Request, signed_in: Editor, key: str) -> Response:
    """For the frame."""
    _kept, source = await outbox.read((await _context(request)).storage, key)
    html = read_mail(source).html
    if html is None:
        raise NotFound(_("This email has no HTML."))
    return framed(html)


async def _context(request: Request) -> WebContext:
    """With a mail server, the test mailbox exists only if it still has emails."""
    context = context_of(request)
    has_any = context.has_outbox or context.has_kept_mails
    if not has_any and await outbox.is_empty(context.storage.tables):
        raise NotFound(_("A mail server is set up, so no emails are kept here."))
    return context


async def _subject(context: WebContext, key: str) -> str:
    try:
        _, source = await outbox.read(context.storage, key)
    except NotFound:  # deleted at this moment
        return ""
    return subject_of(source)
