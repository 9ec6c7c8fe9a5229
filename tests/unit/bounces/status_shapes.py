"""Reports with fields for machines (RFC 3464), as servers of today send them."""

from __future__ import annotations

from postroom.domain.feedback import BounceReason, FeedbackKind
from tests.unit.bounces.mail_shapes import (
    BOUNCE_ADDRESS,
    BOUNCED,
    DEAD,
    DEFERRED,
    IGNORE,
    LONG_TOKEN,
    ORIGINAL,
    OURS,
    STUDENT,
    TEMPORARY,
    Shape,
    failed,
    multipart,
    status_report,
    text,
)

STATUS_SHAPES = [
    Shape(
        "Postfix, no such user",
        status_report(
            failed(f"550 5.1.1 <{STUDENT}>: Recipient address rejected: User unknown", "5.1.1"),
            f"""
            This is the mail system at host mx.fabrikam.example.

            I'm sorry to have to inform you that your message could not
            be delivered to one or more recipients. It's attached below.

            <{STUDENT}>: host mx.contoso.edu[192.0.2.25] said: 550 5.1.1
                <{STUDENT}>: Recipient address rejected: User unknown (in reply to
                RCPT TO command)
            """,
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
        status="5.1.1",
    ),
    Shape(
        "Gmail, no such user, code on every line",
        status_report(
            failed(
                "550-5.1.1 The email account that you tried to reach does not exist. Please try\n"
                " 550-5.1.1 double-checking the recipient's email address for typos or\n"
                " 550 5.1.1 https://support.google.com/mail/?p=NoSuchUser a1-2 - gsmtp",
                "5.1.1",
            ),
            "** Address not found **",
            subject="Delivery Status Notification (Failure)",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Gmail, out of storage",
        status_report(
            failed(
                "452-4.2.2 The recipient's inbox is out of storage space. Please direct the\n"
                " 452 4.2.2 recipient to https://support.google.com/mail/?p=OverQuotaTemp",
                "4.2.2",
            )
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.MAILBOX_FULL,
        status="4.2.2",
    ),
    Shape(
        "Gmail, bulk sender without authentication",
        status_report(
            failed(
                "550-5.7.26 Your email has been blocked because the sender is unauthenticated.\n"
                " 550 5.7.26 Gmail requires all senders to authenticate with either SPF or DKIM.",
                "5.7.26",
            )
        ),
        BOUNCED,
        OURS,
        BounceReason.AUTHENTICATION,
    ),
    Shape(
        "Gmail cannot find the domain, but calls it temporary",
        status_report(
            failed(
                "DNS Error: 12345678 DNS type 'mx' lookup of contoso.edu responded with code"
                " NXDOMAIN Domain name not found: contoso.edu",
                "4.0.0",
            ),
            "** Address not found **",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.NO_SUCH_HOST,
    ),
    Shape(
        "Outlook, authentication level",
        status_report(
            failed(
                "550 5.7.515 Access denied, sending domain NORTHWIND.EXAMPLE doesn't meet the"
                " required authentication level. Spf= Fail , Dkim= Pass , DMARC= Fail",
                "5.7.515",
            )
        ),
        BOUNCED,
        OURS,
        BounceReason.AUTHENTICATION,
        status="5.7.515",
    ),
    Shape(
        "Outlook, network on a block list",
        status_report(
            failed(
                "550 5.7.1 Unfortunately, messages from [192.0.2.7] weren't sent. Please contact"
                " your Internet service provider since part of their network is on our block"
                " list (S3140).",
                "5.7.1",
            )
        ),
        BOUNCED,
        OURS,
        BounceReason.BLOCKED,
    ),
    Shape(
        "Exchange Online, recipient not found",
        status_report(
            "Original-Recipient: rfc822;student1@contoso.edu\n"
            + failed(
                "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient student1@contoso.edu not"
                " found by SMTP address lookup",
                "5.1.10",
            ),
            "Your message to student1@contoso.edu couldn't be delivered.",
            subject="Undeliverable: Lectures begin on Monday",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Exchange Online, directory based edge blocking",
        status_report(
            failed(
                f"550 5.4.1 <{STUDENT}>: Recipient address rejected: Access denied."
                " [AM7EUR03FT045.eop-EUR03.prod.protection.outlook.com]",
                "5.4.1",
            )
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Exchange Online in French, mailbox full",
        status_report(
            failed(
                "554 5.2.2 mailbox full; STOREDRV.Deliver.Exception:"
                "QuotaExceededException.MapiExceptionShutoffQuotaExceeded",
                "5.2.2",
            ),
            "Échec de la remise pour ces destinataires.",
            subject="=?iso-8859-1?Q?Non_remis_:_Cours?=",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.MAILBOX_FULL,
    ),
    Shape(
        "Yahoo, user complaints",
        status_report(
            failed(
                "421 4.7.0 [TSS04] Messages from 192.0.2.7 temporarily deferred due to unexpected"
                " volume or user complaints - 4.16.55.1",
                "4.7.0",
            )
        ),
        BOUNCED,
        OURS,
        BounceReason.BLOCKED,
        status="4.7.0",
    ),
    Shape(
        "Yahoo, no such mailbox, without an enhanced code",
        status_report(
            failed(
                "554 delivery error: dd This user doesn't have a contoso.edu account"
                f" ({STUDENT}) [0] - mta4.contoso.edu"
            )
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "iCloud, DMARC policy of our domain",
        status_report(
            failed("554 5.7.1 Your message was rejected due to northwind.example's DMARC policy.")
        ),
        BOUNCED,
        OURS,
        BounceReason.AUTHENTICATION,
    ),
    Shape(
        "Amazon SES, address on the suppression list",
        status_report(
            failed(
                "Amazon SES has suppressed sending to this address because it has a recent history"
                " of bouncing as an invalid address.",
                "5.1.1",
            ),
            "An error occurred while trying to deliver the mail to the following recipients:",
            subject="Delivery Status Notification (Failure)",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.FILTERED,
    ),
    Shape(
        "Sendmail says no such user, the remote server says block list",
        status_report(failed("550 5.7.1 IP address blacklisted by recipient", "5.1.1")),
        BOUNCED,
        OURS,
        BounceReason.BLOCKED,
        status="5.7.1",
    ),
    Shape(
        "Sendmail, five days in the queue",
        status_report(
            f"Final-Recipient: RFC822; {STUDENT}\nAction: failed\nStatus: 4.4.7\n",
            f"""
               ----- Transcript of session follows -----
            <{STUDENT}>... Deferred: Connection timed out with mx.contoso.edu.
            Message could not be delivered for 5 days
            Message will be deleted from queue
            """,
            subject="Returned mail: see transcript for details",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.EXPIRED,
        status="4.4.7",
    ),
    Shape(
        "A name of no mailbox that sounds like a reason",
        status_report(
            failed(
                "550 5.1.1 <blocked-spam@contoso.edu>: User unknown",
                "5.1.1",
                "blocked-spam@contoso.edu",
            )
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
        recipient="blocked-spam@contoso.edu",
    ),
    Shape(
        "Refused at MAIL FROM, with words that sound like a dead address",
        status_report(
            failed("550 No such domain northwind.example"),
            f"""
            <{STUDENT}>: host mx.contoso.edu[192.0.2.25] said: 550
                No such domain northwind.example (in reply to MAIL FROM command)
            """,
        ),
        BOUNCED,
        OURS,
        BounceReason.BAD_SENDER,
    ),
    Shape(
        "Unknown user only after the content",
        status_report(
            failed(f"550 Unknown user {STUDENT}"),
            f"""
            <{STUDENT}>: host mx.contoso.edu[192.0.2.25] said:
                550 Unknown user {STUDENT} (in reply to end of DATA command)
            """,
        ),
        BOUNCED,
        OURS,
        BounceReason.FILTERED,
    ),
    Shape(
        "Unverified recipient, temporary",
        status_report(
            failed(f"450 4.1.1 <{STUDENT}>: Recipient address rejected: User unknown", "4.1.1")
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "A refusal without any reason",
        status_report(failed("550 No.")),
        BOUNCED,
        TEMPORARY,
        BounceReason.UNKNOWN,
    ),
    Shape(
        "Null MX",
        status_report(
            failed("556 5.1.10 Recipient address has null MX", "5.1.10"),
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_MAIL_ACCEPTED,
    ),
    Shape(
        "Two recipients, the second one failed",
        status_report(
            "Final-Recipient: rfc822; other@contoso.edu\nAction: relayed\nStatus: 2.1.5\n\n"
            + failed("550 5.1.1 User unknown", "5.1.1")
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Delay",
        status_report(
            f"Final-Recipient: rfc822; {STUDENT}\nAction: delayed\nStatus: 4.4.1\n"
            "Diagnostic-Code: X-Postfix; connect to mx.contoso.edu[192.0.2.25]:25:"
            " No route to host\nWill-Retry-Until: Sun, 5 May 2030 23:34:45 +0000\n",
            "THIS IS A WARNING ONLY. YOU DO NOT NEED TO RESEND YOUR MESSAGE.",
            subject="Delayed Mail (still being retried)",
        ),
        DEFERRED,
        TEMPORARY,
        BounceReason.NETWORK,
    ),
    Shape(
        "Delay, although the domain does not exist",
        status_report(
            f"Final-Recipient: rfc822; {STUDENT}\nAction: delayed\nStatus: 4.0.0\n"
            "Diagnostic-Code: smtp; No MX found for domain\n",
        ),
        DEFERRED,
        TEMPORARY,
        BounceReason.NO_SUCH_HOST,
    ),
    Shape(
        "Success",
        status_report(
            f"Final-Recipient: rfc822; {STUDENT}\nAction: delivered\nStatus: 2.0.0\n",
            "Your message was successfully delivered to the destination(s) listed below.",
            subject="Successful Mail Delivery Report",
        ),
        FeedbackKind.DELIVERED,
        IGNORE,
        BounceReason.DELIVERED,
    ),
    Shape(
        "Only the headers were returned, in upper case",
        multipart(
            "multipart/report; report-type=delivery-status",
            ("text/plain", "Your message could not be delivered.\n"),
            ("message/delivery-status", failed("550 5.1.1 User unknown", "5.1.1")),
            ("text/rfc822-headers", ORIGINAL.upper()),
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Nothing was returned: the token is in the address of the report",
        multipart(
            "multipart/report; report-type=delivery-status",
            ("text/plain", "Your message could not be delivered.\n"),
            ("message/delivery-status", failed("550 5.1.1 User unknown", "5.1.1")),
            to=f"B+{LONG_TOKEN.upper()}@BOUNCE.NORTHWIND.EXAMPLE",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
        delivery=LONG_TOKEN,
    ),
    Shape(
        "The token went through SRS and BATV",
        multipart(
            "multipart/report; report-type=delivery-status",
            ("text/plain", "Your message could not be delivered.\n"),
            ("message/delivery-status", failed("550 5.1.1 User unknown", "5.1.1")),
            to=f"prvs=12345abcde=SRS0=ab=cd=northwind.example=b+{LONG_TOKEN}@fabrikam.example",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
        delivery=LONG_TOKEN,
    ),
    Shape(
        "Fields in the text, because the boundary was lost",
        status_report(failed("552 5.2.2 Mailbox full", "5.2.2")).replace(b"boundary=", b"border="),
        BOUNCED,
        TEMPORARY,
        BounceReason.MAILBOX_FULL,
    ),
    Shape(
        "A double bounce: our bounce address was refused, too",
        status_report(
            failed("550 5.1.1 User unknown", "5.1.1", BOUNCE_ADDRESS),
            original=text(
                f"""
                Return-Path: <>
                From: MAILER-DAEMON@mx.contoso.edu
                To: {BOUNCE_ADDRESS}
                Subject: Undelivered Mail Returned to Sender

                Your message could not be delivered.
                """
            ),
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
        recipient=BOUNCE_ADDRESS,
    ),
]
