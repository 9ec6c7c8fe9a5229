"""The consent record: what somebody agreed to, when, from where, and what they were shown.

Append-only. It outlives the subscription, because it is needed most after the subscription ends. It
stores structured data, which is shown as sentences in the reader's language.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.texts import Text, _, pgettext

CLIENT_CHARS_MAX = 45  # an IPv6 address at its longest
SHOWN_CHARS_MAX = 2000  # a page's sentences, not a page


class Event(StrEnum):
    """What happened, in the order in which events of the same moment are shown."""

    IMPORTED = "imported"
    ADDED = "added"  # by an administrator
    ASKED = "asked"  # signed up
    INVITED = "invited"  # asked to confirm, by an administrator or an import
    MAILED = "mailed"  # the confirmation email was handed over
    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"  # an administrator withdrew the confirmation
    UNSUBSCRIBED = "unsubscribed"
    REMOVED = "removed"  # by an administrator, a bounce or a complaint
    EXPIRED = "expired"  # never confirmed


EVENT_TEXTS = {
    Event.IMPORTED: pgettext("a subscriber was", "imported"),
    Event.ADDED: pgettext("a subscriber was", "added by an administrator"),
    Event.ASKED: pgettext("a subscriber", "signed up"),
    Event.INVITED: pgettext("a subscriber was", "asked to confirm"),
    Event.MAILED: pgettext("to a subscriber", "confirmation email sent"),
    Event.CONFIRMED: pgettext("a subscriber", "confirmed"),
    Event.UNCONFIRMED: pgettext("a subscriber's", "confirmation withdrawn"),
    Event.UNSUBSCRIBED: pgettext("a subscriber", "unsubscribed"),
    Event.REMOVED: pgettext("a subscriber was", "removed"),
    Event.EXPIRED: pgettext("a subscriber", "never confirmed, deleted"),
}
ORDER = {event: place for place, event in enumerate(Event)}


class SourceKind(StrEnum):
    COMMAND_LINE = "command_line"
    KEY = "key"  # a client's site, known by its access key
    USER = "user"  # an administrator on the admin pages
    FORM = "form"
    LINK = "link"
    ONE_CLICK = "one_click"  # RFC 8058
    CONFIRMATION_EMAIL = "confirmation_email"
    IMPORT = "import"
    NOT_CONFIRMED = "not_confirmed"  # in time
    BOUNCE = "bounce"
    COMPLAINT = "complaint"  # reported as spam at the mailbox provider
    PROVIDER = "provider"  # unsubscribed at the email provider


class ConsentSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """What caused a change: its kind, and the details of that kind."""

    kind: SourceKind
    name: str = ""  # the id of a key, the address of a user, the file of an import
    basis: str = ""  # of an import: why these people may be mailed
    all_confirmed: bool = False  # the basis of an import that only says that all have confirmed
    new_address: str = ""  # of a change of address, in the record of the old one
    old_address: str = ""
    new_list: str = ""  # of a move, in the record of the old list
    old_list: str = ""


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    event: Event
    at: datetime
    source: ConsentSource
    client: str = ""
    shown: str = ""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a change comes from: a consent without the event and the time."""

    source: ConsentSource
    client: str = ""  # IP address, where there is one
    shown: str = ""  # the text the person read, where there was one

    def consent(self, event: Event, at: datetime) -> Consent:
        client = self.client[:CLIENT_CHARS_MAX]
        shown = self.shown[:SHOWN_CHARS_MAX]
        return Consent(event=event, at=at, source=self.source, client=client, shown=shown)


COMMAND_LINE = Trace(source=ConsentSource(SourceKind.COMMAND_LINE))


def by_key(key_id: str, client: str) -> Trace:
    """A client's site; the IP address is the site's."""
    return Trace(source=ConsentSource(SourceKind.KEY, key_id), client=client)


def by_user(address: str, client: str) -> Trace:
    return Trace(source=ConsentSource(SourceKind.USER, address), client=client)


_FIXED_TEXTS = {
    SourceKind.COMMAND_LINE: _("command line"),
    SourceKind.FORM: _("sign-up form"),
    SourceKind.LINK: pgettext("a subscriber used a", "link in an email"),
    SourceKind.ONE_CLICK: _("one-click unsubscribe"),
    SourceKind.CONFIRMATION_EMAIL: _("confirmation email"),
    SourceKind.NOT_CONFIRMED: _("not confirmed in time"),
    SourceKind.BOUNCE: _("email bounced"),
    SourceKind.COMPLAINT: _("reported as spam"),
    SourceKind.PROVIDER: _("unsubscribed at the email provider"),
}


def source_text(source: ConsentSource) -> Text:
    """The source as people read it."""
    by = _kind_text(source)
    if source.new_address:
        return _("{by}, address changed to {address}", by=by, address=source.new_address)
    if source.old_address:
        return _("{by}, address changed from {address}", by=by, address=source.old_address)
    if source.new_list:
        return _("{by}, moved to the list {name}", by=by, name=source.new_list)
    if source.old_list:
        return _("{by}, moved from the list {name}", by=by, name=source.old_list)
    return by


def _kind_text(source: ConsentSource) -> Text:
    match source.kind:
        case SourceKind.KEY:
            return _("key {id}", id=source.name)
        case SourceKind.USER:
            return _("user {name}", name=source.name)
        case SourceKind.IMPORT if source.basis:
            return _("import of {file}: {basis}", file=source.name, basis=source.basis)
        case SourceKind.IMPORT if source.all_confirmed:
            return _("import of {file}: all of them have confirmed", file=source.name)
        case SourceKind.IMPORT if source.name:
            return _("import of {file}", file=source.name)
        case SourceKind.IMPORT:
            return pgettext("a subscriber was added by an", "import")
        case kind:
            return _FIXED_TEXTS[kind]
