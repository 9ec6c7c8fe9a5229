"""An email as a page shows it: decoded headers, HTML for a frame, and text.

The HTML goes into a sandboxed frame with its own policy (security.MAIL_POLICY): no scripts, no
forms, not our origin. Links in it open in a new tab.
"""

from __future__ import annotations

import re
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import default

import msgspec
from starlette.responses import HTMLResponse

from postroom.web.security import MAIL_POLICY

HEADERS_SHOWN_MAX = 100
SOURCE_CHARS_SHOWN = 500_000
_BASE = '<base target="_blank">'
_START = re.compile(r"\s*<!doctype[^>]*>", re.IGNORECASE)


class MailAttachment(msgspec.Struct, frozen=True):
    name: str
    media_type: str
    content: bytes

    @property
    def bytes(self) -> int:
        return len(self.content)


class MailView(msgspec.Struct, frozen=True):
    subject: str
    sender: str
    recipient: str
    headers: list[tuple[str, str]]
    html: str | None
    text: str | None
    source: str
    attachments: list[MailAttachment] = []


def read_mail(source: bytes) -> MailView:
    """Read any email; parts that cannot be decoded are left out."""
    mail = message_from_bytes(source, policy=default)
    assert isinstance(mail, EmailMessage)
    return MailView(
        subject=str(mail.get("Subject", "")),
        sender=str(mail.get("From", "")),
        recipient=str(mail.get("To", "")),
        headers=[(name, str(value)) for name, value in mail.items()][:HEADERS_SHOWN_MAX],
        html=_body(mail, "html"),
        text=_body(mail, "plain"),
        source=source[: 4 * SOURCE_CHARS_SHOWN].decode(errors="replace")[:SOURCE_CHARS_SHOWN],
        attachments=[_attachment(part) for part in mail.iter_attachments()],
    )


def _attachment(part: Message) -> MailAttachment:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):  # an email in an email
        content = b""
    return MailAttachment(part.get_filename() or "", part.get_content_type(), content)


def subject_of(source: bytes) -> str:
    """The subject, without parsing the rest."""
    head, _, _ = source.partition(b"\r\n\r\n")
    return str(message_from_bytes(head + b"\r\n\r\n", policy=default).get("Subject", ""))


def framed(html: str) -> HTMLResponse:
    """The HTML of an email, for a frame."""
    doctype = _START.match(html)
    at = doctype.end() if doctype else 0  # anything before the doctype means quirks mode
    page = f"{html[:at]}{_BASE}{html[at:]}"
    return HTMLResponse(page, headers={"Content-Security-Policy": MAIL_POLICY})


def _body(mail: EmailMessage, kind: str) -> str | None:
    part = mail.get_body((kind,))
    if part is None:
        return None
    try:
        return str(part.get_content())
    except (LookupError, ValueError):  # an unknown charset
        return None
