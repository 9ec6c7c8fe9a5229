"""A user: somebody who works on the admin pages, with a role that says how far."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import _, pgettext

PASSWORD_CHARS_MIN = 10
PASSWORD_CHARS_MAX = 200  # more would only give the hash function more to do
INVITATION_LASTS = timedelta(days=2)
SESSION_IDLE = timedelta(days=14)  # signed out after so long without a visit
SESSION_LASTS = timedelta(days=90)  # and after so long in any case
BROWSER_CHARS_MAX = 120


class Role(StrEnum):
    """Each may do what the ones before it may."""

    VIEWER = "viewer"  # look at everything but secrets
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
    sessions_from: datetime  # older sessions are over: the password changed, or "everywhere"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One browser of one user. The token is in its cookie alone; storage has the token's hash."""

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
    """A link that works once: whoever opens it chooses a password."""

    role: Role
    address: str = ""  # empty: whoever comes says who they are (the first administrator)
    key: str = ""  # the address's identity
    until: datetime


def check_password(password: str, address: str) -> str:
    if len(password) < PASSWORD_CHARS_MIN:
        raise BadInput(
            _(
                "The password is too short: take at least {limit} characters, for example four "
                "words.",
                limit=PASSWORD_CHARS_MIN,
            )
        )
    if len(password) > PASSWORD_CHARS_MAX:
        raise BadInput(
            _("The password is longer than {limit} characters.", limit=PASSWORD_CHARS_MAX)
        )
    if len(set(password)) < 4:
        raise BadInput(_("The password repeats itself: take one that is harder to guess."))
    if password.casefold() in (address.casefold(), address.casefold().partition("@")[0]):
        raise BadInput(_("The password is your address: take one that nobody can guess."))
    return password
