"""A subscriber: one address on one list. Only verified, active ones are mailed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.confirmation import ConfirmationAttempts
from postroom.domain.consent import ConsentSource
from postroom.domain.errors import AlreadyThere, BadInput
from postroom.domain.texts import _, is_one_line, pgettext

ATTRIBUTES_MAX = 30  # of a subscriber, so that a delivery row stays small
ATTRIBUTE_CHARS_MAX = 500  # of a value, so that a merged line has at most the 998 octets of SMTP
ATTRIBUTES_CHARS_MAX = 8_000  # together, as JSON: 99 deliveries of four-byte letters fit a batch
ATTRIBUTE_NAME_CHARS_MAX = 40
_ATTRIBUTE_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{ATTRIBUTE_NAME_CHARS_MAX - 1}}}")
_RESERVED = frozenset({"email", "unsubscribe_url"})


class InactiveReason(StrEnum):
    """Why somebody is no longer subscribed."""

    UNSUBSCRIBED = "unsubscribed"  # by the link or by one click
    REMOVED = "removed"  # by an administrator
    BOUNCED = "bounced"
    COMPLAINED = "complained"


INACTIVE_TEXTS = {
    InactiveReason.UNSUBSCRIBED: pgettext("a subscriber has", "unsubscribed"),
    InactiveReason.REMOVED: pgettext("a subscriber was", "removed"),
    InactiveReason.BOUNCED: pgettext("emails to a subscriber have", "bounced"),
    InactiveReason.COMPLAINED: pgettext("a subscriber has", "complained"),
}


class SubscriberFilter(StrEnum):
    """Which people of a list to show, export or count."""

    ALL = "all"
    ACTIVE = "active"
    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    INACTIVE = "inactive"

    def fits(self, *, verified: bool, is_inactive: bool) -> bool:
        match self:
            case SubscriberFilter.ALL:
                return True
            case SubscriberFilter.INACTIVE:
                return is_inactive
            case SubscriberFilter.ACTIVE:
                return not is_inactive
            case _:
                return not is_inactive and verified == (self is SubscriberFilter.VERIFIED)


SUBSCRIBER_STATUS_TEXTS = {
    SubscriberFilter.ALL: pgettext("subscribers", "everybody"),
    SubscriberFilter.ACTIVE: pgettext("subscribers", "active"),
    SubscriberFilter.VERIFIED: pgettext("subscribers", "confirmed"),
    SubscriberFilter.UNVERIFIED: pgettext("subscribers", "unconfirmed"),
    SubscriberFilter.INACTIVE: pgettext("subscribers", "inactive"),
}


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    list_name: str
    address: str  # as typed
    key: str  # identity of the address, as a storage key
    guid: str  # part of links; new every time somebody joins
    verified: bool
    since: datetime
    inactive_reason: InactiveReason | None = None  # the row stays, so that no import re-adds them
    attributes: dict[str, str] = {}
    asked_at: datetime | None = None  # when a confirmation was last queued
    asks: str | None = None  # the times at which administrators asked them recently
    expires: bool = False  # signed up themselves and have not confirmed: deleted after a while
    inactive_reason_before: InactiveReason | None = (
        None  # why they were inactive when they signed up again
    )
    moved_to: str | None = None  # the key of their new address, if they changed it
    import_source: ConsentSource | None = None  # of the import that added them
    imported_at: datetime | None = None
    confirmation: ConfirmationAttempts | None = None  # only until the email is accepted


class AlreadySubscribed(AlreadyThere):
    """Somebody has this address on this list, or had it until they unsubscribed."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        if subscriber.inactive_reason is None:
            sentence = _(
                "{address} is already on {name}.",
                address=subscriber.address,
                name=subscriber.list_name,
            )
        else:
            sentence = _(
                "{address} is no longer on {name} ({reason}). Add them again only if they asked "
                "for it.",
                address=subscriber.address,
                name=subscriber.list_name,
                reason=INACTIVE_TEXTS[subscriber.inactive_reason],
            )
        super().__init__(sentence)


def subscription(one: Subscriber) -> InactiveReason | SubscriberFilter:
    """verified, unverified, or why they are inactive: as exports write and imports read it."""
    return one.inactive_reason or (
        SubscriberFilter.VERIFIED if one.verified else SubscriberFilter.UNVERIFIED
    )


def attributes_from(pairs: Iterable[str]) -> dict[str, str]:
    """Parse attributes written as name=value."""
    attributes: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(_("“{pair}” is not an attribute. Write it as name=value.", pair=pair))
        attributes[name.strip()] = value
    return attributes


def clean_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """Attributes as they are stored: checked, and without empty values."""
    kept = {name: value.strip() for name, value in attributes.items() if value.strip()}
    if len(kept) > ATTRIBUTES_MAX:
        raise BadInput(
            _(
                "There are {count} attributes, but a subscriber has at most {limit}.",
                count=len(kept),
                limit=ATTRIBUTES_MAX,
            )
        )
    for name, value in kept.items():
        if not _ATTRIBUTE_NAME.fullmatch(name) or name in _RESERVED:
            raise BadInput(
                _(
                    "“{name}” cannot be an attribute. Use at most {limit} lower-case letters, "
                    "digits and underscores, starting with a letter. The names email and "
                    "unsubscribe_url are reserved.",
                    name=name,
                    limit=ATTRIBUTE_NAME_CHARS_MAX,
                )
            )
        if len(value) > ATTRIBUTE_CHARS_MAX:
            raise BadInput(
                _("{name} is longer than {limit} characters.", name=name, limit=ATTRIBUTE_CHARS_MAX)
            )
        if not is_one_line(value):
            raise BadInput(_("{name} contains a line break or a control character.", name=name))
    if len(msgspec.json.encode(kept).decode()) > ATTRIBUTES_CHARS_MAX:
        raise BadInput(
            _(
                "The attributes have more than {limit} characters in total.",
                limit=ATTRIBUTES_CHARS_MAX,
            )
        )
    return kept
