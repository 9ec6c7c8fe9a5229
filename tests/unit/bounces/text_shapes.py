"""Reports that only people were meant to read, complaints, automatic replies, ordinary mails."""

from __future__ import annotations

import base64
import quopri

from postroom.domain.feedback import BounceReason, FeedbackKind
from tests.unit.bounces.mail_shapes import (
    BOUNCED,
    COMPLAINT,
    DEAD,
    DEFERRED,
    IGNORE,
    ORIGINAL,
    OURS,
    STUDENT,
    TEMPORARY,
    TOKEN,
    Shape,
    failed,
    feedback_report,
    mail,
    multipart,
    status_report,
    text,
)

EXIM = f"""
This message was created automatically by mail delivery software.

A message that you sent could not be delivered to one or more of its
recipients. This is a permanent error. The following address(es) failed:

  {STUDENT}
    host mx.contoso.edu [192.0.2.25]
    SMTP error from remote mail server after %s:
    %s

------ This is a copy of the message, including all the headers. ------

{ORIGINAL}"""

QMAIL = f"""
Hi. This is the qmail-send program at mx.fabrikam.example.
I'm afraid I wasn't able to deliver your message to the following addresses.
This is a permanent error; I've given up. Sorry it didn't work out.

<{STUDENT}>:
%s

--- Below this line is a copy of the message.

{ORIGINAL}"""

NOTIFICATION = (
    '{"notificationType":"Bounce","bounce":{"bounceType":"Permanent","bouncedRecipients":'
    f'[{{"emailAddress":"{STUDENT}","action":"failed","status":"5.1.1",'
    '"diagnosticCode":"smtp; 550 5.1.1 user unknown"}]},"mail":{"commonHeaders":'
    f'{{"messageId":"<{TOKEN}@northwind.example>"}}}}}}'
)

FORWARDED = status_report(failed("552 5.2.2 Over quota", "5.2.2")).decode().replace("=_b1", "=_b2")

TEXT_SHAPES = [
    Shape(
        "Exim, no such user",
        mail(
            EXIM % (f"RCPT TO:<{STUDENT}>", "550 No such user here"),
            subject="Mail delivery failed: returning message to sender",
            more=f"X-Failed-Recipients: {STUDENT}\nAuto-Submitted: auto-replied",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Exim, refused before the recipient was named",
        mail(EXIM % ("initial connection", "554 Go elsewhere 192.0.2.7")),
        BOUNCED,
        OURS,
        BounceReason.POLICY,
    ),
    Shape(
        "Exim, refused after the content",
        mail(EXIM % ("end of data", "550 5.2.0 We do not want this (X-42)")),
        BOUNCED,
        OURS,
        BounceReason.POLICY,
    ),
    Shape(
        "Exim, delay",
        mail(
            f"""
            This message was created automatically by mail delivery software.
            A message that you sent has not yet been delivered to one or more of its
            recipients after more than 24 hours on the queue on mx.fabrikam.example.

            The message identifier is: {TOKEN}@northwind.example

            The address to which the message has not yet been delivered is:

              {STUDENT}
                Delay reason: Connection timed out

            No action is required on your part. Delivery attempts will continue for
            some time.
            """,
            subject="Warning: message 1a2b3c-000000-00 delayed 24 hours",
        ),
        DEFERRED,
        TEMPORARY,
        BounceReason.DELAYED,
    ),
    Shape(
        "GMX, mailbox full",
        mail(
            f"""
            This message was created automatically by mail delivery software.

            A message that you sent could not be delivered to one or more of
            its recipients. This is a permanent error. The following address
            failed:

            "{STUDENT}":
            SMTP error from remote server after RCPT command:
            host: mx.contoso.edu
            552-Requested mail action aborted: exceeded storage allocation
            552 Quota exceeded. The recipient's mailbox is full.

            --- The header of the original message is following. ---

            """
            + ORIGINAL.replace("\n", "\n            "),
            sender="GMX Mailer Daemon <mailer-daemon@gmx.example>",
            subject="Mail delivery failed: returning message to sender",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.MAILBOX_FULL,
    ),
    Shape(
        "GMX, IP address on a block list",
        mail(
            EXIM
            % (
                "initial connection",
                "554-mx.contoso.edu Nemesis ESMTP Service not available\n"
                "    554-No SMTP service\n    554 IP address is block listed.",
            )
        ),
        BOUNCED,
        OURS,
        BounceReason.BLOCKED,
    ),
    Shape(
        "qmail, no such mailbox",
        mail(QMAIL % "Sorry, no mailbox here by that name. (#5.1.1)", subject="failure notice"),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
        status="5.1.1",
    ),
    Shape(
        "qmail, tried for too long",
        mail(
            QMAIL
            % (
                "Connected to 192.0.2.25 but greeting failed.\n"
                "Remote host said: 421 too busy, come back\n"
                "I'm not going to try again; this message has been in the queue too long."
            ),
            subject="failure notice",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.EXPIRED,
    ),
    Shape(
        "Old Exchange, unknown recipient",
        mail(
            f"""
            Your message

              To:      Students
              Subject: Lectures begin on Monday

            did not reach the following recipient(s):

            {STUDENT} on Mon, 6 May 2030 10:00:00 +0200
                The recipient name is not recognized
            """,
            sender="System Administrator <postmaster@fabrikam.example>",
            subject="Undeliverable: Lectures begin on Monday",
            to=f"b+{TOKEN}@bounce.northwind.example",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Domino, not in the directory",
        mail(
            f"""
            Your message
              Subject: Lectures begin on Monday
            was not delivered to:
              {STUDENT}
            because:
              User student1 ({STUDENT}) not listed in Domino Directory
            """,
            subject="DELIVERY FAILURE: User student1 not listed in Domino Directory",
            more=f"In-Reply-To: <{TOKEN}@northwind.example>",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "A mailing list that takes mail from members only",
        mail(
            f"""
            You are not a member of this mailing list <{STUDENT}>.
            Your message was rejected.
            """,
            sender="students-admin@contoso.edu",
            subject="You are not member (students)",
            more=f"References: <{TOKEN}@northwind.example>",
        ),
        BOUNCED,
        OURS,
        BounceReason.BAD_SENDER,
    ),
    Shape(
        "Eight-bit text in German without a charset",
        mail(
            f"""
            Ihre Nachricht konnte nicht zugestellt werden:

            <{STUDENT}>: Empfänger unbekannt

            {ORIGINAL.splitlines()[1]}
            """,
            subject="Unzustellbar: Vorlesungen",
            encoding="latin-1",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Base64",
        mail(
            base64.encodebytes(
                (QMAIL % "550 5.1.1 unknown or illegal alias").encode("utf-8")
            ).decode(),
            more="Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Quoted-printable in Japanese, English at the end",
        mail(
            quopri.encodestring(
                "メールを配信できませんでした。\n\n".encode("iso-2022-jp")
                + f"Could not be delivered to: <{STUDENT}>\nAs their mailbox is full.\n\n".encode()
                + ORIGINAL.encode()
            ).decode("ascii"),
            more="Content-Type: text/plain; charset=iso-2022-jp\n"
            "Content-Transfer-Encoding: quoted-printable",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.MAILBOX_FULL,
    ),
    Shape(
        "HTML alone",
        mail(
            f"""
            <html><head><style>p {{color: red}}</style></head><body><p>Your message to
            <b>{STUDENT}</b> could not be delivered.</p><p>550 5.1.1 User unknown</p></body></html>
            """,
            more="Content-Type: text/html; charset=utf-8",
            to=f"b+{TOKEN}@bounce.northwind.example",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Amazon SES by email from Amazon SNS",
        mail(NOTIFICATION, sender="AWS <no-reply@sns.example>", subject="AWS Notification Message"),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Huge: a newsletter of five megabytes was returned",
        status_report(
            failed("550 5.1.1 User unknown", "5.1.1"), original=ORIGINAL + "spam spam\n" * 500_000
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Nested: the report is inside another multipart",
        multipart(
            "multipart/mixed",
            (
                'multipart/report; report-type=delivery-status; boundary="inner"',
                "--inner\nContent-Type: text/plain\n\nSee below.\n"
                "--inner\nContent-Type: message/delivery-status\n\n"
                + failed("550 5.1.1 User unknown", "5.1.1")
                + "\n--inner\nContent-Type: message/rfc822\n\n"
                + ORIGINAL
                + "\n--inner--\n",
            ),
            ("text/plain", "This message was scanned.\n"),
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Forwarded by a person, as an attachment",
        multipart(
            "multipart/mixed",
            ("text/plain", "What is this?\n"),
            ("message/rfc822", FORWARDED),
            sender="Ms Doe <doe@fabrikam.example>",
            subject="Fwd: Undelivered Mail Returned to Sender",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.MAILBOX_FULL,
    ),
    Shape(
        "Complaint of Yahoo",
        feedback_report(
            f"""
            Feedback-Type: abuse
            User-Agent: Yahoo!-Mail-Feedback/2.0
            Version: 0.1
            Original-Mail-From: <b+{TOKEN}@bounce.northwind.example>
            Original-Rcpt-To: {STUDENT}
            """
        ),
        FeedbackKind.COMPLAINED,
        COMPLAINT,
        BounceReason.COMPLAINT,
    ),
    Shape(
        "Complaint without the recipient: the returned mail names it",
        feedback_report("Feedback-Type: fraud\nVersion: 1"),
        FeedbackKind.COMPLAINED,
        COMPLAINT,
        BounceReason.COMPLAINT,
    ),
    Shape(
        "Complaint whose MIME structure is broken",
        mail(
            f"""
            This is an email abuse report.

            Feedback-Type: abuse
            Original-Rcpt-To: {STUDENT}
            Original-Mail-From: b+{TOKEN}@bounce.northwind.example
            """,
            sender="feedback@fabrikam.example",
            subject="Abuse report",
        ),
        FeedbackKind.COMPLAINED,
        COMPLAINT,
        BounceReason.COMPLAINT,
    ),
    Shape(
        "Complaint of Microsoft, which has no fields",
        multipart(
            "multipart/mixed",
            ("message/rfc822", f"X-HmXmrOriginalRecipient: {STUDENT}\n{ORIGINAL}"),
            sender="staff@hotmail.example",
            subject="complaint about message from 192.0.2.7",
        ),
        FeedbackKind.COMPLAINED,
        COMPLAINT,
        BounceReason.COMPLAINT,
    ),
    Shape(
        "DMARC failure report: a filter speaks, not the recipient",
        feedback_report(f"Feedback-Type: auth-failure\nOriginal-Rcpt-To: {STUDENT}"),
        FeedbackKind.COMPLAINED,
        COMPLAINT,
        BounceReason.AUTHENTICATION,
    ),
    Shape(
        "Somebody says that it is no spam",
        feedback_report(f"Feedback-Type: not-spam\nOriginal-Rcpt-To: {STUDENT}"),
        None,
        IGNORE,
        BounceReason.NOT_FEEDBACK,
        recipient="",
    ),
    Shape(
        "A mail program unsubscribes by email",
        mail(
            "This email was sent to unsubscribe from the message.",
            sender=STUDENT,
            subject="Unsubscribe",
            to=f"b+{TOKEN}@bounce.northwind.example",
            more="Auto-Submitted: auto-replied",
        ),
        FeedbackKind.UNSUBSCRIBED,
        COMPLAINT,
        BounceReason.COMPLAINT,
        recipient=STUDENT,
    ),
    Shape(
        "Out of office",
        mail(
            "I am on holiday until Monday. My mailbox is full of holiday pictures.",
            sender=STUDENT,
            subject="Automatic reply: Lectures begin on Monday",
            more=f"Auto-Submitted: auto-replied\nIn-Reply-To: <{TOKEN}@northwind.example>",
        ),
        None,
        IGNORE,
        BounceReason.AUTOMATIC_REPLY,
        recipient="",
    ),
    Shape(
        "Out of office in German, without a header that says so",
        mail(
            "Ich bin nicht im Büro.",
            sender=STUDENT,
            subject="=?utf-8?B?QWJ3ZXNlbmhlaXRzbm90aXo6IFZvcmxlc3VuZ2Vu?=",
        ),
        None,
        IGNORE,
        BounceReason.AUTOMATIC_REPLY,
        recipient="",
        delivery="",
    ),
    Shape(
        "Read receipt",
        multipart(
            "multipart/report; report-type=disposition-notification",
            ("text/plain", "Your message was displayed.\n"),
            ("message/disposition-notification", f"Final-Recipient: rfc822;{STUDENT}\n"),
            sender=STUDENT,
            subject="Read: Lectures begin on Monday",
        ),
        None,
        IGNORE,
        BounceReason.AUTOMATIC_REPLY,
        recipient="",
        delivery="",
    ),
    Shape(
        "A person asks about an undelivered mail",
        mail(
            text(
                """
                Please use the following address from now on: doe@contoso.edu.
                The last mail could not be delivered.
                Status: urgent
                Action: please

                -----Original Message-----
                From: Northwind News
                """
            ),
            sender="Ms Doe <doe@contoso.edu>",
            subject="Re: Undeliverable",
        ),
        None,
        IGNORE,
        BounceReason.NOT_FEEDBACK,
        recipient="",
        delivery="",
    ),
    Shape(
        "An empty mail",
        b"",
        None,
        IGNORE,
        BounceReason.NOT_FEEDBACK,
        recipient="",
        delivery="",
    ),
]
