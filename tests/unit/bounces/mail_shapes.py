"""Builders of the mails that come back, and what is expected of each."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

from postroom.domain.feedback import BounceClass, BounceReason, FeedbackKind

TOKEN = "mzxw6ytboi4hq2lnkrsxg5caonqxe3df"  # 32 letters of base32
LONG_TOKEN = "krsxg5cjnz2gk4tomv2c4y3pnuqgc3tefzxxezza"  # 40
STUDENT = "student1@contoso.edu"
BOUNCE_ADDRESS = f"b+{TOKEN}@bounce.northwind.example"

DEAD = BounceClass.DEAD
TEMPORARY = BounceClass.TEMPORARY
OURS = BounceClass.OURS
COMPLAINT = BounceClass.COMPLAINT
IGNORE = BounceClass.IGNORE
BOUNCED = FeedbackKind.BOUNCED
DEFERRED = FeedbackKind.DEFERRED


@dataclass(frozen=True)
class Shape:
    """A mail and what it reports."""

    name: str
    raw: bytes
    kind: FeedbackKind | None
    bounce_class: BounceClass
    reason: BounceReason
    recipient: str = STUDENT
    delivery: str = TOKEN
    status: str | None = None


def text(lines: str) -> str:
    """A text of the source, without its indentation."""
    return dedent(lines).strip("\n") + "\n"


ORIGINAL = text(
    f"""
    Return-Path: <{BOUNCE_ADDRESS}>
    Message-ID: <{TOKEN}@northwind.example>
    From: Northwind News <news@northwind.example>
    To: {STUDENT}
    Subject: Lectures begin on Monday
    List-Unsubscribe: <https://news.northwind.example/u/1>

    Lectures begin on Monday.
    """
)


def mail(
    body: str,
    *,
    sender: str = "Mail Delivery System <MAILER-DAEMON@mx.fabrikam.example>",
    subject: str = "Undelivered Mail Returned to Sender",
    to: str = "bounces@northwind.example",
    more: str = "",
    encoding: str = "utf-8",
) -> bytes:
    """A mail with one text; `more` are further header lines."""
    head = f"From: {sender}\nTo: {to}\nSubject: {subject}\n{text(more) if more else ''}"
    return f"{head}\n{text(body)}".encode(encoding)


def multipart(kind: str, *parts: tuple[str, str], **headers: str) -> bytes:
    """A mail of several parts, each a content type (with further headers) and a body."""
    pieces = "".join(f"--=_b1\nContent-Type: {part}\n\n{body}\n" for part, body in parts)
    more = f'MIME-Version: 1.0\nContent-Type: {kind}; boundary="=_b1"\n'
    return mail("", more=more, **headers)[:-1] + f"{pieces}--=_b1--\n".encode()


def status_report(
    fields: str, explanation: str = "See below.", original: str = ORIGINAL, **headers: str
) -> bytes:
    """A report as RFC 3464 wants it."""
    groups = f"Reporting-MTA: dns; mx.fabrikam.example\n\n{text(fields)}"
    return multipart(
        "multipart/report; report-type=delivery-status",
        ("text/plain", text(explanation)),
        ("message/delivery-status", groups),
        ("message/rfc822", original),
        **headers,
    )


def failed(diagnostic: str, status: str = "5.0.0", recipient: str = STUDENT) -> str:
    """The fields of one recipient that could not be reached."""
    return (
        f"Final-Recipient: rfc822; {recipient}\nAction: failed\nStatus: {status}\n"
        f"Diagnostic-Code: smtp; {diagnostic}\n"
    )


def feedback_report(fields: str, original: str = ORIGINAL, **headers: str) -> bytes:
    """A report as RFC 5965 wants it."""
    return multipart(
        "multipart/report; report-type=feedback-report",
        ("text/plain", "This is an email abuse report.\n"),
        ("message/feedback-report", text(fields)),
        ("message/rfc822", original),
        **headers,
    )
