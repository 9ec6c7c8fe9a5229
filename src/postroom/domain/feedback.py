"""What comes back about an email that was sent, in one vocabulary for all servers and providers."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec


class FeedbackKind(StrEnum):
    """What happened to the email after it was handed over."""

    DELIVERED = "delivered"  # the recipient's server took it
    DEFERRED = "deferred"  # not accepted yet, and no bounce: the server in charge keeps trying
    BOUNCED = "bounced"  # not delivered, and nobody tries again
    COMPLAINED = "complained"  # the recipient reported it as spam
    UNSUBSCRIBED = "unsubscribed"  # at the provider, not by our link
    OPENED = "opened"
    CLICKED = "clicked"


class BounceClass(StrEnum):
    """Whose problem it is, which decides what happens to the person."""

    DEAD = "dead"  # the address or its host does not exist
    TEMPORARY = "temporary"  # full, slow, greylisted: it may work another day
    OURS = "ours"  # our reputation, authentication or content; says nothing about the person
    COMPLAINT = "complaint"
    IGNORE = "ignore"  # an automatic reply, a success report, no feedback at all


class BounceReason(StrEnum):
    """Why a server refused an email, in the words of the trade."""

    NO_SUCH_USER = "no_such_user"
    NO_SUCH_HOST = "no_such_host"
    MOVED = "moved"
    NO_MAIL_ACCEPTED = "no_mail_accepted"  # the domain or mailbox takes no mail at all (null MX)
    MAILBOX_FULL = "mailbox_full"
    SUSPENDED = "suspended"  # the mailbox is disabled
    FILTERED = "filtered"  # refused by the recipient's own rules
    EXPIRED = "expired"  # tried for too long
    NETWORK = "network"  # no connection, no route, DNS trouble
    BUSY = "busy"  # rate limits, greylisting, too many connections
    SYSTEM = "system"  # the receiving system is broken
    TOO_LARGE = "too_large"
    SPAM = "spam"  # the content was taken for spam or a virus
    BLOCKED = "blocked"  # our address, network or domain is on a block list or has a bad name
    AUTHENTICATION = "authentication"  # SPF, DKIM, DMARC, reverse DNS, login
    POLICY = "policy"
    BAD_SENDER = "bad_sender"  # our sender address was refused
    BAD_MESSAGE = "bad_message"  # malformed, or against a rule of the receiving system
    COMPLAINT = "complaint"
    AUTOMATIC_REPLY = "automatic_reply"
    DELAYED = "delayed"  # a notice that the server still tries
    DELIVERED = "delivered"  # a success report
    NOT_FEEDBACK = "not_feedback"  # some other email
    UNKNOWN = "unknown"


class Classification(msgspec.Struct, frozen=True):
    """What a server's refusal means, and by what it was recognized."""

    bounce_class: BounceClass
    reason: BounceReason
    status: str = ""  # enhanced code (RFC 3463), if there was one
    words: str = ""  # the server's own, one printable line


class FeedbackEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of feedback about one email, whoever reported it."""

    id: str  # unique for its source, the same if it is reported again
    kind: FeedbackKind
    at: datetime
    source: str  # "sendgrid", "ses", "acs", "mailgun", "postmark", "mailbox" or "smtp"
    delivery: str = ""  # the delivery token, if the report carries one
    address: str = ""  # the recipient, as reported
    classification: Classification | None = None  # of a bounce, a deferral or a complaint
    provider_id: str = ""  # the provider's own name for the email
