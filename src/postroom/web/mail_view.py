"""A mail as a page shows it: its headers decoded, its HTML for a frame, its text.

The HTML goes into a sandboxed frame with a policy of its own (security.MAIL_POLICY): no script, no
form, not our origin. Links in it open in a new tab.
"""

from __future__ import annotations

import re
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

import msgspec
from starlette.responses import HTMLResponse

from postroom.web.security import MAIL_POLICY

HEADERS_SHOWN_MAX = 100
SOURCE_CHARS_SHOWN = 500_000
_BASE = '<base target="_blank">'
_START = re.compile(r"\s*<!doctype[^>]*>", re.IGNORECASE)


class MailView(msgspec.Struct, frozen=True):
    subject: str
    sender: str
    recipient: str
    headers: list[tuple[str, str]]
    html: str | None
    text: str | None
    source: str


def read_mail(source: bytes) -> MailView:
    """Whatever the mail is: what cannot be read of it is left out."""
    mail = message_from_bytes(source, policy=default)
    assert isinstance(mail, EmailMessage)
    return MailView(
        subject=_header(mail, "Subject"),
        sender=_header(mail, "From"),
        recipient=_header(mail, "To"),
        headers=[(name, str(value)) for name, value in mail.items()][:HEADERS_SHOWN_MAX],
        html=_body(mail, "html"),
        text=_body(mail, "plain"),
        source=source.decode(errors="replace")[:SOURCE_CHARS_SHOWN],
    )


def subject_of(source: bytes) -> str:
    """Without a look at the rest of the mail."""
    head, _, _ = source.partition(b"\r\n\r\n")
    return str(message_from_bytes(head + b"\r\n\r\n", policy=default).get("Subject", ""))


def framed(html: str) -> HTMLResponse:
    """A mail's HTML, for a frame of ours."""
    doctype = _START.match(html)
    at = doctype.end() if doctype else 0  # before it, browsers would fall into quirks
    page = f"{html[:at]}{_BASE}{html[at:]}"
    return HTMLResponse(page, headers={"Content-Security-Policy": MAIL_POLICY})


def _header(mail: EmailMessage, name: str) -> str:
    return str(mail.get(name, ""))


def _body(mail: EmailMessage, kind: str) -> str | None:
    part = mail.get_body((kind,))
    if part is None:
        return None
    try:
        return str(part.get_content())
    except (LookupError, ValueError):  # a charset that nobody knows
        return None
