"""Reports of servers and gateways that say more, or less, than the reply they quote."""

from __future__ import annotations

import base64

from postroom.domain.feedback import BounceReason, FeedbackKind
from tests.unit.bounces.mail_shapes import (
    BOUNCED,
    DEAD,
    DEFERRED,
    IGNORE,
    ORIGINAL,
    OURS,
    STUDENT,
    TEMPORARY,
    Shape,
    failed,
    mail,
    status_report,
)

SENDMAIL = f"""
   ----- The following addresses had permanent fatal errors -----
<{STUDENT}>

   ----- Transcript of session follows -----
... while talking to mx.contoso.edu.:
>>> %s
<<< %s
550 5.1.1 <{STUDENT}>... User unknown

   ----- Original message follows -----

{ORIGINAL}"""

HMAIL = f"""
Your message did not reach some or all of the intended recipients.

The following recipient(s) could not be reached:

{STUDENT}
   Error Type: SMTP
   %s

hMailServer

{ORIGINAL}"""

CHINESE_SUBJECT = base64.b64encode("系统退信".encode("gb2312")).decode()

SERVER_SHAPES = [
    Shape(
        "Sendmail's conclusion from a refused IP address",
        mail(SENDMAIL % (f"RCPT To:<{STUDENT}>", "550 IP address listed")),
        BOUNCED,
        OURS,
        BounceReason.BAD_SENDER,
    ),
    Shape(
        "Sendmail's conclusion from a reply without a reason",
        mail(SENDMAIL % (f"RCPT To:<{STUDENT}>", "550 No.")),
        BOUNCED,
        TEMPORARY,
        BounceReason.UNKNOWN,
    ),
    Shape(
        "Sendmail's conclusion from a dead address",
        mail(SENDMAIL % (f"RCPT To:<{STUDENT}>", "550-We have\n<<< 550 no such person")),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "Cisco's label in front of another server's reply",
        status_report(failed("5.1.0 - Unknown address error 554-'Spam?' (delivery attempts: 0)")),
        BOUNCED,
        OURS,
        BounceReason.SPAM,
    ),
    Shape(
        "A relay's status without the reply, which only the text has",
        status_report(
            f"Final-Recipient: rfc822; {STUDENT}\nAction: failed\nStatus: 5.1.1\n",
            f"<{STUDENT}>: mx.contoso.edu said: 554 Your server is on our block list",
        ),
        BOUNCED,
        OURS,
        BounceReason.BLOCKED,
    ),
    Shape(
        "A temporary status under a heading that sounds final",
        status_report(
            f"Final-Recipient: rfc822; {STUDENT}\nAction: failed\nStatus: 4.0.0\n",
            "** Address not found **",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.NO_SUCH_USER,
        status="4.0.0",
    ),
    Shape(
        "A reason in a sentence, without any code",
        mail(
            f"Your message to {STUDENT} was stopped because it breaks our policy.\n\n{ORIGINAL}",
            subject="Message rejected",
        ),
        BOUNCED,
        OURS,
        BounceReason.POLICY,
    ),
    Shape(
        "Your mail, which is no SMTP command",
        mail(
            f"Your mail to {STUDENT} could not be delivered: user unknown\n\n{ORIGINAL}",
            subject="Undeliverable mail",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "PowerMTA, a failure that it will not continue to try",
        mail(
            f"<{STUDENT}>: delivery failed; will not continue trying\n\n{ORIGINAL}",
            subject="Delivery report",
        ),
        BOUNCED,
        TEMPORARY,
        BounceReason.UNKNOWN,
    ),
    Shape(
        "MDaemon's transcript of a refused greeting",
        mail(
            """
            --- Session Transcript ---
             Thu 2026-01-01 10:00:01: <-- 220 mx.contoso.edu ESMTP
             Thu 2026-01-01 10:00:01: --> EHLO mx.fabrikam.example
             Thu 2026-01-01 10:00:01: <-- 554 5.7.1 [192.0.2.9] refused, no valid rDNS
             Thu 2026-01-01 10:00:01: --> QUIT
            --- End Transcript ---
            : No such user
            """,
            sender="MDaemon at mx.fabrikam.example <MDaemon@mx.fabrikam.example>",
            subject="Permanent Delivery Failure",
            to=f"b+{'m' * 32}@bounce.northwind.example",
        ),
        BOUNCED,
        OURS,
        BounceReason.AUTHENTICATION,
        recipient="",
        delivery="m" * 32,
    ),
    Shape(
        "hMailServer, unknown account",
        mail(HMAIL % "Remote server replied: 550 Unknown account"),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "hMailServer, no connection to the recipient's server",
        mail(HMAIL % "Connection to recipients server failed.\n   Error: The host was not found."),
        BOUNCED,
        TEMPORARY,
        BounceReason.NETWORK,
    ),
    Shape(
        "GroupWise, mailbox size limit",
        mail(f"The message was undeliverable to:\n\t{STUDENT} (mailbox size limit)\n\n{ORIGINAL}"),
        BOUNCED,
        TEMPORARY,
        BounceReason.MAILBOX_FULL,
    ),
    Shape(
        "Exchange, a delay in German without fields",
        mail(
            f"Diese Nachricht wurde noch nicht zugestellt:\n\n{STUDENT}\n\n{ORIGINAL}",
            sender="Microsoft Outlook <MicrosoftExchange329e71ec@fabrikam.example>",
            subject="Zustellung verzögert: Vorlesungen",
        ),
        DEFERRED,
        TEMPORARY,
        BounceReason.DELAYED,
    ),
    Shape(
        "Sendmail, a success report without fields",
        mail(
            f"""
            ----- The following addresses had successful delivery notifications -----
            <{STUDENT}>  (successfully delivered to mailbox)

            {ORIGINAL.replace(chr(10), chr(10) + " " * 12)}
            """,
            subject="Return receipt",
        ),
        FeedbackKind.DELIVERED,
        IGNORE,
        BounceReason.DELIVERED,
    ),
    Shape(
        "A mailing list rejects a post",
        mail(
            f"""
            Your request to the news@lists.fabrikam.example mailing list has been
            rejected by the list moderator: only members may post.

            {ORIGINAL.replace(chr(10), chr(10) + " " * 12)}
            """,
            sender="news-bounces@lists.fabrikam.example",
            subject="Request to mailing list News rejected",
        ),
        BOUNCED,
        OURS,
        BounceReason.BAD_SENDER,
        recipient="news@lists.fabrikam.example",
    ),
    Shape(
        "A Chinese report in its own charset, with a padded subject",
        mail(
            f"您的邮件被退回来了\n{STUDENT}\n收件人邮箱不存在\n\n{ORIGINAL}",
            sender="postmaster@mx.fabrikam.example",
            subject=f"=?gb2312?B?{CHINESE_SUBJECT}?=",
            more="Content-Type: text/plain; charset=gb2312",
            encoding="gb2312",
        ),
        BOUNCED,
        DEAD,
        BounceReason.NO_SUCH_USER,
    ),
    Shape(
        "A parcel that could not be delivered",
        mail(
            "We were unable to deliver your parcel.",
            sender="Parcels <info@parcels.example>",
            subject="Delivery failed: nobody at home",
        ),
        None,
        IGNORE,
        BounceReason.NOT_FEEDBACK,
        recipient="",
        delivery="",
    ),
]
