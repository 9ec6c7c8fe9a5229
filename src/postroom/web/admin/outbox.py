"""The test mailbox: every email as HTML, as text, with headers, as source.

Not for viewers: emails contain links to confirm and to unsubscribe, with which anybody can act for
the recipient.
"""

from __future__ import annotations

import re

from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.attachment import UNKNOWN_TYPE
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.errors import NotFound
from postroom.domain.texts import _
from postroom.parsing import in_thread
from postroom.records import outbox
from postroom.storage.port import Storage
from postroom.web.admin.admin_request import AdminRequest, Editor, Owner
from postroom.web.context import TestMailbox, one_per_app
from postroom.web.downloads import as_download
from postroom.web.mail_view import framed, read_mail, subject_of
from postroom.web.pages import go

router = APIRouter(prefix="/outbox")
MAILS_A_PAGE = 30  # each is opened for its subject
VIEWS = ("html", "text", "headers", "source")
DELETED_A_REQUEST = 1000  # takes a second or two
COUNTED_MAX = 999  # with one more, a single page of rows


@router.get("")
async def index(request: Editor) -> Response:
    storage = await _storage(request)
    after = request.query("after")
    mails, next_ = await outbox.newest(storage.tables, limit=MAILS_A_PAGE, after=after)
    rows = []
    for mail in mails:
        subject = subject_of(await outbox.read_beginning(storage, mail.key))
        rows.append((mail, subject))
    return request.show(
        "outbox/index.html",
        rows=rows,
        after=after,
        next=next_,
        count=await outbox.count(storage.tables, most=COUNTED_MAX),
        count_max=COUNTED_MAX,
    )


@router.get("/empty")
async def empty_page(request: Owner) -> Response:
    is_empty = await outbox.is_empty((await _storage(request)).tables)
    return request.show("outbox/empty.html", is_empty=is_empty, is_rest=False)


@router.post("/empty")
async def empty(request: Owner) -> Response:
    """Delete as many as one request may; the page offers to delete the rest."""
    storage = await _storage(request)
    async with request.act().audited(AuditKind.MAILBOX, "", AuditAction.EMPTY):
        deleted = await outbox.delete_newest(storage, limit=DELETED_A_REQUEST)
    if deleted < DELETED_A_REQUEST:
        one_per_app(request.http.app, TestMailbox).is_emptied = True
        return go("/admin/outbox", "emptied")
    return request.show("outbox/empty.html", is_empty=False, is_rest=True)


@router.get("/{key}")
async def mail_page(request: Editor, key: str) -> Response:
    mail, source = await outbox.read(await _storage(request), key)
    mail_view = await in_thread(read_mail, source)  # attachments may have ten megabytes
    view = request.query("view")
    if view not in VIEWS:
        view = "text" if mail_view.html is None else "html"
    return request.show("outbox/mail.html", mail=mail, mail_view=mail_view, view=view)


@router.get("/{key}/html")
async def mail_html(request: Editor, key: str) -> Response:
    """For the frame."""
    _mail, source = await outbox.read(await _storage(request), key)
    html = (await in_thread(read_mail, source)).html
    if html is None:
        raise NotFound(_("This email has no HTML."))
    return framed(html)


@router.get("/{key}/attachments/{number}")
async def mail_attachment(request: Editor, key: str, number: str) -> Response:
    _mail, source = await outbox.read(await _storage(request), key)
    attached = (await in_thread(read_mail, source)).attachments
    if not re.fullmatch("[0-9]{1,3}", number) or int(number) >= len(attached):
        raise NotFound(_("This email has no such attachment."))
    file = attached[int(number)]
    return as_download(file.name or "attachment", UNKNOWN_TYPE, file.content)


async def _storage(request: AdminRequest) -> Storage:
    """With a mail server, the test mailbox exists only if it still has emails."""
    context = request.context
    has_any = context.has_outbox or context.has_kept_mails
    if not has_any and await outbox.is_empty(request.tables):
        raise NotFound(_("A mail server is set up, so no emails are kept here."))
    return request.storage
