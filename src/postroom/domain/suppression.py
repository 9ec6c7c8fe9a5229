"""The suppression list: addresses that get no more email, with the reason and the scope."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.consent import ConsentSource, SourceKind, source_text
from postroom.domain.errors import BadInput
from postroom.domain.feedback import SMTP_SOURCE
from postroom.domain.texts import Text, _, pgettext

LISTS_MAX = 100  # that one entry names; after that it covers all bulk email
NOTE_CHARS_MAX = 500


class SuppressionScope(StrEnum):
    """Which emails an address no longer gets, from the narrowest to the widest."""

    LIST = "list"  # messages to the lists that the entry names
    BULK = "bulk"  # messages to any list
    ALL = "all"  # also confirmation emails, and test emails to a user with this address


class SuppressionReason(StrEnum):
    DEAD = "dead"  # the address or its host does not exist
    KEEPS_BOUNCING = "keeps_bouncing"  # temporary trouble for too long
    COMPLAINED = "complained"
    ADDED = "added"  # by a person
    IMPORTED = "imported"
    ERASED = "erased"  # at the person's request; only a hash of the address is kept


SCOPE_TEXTS = {
    SuppressionScope.LIST: pgettext("suppressed for", "some lists"),
    SuppressionScope.BULK: pgettext("suppressed for", "all lists"),
    SuppressionScope.ALL: pgettext("suppressed for", "all email"),
}
REASON_TEXTS = {
    SuppressionReason.DEAD: pgettext("an address is suppressed:", "does not exist"),
    SuppressionReason.KEEPS_BOUNCING: pgettext("an address is suppressed:", "keeps bouncing"),
    SuppressionReason.COMPLAINED: pgettext("an address is suppressed:", "reported spam"),
    SuppressionReason.ADDED: pgettext("an address is suppressed:", "added by a person"),
    SuppressionReason.IMPORTED: pgettext("an address is suppressed:", "imported"),
    SuppressionReason.ERASED: pgettext("an address is suppressed:", "erased"),
}
_SOURCE_TEXTS: dict[str, Text | str] = {
    SMTP_SOURCE: pgettext("reported by", "the mail server, while sending"),
    "mailbox": pgettext("reported by", "an email to the bounce address"),
    "acs": "Azure Communication Services",
    "mailgun": "Mailgun",
    "postmark": "Postmark",
    "sendgrid": "SendGrid",
    "ses": "Amazon SES",
}
_SOURCE_KINDS = {
    SourceKind.COMMAND_LINE: "command line",
    SourceKind.IMPORT: "file",
    SourceKind.KEY: "key",
    SourceKind.USER: "user",
}
_WIDTH = {scope: width for width, scope in enumerate(SuppressionScope)}


class Suppression(msgspec.Struct, frozen=True, kw_only=True):
    """One address that is not mailed, with the evidence."""

    key: str  # address key; "" if the person was erased
    address: str = ""
    scope: SuppressionScope
    reason: SuppressionReason
    since: datetime
    lists: str = ""  # names, with a comma between; for the scope LIST
    source: str = ""  # who reported or added it: "smtp", "sendgrid", "user …"
    delivery: str = ""  # the token of the delivery that led to it
    status: str = ""  # enhanced code
    words: str = ""  # the server's
    note: str = ""  # a person's
    mark: int = 0  # of an erased address: what `mark_of` returned for its key

    def covers(self, list_name: str) -> bool:
        """Whether messages to this list are stopped."""
        return self.scope is not SuppressionScope.LIST or list_name in self.lists.split(",")

    @property
    def covers_single_mails(self) -> bool:
        return self.scope is SuppressionScope.ALL


def source_of(source: ConsentSource) -> str:
    """Who added an entry, as it is stored: “user ada@contoso.edu”."""
    return f"{_SOURCE_KINDS.get(source.kind, source.kind.value)} {source.name}".rstrip()


def suppression_source_text(source: str) -> Text | str:
    """The source of an entry as people read it."""
    for kind, prefix in _SOURCE_KINDS.items():
        if source == prefix or source.startswith(f"{prefix} "):
            return source_text(ConsentSource(kind, source.removeprefix(prefix).strip()))
    return _SOURCE_TEXTS.get(source, source)


def check_scope(text: str) -> SuppressionScope:
    if text not in set(SuppressionScope):
        raise BadInput(_("Choose what is stopped: list, bulk or all."))
    return SuppressionScope(text)


def check_note(text: str) -> str:
    note = " ".join(text.split())
    if len(note) > NOTE_CHARS_MAX:
        raise BadInput(_("The note is over {limit} characters; shorten it.", limit=NOTE_CHARS_MAX))
    return note


def check_lists(scope: SuppressionScope, names: Iterable[str]) -> str:
    """The names as stored in an entry; BadInput unless only the scope LIST has some."""
    once = sorted(set(names))
    if scope is SuppressionScope.LIST and not once:
        raise BadInput(_("Name at least one list, or choose another scope."))
    if scope is not SuppressionScope.LIST and once:
        raise BadInput(_("Name lists only with the scope “list”."))
    if len(once) > LISTS_MAX:
        raise BadInput(_("An entry can name at most {limit} lists.", limit=LISTS_MAX))
    return ",".join(once)


def mark_of(key: str) -> int:
    """32 bits of an address key, by which a filter finds those that may be suppressed."""
    return zlib.crc32(key.encode())


def widened(known: Suppression | None, new: Suppression) -> Suppression:
    """Both entries in one: the wider scope with its reason; the older one if they are equal."""
    if known is None:
        return new
    if _WIDTH[new.scope] > _WIDTH[known.scope]:
        return new
    if known.scope is not SuppressionScope.LIST or new.scope is not SuppressionScope.LIST:
        return known
    names = sorted({*known.lists.split(","), *new.lists.split(",")} - {""})
    if len(names) > LISTS_MAX:
        return msgspec.structs.replace(known, scope=SuppressionScope.BULK, lists="")
    return msgspec.structs.replace(known, lists=",".join(names))
