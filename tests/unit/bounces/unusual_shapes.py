"""Reports in unusual forms, and words that are not about the recipient."""

from __future__ import annotations

import base64

from postroom.domain.feedback import BounceReason, FeedbackKind
from tests.unit.bounces.mail_shapes import (
    BOUNCE_ADDRESS,
    BOUNCED,
    COMPLAINT,
    DEAD,
    IGNORE,
    ORIGINAL,
    OURS,
    STUDENT,
    TEMPORARY,
    Shape,
    failed,
    mail,
    multipart,
    status_report,
    text,
)

EXIM_LOCAL = f"""
A message that you sent could not be delivered to one or more of its
recipients. This is a permanent error. The following address(es) failed:

  {STUDENT}
    %s

------ This is a copy of the message, including all the headers. ------

{ORIGINAL}"""

FORWARDED_TEXT = f"""
This address bounces.

-------- Forwarded Message --------
Subject: Undelivered Mail Returned to Sender
From: MAILER-DAEMON@mx.fabrikam.example (Mail Delivery System)
To: bounces@northwind.example

<{STUDENT}>: host mx.contoso.edu said: 550 5.1.1 No such person

{ORIGINAL}"""


def encoded(part: str) -> str:
    return base64.encodebytes(part.encode()).decode()


UNUSUAL_SHAPES = [
    Shape(
        "An automatic reply of a gateway that returns the message",
        multipart(
            "multipart/mixed",
            ("text/plain", "Your message was not delivered. This mailbox does not exist.\n"),
            ("message/rfc822", ORIGINAL),
            sender="Gateway <gateway@fabrikam.example>",
            subject="Problem with your email",
        ).replace(b"MIME-Version", b"Auto-Submitted: auto-replied\nReturn-Path: <>\nMIME-Version"),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "A program on the server that does not exist",
        mail(EXIM_LOCAL % "Child process returned 127 (unable to exec: command does not exist)"),
        BOUNCED,
        TEMPORARY,
        BounceReason.SYSTEM,
    ),
    Shape(
        "A mailbox file that does not exist",
        status_report(failed("554 5.3.0 cannot open Maildir: No such file or directory")),
        BOUNCED,
        TEMPORARY,
        BounceReason.SYSTEM,
    ),
    Shape(
        "Exim's own words, without a reply",
        mail(
            EXIM_LOCAL % "a TLS session was wanted, but the host did not give one",
            more=f"X-Failed-Recipients: {STUDENT}",
        ),
        BOUNCED,
        OURS,
        BounceReason.AUTHENTICATION,
    ),
    Shape(
        "The domain that does not exist is ours",
        status_report(failed("517 Domain does not exist: bounce.northwind.example")),
        BOUNCED,
        OURS,
        BounceReason.BAD_SENDER,
    ),
    Shape(
        "A message that was filtered after its content",
        mail(EXIM_LOCAL % "SMTP error after end of data:\n    553 Message filtered (#5.7.1)"),
        BOUNCED,
        OURS,
        BounceReason.FILTERED,
    ),
    Shape(
        "A reason in a paragraph of its own",
        mail(
            f"""
            Unable to deliver message to: <{STUDENT}>

            The reason for the failure was:

            Server told: this recipient has departed

            {ORIGINAL.replace(chr(10), chr(10) + " " * 12)}
            """
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "HTML with typographic hyphens and apostrophes",
        mail(
            f"<p>Delivery has failed to this recipient:</p><p>{STUDENT}<br>"
            f"The e&#8209;mail address couldn&rsquo;t be found.</p>",
            to=BOUNCE_ADDRESS,
            more="Content-Type: text/html; charset=utf-8",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Turkish, with letters that have no accent to take away",
        mail(
            f"İletiniz teslim edilemedi:\n{STUDENT}\nBöyle bir kullanıcı yok.\n\n{ORIGINAL}",
            sender="postmaster@mx.fabrikam.example",
            more="Content-Type: text/plain; charset=iso-8859-9",
            encoding="iso-8859-9",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "UTF-16 in base64",
        mail(
            base64.encodebytes(
                f"550 5.1.1 User unknown: {STUDENT}\n\n{ORIGINAL}".encode("utf-16")
            ).decode(),
            more="Content-Type: text/plain; charset=utf-16\nContent-Transfer-Encoding: base64",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "The fields in an attachment of no particular type",
        multipart(
            "multipart/mixed",
            ("text/plain", "Your message could not be delivered.\n"),
            ('application/octet-stream; name="details.txt"', failed("550 No such user", "5.1.1")),
            ("message/rfc822", ORIGINAL),
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "The returned message in base64",
        multipart(
            "multipart/report; report-type=delivery-status",
            ("text/plain", "See below.\n"),
            ("message/delivery-status", failed("552 5.2.2 Over quota", "5.2.2")),
            ("message/rfc822\nContent-Transfer-Encoding: base64", encoded(ORIGINAL)),
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.MAILBOX_FULL,
    ),
    Shape(
        "A bounce that a person forwarded in the text of a mail",
        mail(
            FORWARDED_TEXT,
            sender="Webmaster <webmaster@northwind.example>",
            subject="Fwd: Undelivered Mail Returned to Sender",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "An automatic answer that speaks of undeliverable requests",
        mail(
            "We received your mail. Undeliverable requests are closed after five days.",
            sender="Helpdesk <help@contoso.edu>",
            subject="Case 4711 created",
            more="Return-Path: <>\nX-Auto-Response-Suppress: OOF",
        ),
        None,
        IGNORE,
        BounceReason.AUTOMATIC_REPLY,
        recipient="",
        delivery="",
    ),
    Shape(
        "SpamCop, which writes a text instead of fields",
        mail(
            text("[ Offending message ]\n") + ORIGINAL,
            sender="4711@reports.fabrikam.example",
            subject="[SpamCop (192.0.2.9) id:4711] Lectures begin on Monday",
        ),
        FeedbackKind.COMPLAINED,
        COMPLAINT,
        BounceReason.COMPLAINT,
    ),
]
