"""Mails that come back about our emails, as servers and people send them."""

from __future__ import annotations

from textwrap import dedent

BOUNCES = "bounces.contoso.edu"


def report(
    token: str,
    recipient: str = "student1@contoso.edu",
    *,
    action: str = "failed",
    status: str = "5.1.1",
    words: str = "550 5.1.1 No such user",
    id_: str = "",
) -> bytes:
    """A delivery status report (RFC 3464) to the address of the delivery."""
    return _mail(
        f"""
        From: Mail Delivery System <MAILER-DAEMON@mx.fabrikam.example>
        To: b+{token}@{BOUNCES}
        Message-ID: <{id_ or f"report-{token}-{action}"}@mx.fabrikam.example>
        Subject: Delivery Status Notification
        MIME-Version: 1.0
        Content-Type: multipart/report; report-type=delivery-status; boundary="b"

        --b
        Content-Type: text/plain

        Your email to <{recipient}>: {words}

        --b
        Content-Type: message/delivery-status

        Reporting-MTA: dns; mx.fabrikam.example

        Final-Recipient: rfc822; {recipient}
        Action: {action}
        Status: {status}
        Diagnostic-Code: smtp; {words}

        --b--
        """
    )


def complaint(token: str, recipient: str = "student1@contoso.edu") -> bytes:
    """A feedback report (RFC 5965)."""
    return _mail(
        f"""
        From: Feedback <feedback@fabrikam.example>
        To: abuse@contoso.edu
        Message-ID: <complaint-{token}@fabrikam.example>
        Subject: FW: Lectures
        MIME-Version: 1.0
        Content-Type: multipart/report; report-type=feedback-report; boundary="b"

        --b
        Content-Type: text/plain

        This is a report about an email that a user called spam.

        --b
        Content-Type: message/feedback-report

        Feedback-Type: abuse
        User-Agent: Fabrikam/1.0
        Version: 1
        Original-Rcpt-To: <{recipient}>

        --b
        Content-Type: message/rfc822

        Message-ID: <{token}@contoso.edu>
        From: History <history@contoso.edu>
        To: {recipient}
        Subject: Lectures

        Hello
        --b--
        """
    )


def unsubscription(token: str, sender: str = "student1@contoso.edu") -> bytes:
    """What a mail program sends to a mailto: address of List-Unsubscribe."""
    return _mail(
        f"""
        From: {sender}
        To: b+{token}@{BOUNCES}
        Message-ID: <unsubscribe-{token}@phone.example>
        Subject: unsubscribe

        """
    )


def automatic_reply(token: str) -> bytes:
    return _mail(
        f"""
        From: student1@contoso.edu
        To: history@contoso.edu
        Message-ID: <away-{token}@contoso.edu>
        In-Reply-To: <{token}@contoso.edu>
        Auto-Submitted: auto-replied
        Subject: Out of office

        I am away until Monday.
        """
    )


def answer(token: str) -> bytes:
    """A person writes back."""
    return _mail(
        f"""
        From: student1@contoso.edu
        To: history@contoso.edu
        Message-ID: <answer-{token}@contoso.edu>
        In-Reply-To: <{token}@contoso.edu>
        Subject: Re: Lectures

        Thank you. Which room is it?
        """
    )


def forged(token: str) -> str:
    """A token of the same form whose MAC is wrong."""
    return token[:-1] + ("a" if token[-1] != "a" else "b")


def _mail(text: str) -> bytes:
    return dedent(text).lstrip("\n").replace("\n", "\r\n").encode()
