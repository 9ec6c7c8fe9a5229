"""A user of the admin pages, with a role that decides what they may do."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import _, pgettext

PASSWORD_CHARS_MIN = 10
PASSWORD_CHARS_MAX = 200  # longer ones only cost hashing time
INVITATION_LASTS = timedelta(days=2)
SESSION_IDLE = timedelta(days=14)  # signed out after this time without a visit
SESSION_LASTS = timedelta(days=90)  # and after this time in any case
BROWSER_CHARS_MAX = 120


class Role(StrEnum):
    """Each role includes the ones before it."""

    VIEWER = "viewer"  # see everything except secrets
    EDITOR = "editor"  # lists, subscribers, messages
    OWNER = "owner"  # users, keys, limits, storage

    @property
    def rank(self) -> int:
        return list(Role).index(self)

    def covers(self, other: Role) -> bool:
        return self.rank >= other.rank


ROLE_TEXTS = {
    Role.VIEWER: pgettext("a role", "viewer"),
    Role.EDITOR: pgettext("a role", "editor"),
    Role.OWNER: pgettext("a role", "owner"),
}


class User(msgspec.Struct, frozen=True, kw_only=True):
    address: str  # as typed
    key: str  # its identity, as a storage key
    role: Role
    password: str  # argon2 hash
    created_at: datetime
    sessions_from: datetime  # older sessions are over: new password, or signed out everywhere


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One browser of one user; only its cookie has the token, storage only the token's hash."""

    id: str  # the hash
    user: str  # the user's key
    began_at: datetime
    seen_at: datetime  # to the minute
    client: str
    browser: str

    def is_over(self, user: User, now: datetime) -> bool:
        return (
            self.began_at < user.sessions_from
            or now > self.seen_at + SESSION_IDLE
            or now > self.began_at + SESSION_LASTS
        )


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """A link that works once; the person who opens it chooses a password."""

    role: Role
    address: str = ""  # empty: the person enters it (the first administrator)
    key: str = ""  # the address's identity
    until: datetime


def check_password(password: str, address: str) -> str:
    if len(password) < PASSWORD_CHARS_MIN:
        raise BadInput(
            _(
                "The password is too short. Use at least {limit} characters, such as four words.",
                limit=PASSWORD_CHARS_MIN,
            )
        )
    if len(password) > PASSWORD_CHARS_MAX:
        raise BadInput(_("The password is over {limit} characters.", limit=PASSWORD_CHARS_MAX))
    if len(set(password)) < 4:
        raise BadInput(_("The password is too repetitive. Choose one that is harder to guess."))
    if password.casefold() in (address.casefold(), address.casefold().partition("@")[0]):
        raise BadInput(_("The password is your address. Choose one that nobody can guess."))
    return password
