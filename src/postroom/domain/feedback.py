"""Reports about emails that were sent, in one vocabulary for all servers and providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from postroom.domain.texts import _, pgettext

SMTP_SOURCE = "smtp"  # events that a sender made from a server's reply
MAILBOX_SOURCE = "mailbox"  # events from mails in the bounce mailbox


class FeedbackKind(StrEnum):
    """What happened to the email after it was handed over."""

    ACCEPTED = "accepted"  # the provider took it over
    DELIVERED = "delivered"  # the recipient's server took it
    DEFERRED = "deferred"  # not accepted yet, and no bounce: the server in charge keeps trying
    BOUNCED = "bounced"  # not delivered, and nobody tries again
    COMPLAINED = "complained"  # the recipient reported it as spam
    UNSUBSCRIBED = "unsubscribed"  # at the provider, not by our link
    OPENED = "opened"
    CLICKED = "clicked"


KIND_TEXTS = {
    FeedbackKind.ACCEPTED: pgettext("an email was", "accepted by the provider"),
    FeedbackKind.DELIVERED: pgettext("an email was", "delivered"),
    FeedbackKind.DEFERRED: pgettext("an email was", "delayed"),
    FeedbackKind.BOUNCED: pgettext("an email has", "bounced"),
    FeedbackKind.COMPLAINED: pgettext("somebody has", "reported it as spam"),
    FeedbackKind.UNSUBSCRIBED: pgettext("somebody has", "unsubscribed through the provider"),
    FeedbackKind.OPENED: pgettext("an email was", "opened"),
    FeedbackKind.CLICKED: pgettext("a link was", "clicked"),
}


class BounceClass(StrEnum):
    """Whose problem it is, which decides what happens to the person."""

    DEAD = "dead"  # the address or its host does not exist
    TEMPORARY = "temporary"  # full, slow, greylisted: it may work another day
    OURS = "ours"  # our reputation, authentication or content; says nothing about the person
    COMPLAINT = "complaint"
    IGNORE = "ignore"  # an automatic reply, a success report, no feedback at all


CLASS_TEXTS = {
    BounceClass.DEAD: pgettext("a bounce means", "address does not exist"),
    BounceClass.TEMPORARY: pgettext("a bounce means", "temporary problem"),
    BounceClass.OURS: pgettext("a bounce means", "refused because of the sender or the content"),
    BounceClass.COMPLAINT: pgettext("a bounce means", "reported as spam"),
    BounceClass.IGNORE: pgettext("a bounce means", "nothing to act on"),
}


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
    SYSTEM = "system"  # the receiving system has a problem
    TOO_LARGE = "too_large"
    SPAM = "spam"  # the content was classified as spam or a virus
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


REASON_TEXTS = {
    BounceReason.NO_SUCH_USER: _("no such mailbox"),
    BounceReason.NO_SUCH_HOST: _("no such domain"),
    BounceReason.MOVED: _("the recipient has moved"),
    BounceReason.NO_MAIL_ACCEPTED: _("accepts no email at all"),
    BounceReason.MAILBOX_FULL: _("mailbox full"),
    BounceReason.SUSPENDED: _("mailbox disabled"),
    BounceReason.FILTERED: _("refused by the recipient’s own rules"),
    BounceReason.EXPIRED: _("given up after many attempts"),
    BounceReason.NETWORK: _("network or DNS problem"),
    BounceReason.BUSY: _("too busy, or too many emails at once"),
    BounceReason.SYSTEM: _("the receiving system has a problem"),
    BounceReason.TOO_LARGE: _("email too large"),
    BounceReason.SPAM: _("classified as spam"),
    BounceReason.BLOCKED: _("your server or domain is blocked"),
    BounceReason.AUTHENTICATION: _("SPF, DKIM, DMARC or reverse DNS"),
    BounceReason.POLICY: _("against the receiving system’s policy"),
    BounceReason.BAD_SENDER: _("the sender address was refused"),
    BounceReason.BAD_MESSAGE: _("the email is malformed"),
    BounceReason.COMPLAINT: _("complaint"),
    BounceReason.AUTOMATIC_REPLY: _("automatic reply"),
    BounceReason.DELAYED: _("delayed, still being tried"),
    BounceReason.DELIVERED: _("delivered after all"),
    BounceReason.NOT_FEEDBACK: _("not about one of our emails"),
    BounceReason.UNKNOWN: _("no reason given"),
}


class Classification(msgspec.Struct, frozen=True):
    """What a server's refusal means, and by what it was recognized."""

    bounce_class: BounceClass
    reason: BounceReason
    status: str = ""  # enhanced code (RFC 3463), if there was one
    words: str = ""  # the server's own, one printable line


class FeedbackEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One report about one email, from any server or provider."""

    id: str  # unique for its source, the same if it is reported again
    kind: FeedbackKind
    at: datetime
    source: str  # "sendgrid", "ses", "acs", "mailgun", "postmark", "mailbox" or "smtp"
    delivery: str = ""  # the delivery token, if the report carries one
    address: str = ""  # the recipient, as reported
    classification: Classification | None = None  # of a bounce, a deferral or a complaint
    provider_id: str = ""  # the provider's own name for the email


class FeedbackEffect(StrEnum):
    """What an event does to the person and to the message."""

    NOTHING = "nothing"
    SUPPRESS = "suppress"  # the address does not exist: no more email from any list
    COMPLAINT = "complaint"  # no more messages from any list
    UNSUBSCRIBE = "unsubscribe"  # from the list of the message
    STRIKE = "strike"  # one of several temporary bounces
    CLEAR_STRIKES = "clear_strikes"
    BLAME_US = "blame_us"  # says nothing about the person


def effect_of(event: FeedbackEvent) -> FeedbackEffect:
    """Decide what an event does; the only place that decides it."""
    match event.kind:
        case FeedbackKind.COMPLAINED if _is_authentication_report(event):
            return FeedbackEffect.BLAME_US
        case FeedbackKind.COMPLAINED:
            return FeedbackEffect.COMPLAINT
        case FeedbackKind.UNSUBSCRIBED:
            return FeedbackEffect.UNSUBSCRIBE
        case FeedbackKind.DELIVERED:
            return FeedbackEffect.CLEAR_STRIKES
        case FeedbackKind.BOUNCED if event.classification:
            return _BOUNCE_EFFECTS[event.classification.bounce_class]
    return FeedbackEffect.NOTHING


def _is_authentication_report(event: FeedbackEvent) -> bool:
    """Whether a filter wrote it, about our signatures (RFC 6591), and not the recipient."""
    found = event.classification
    return found is not None and found.reason is BounceReason.AUTHENTICATION


_BOUNCE_EFFECTS = {
    BounceClass.DEAD: FeedbackEffect.SUPPRESS,
    BounceClass.TEMPORARY: FeedbackEffect.STRIKE,
    BounceClass.OURS: FeedbackEffect.BLAME_US,
    BounceClass.COMPLAINT: FeedbackEffect.COMPLAINT,
    BounceClass.IGNORE: FeedbackEffect.NOTHING,
}


@dataclass(frozen=True)
class FeedbackPolicy:
    """When temporary bounces add up, and when refusals that are our fault pause a message."""

    strikes_max: int = 5
    strikes_days_min: float = 7.0  # between the first and the last of them
    strikes_days_kept: float = 60.0  # a full mailbox of last year says nothing
    pause_share: float = 0.1  # of the emails that have an outcome
    pause_refusals_min: int = 20

    def with_strike(
        self, strikes: Mapping[str, datetime], delivery: str, at: datetime
    ) -> dict[str, datetime]:
        """The strikes that count, with this one; a delivery counts once."""
        oldest = at - timedelta(days=self.strikes_days_kept)
        return {name: when for name, when in strikes.items() if when >= oldest} | {delivery: at}

    def keeps_bouncing(self, strikes: Mapping[str, datetime]) -> bool:
        if len(strikes) < self.strikes_max:
            return False
        span = max(strikes.values()) - min(strikes.values())
        return span >= timedelta(days=self.strikes_days_min)

    def should_pause(self, refused: int, ended: int) -> bool:
        """Whether enough refusals are our fault that sending more would do harm."""
        return refused >= self.pause_refusals_min and refused >= self.pause_share * max(1, ended)
