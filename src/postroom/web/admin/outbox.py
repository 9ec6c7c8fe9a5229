"""The test mailbox, like a mail client: every mail as HTML, as text, with headers, as source.

Mails have links to confirm and to leave, by which whoever reads them acts for their receiver: that
is not for viewers.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.domain.errors import NotFound
from postroom.domain.texts import _
from postroom.records import outbox
from postroom.web.desk import Desk, KeptMails, desk_of, one_per_app
from postroom.web.letter import framed, read_letter, subject_of
from postroom.web.pages import go, show
from postroom.web.visitor import Editor, Owner

router = APIRouter(prefix="/outbox")
MAILS_A_PAGE = 30  # each is opened for its subject
VIEWS = ("html", "text", "headers", "source")
DELETED_A_REQUEST = 1000  # takes a second or two
COUNTED_MAX = 999  # with one more, a single page of rows


@router.get("")
async def index(request: Request, visitor: Editor) -> Response:
    desk = await _desk(request)
    after = request.query_params.get("after", "")
    mails, next_ = await outbox.newest(desk.storage.tables, limit=MAILS_A_PAGE, after=after)
    rows = [(mail, await _subject(desk, mail.key)) for mail in mails]
    return show(
        request,
        visitor,
        "outbox/index.html",
        rows=rows,
        after=after,
        next=next_,
        count=await outbox.count(desk.storage.tables, most=COUNTED_MAX),
        count_max=COUNTED_MAX,
    )


@router.get("/empty")
async def empty_page(request: Request, visitor: Owner) -> Response:
    is_empty = await outbox.is_empty((await _desk(request)).storage.tables)
    return show(request, visitor, "outbox/empty.html", is_empty=is_empty, is_rest=False)


@router.post("/empty")
async def empty(request: Request, visitor: Owner) -> Response:
    """So much as a request may take; what is left is asked about again."""
    storage = (await _desk(request)).storage
    if await outbox.delete_newest(storage, limit=DELETED_A_REQUEST) < DELETED_A_REQUEST:
        one_per_app(request.app, KeptMails).is_emptied = True
        return go("/admin/outbox", "emptied")
    return show(request, visitor, "outbox/empty.html", is_empty=False, is_rest=True)


@router.get("/{key}")
async def mail_page(request: Request, visitor: Editor, key: str) -> Response:
    kept, source = await outbox.read((await _desk(request)).storage, key)
    letter = read_letter(source)
    wanted = request.query_params.get("view", "")
    first = "html" if letter.html is not None else "text"
    view = wanted if wanted in VIEWS else first
    return show(request, visitor, "outbox/mail.html", kept=kept, letter=letter, view=view)


@router.get("/{key}/html")
async def mail_html(request: Request, visitor: Editor, key: str) -> Response:
    """For the frame alone."""
    _kept, source = await outbox.read((await _desk(request)).storage, key)
    html = read_letter(source).html
    if html is None:
        raise NotFound(_("This mail has no HTML."))
    return framed(html)


async def _desk(request: Request) -> Desk:
    """With a mail server, there is something here only if mails were kept before."""
    desk = desk_of(request)
    has_any = desk.has_outbox or desk.has_kept_mails
    if not has_any and await outbox.is_empty(desk.storage.tables):
        raise NotFound(_("A mail server is set up, so no emails are kept here."))
    return desk


async def _subject(desk: Desk, key: str) -> str:
    try:
        _, source = await outbox.read(desk.storage, key)
    except NotFound:  # deleted at this moment
        return ""
    return subject_of(source)
