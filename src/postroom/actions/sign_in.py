"""Action, sign in: decide who may work on the admin pages.

Before: there is no user yet, and `serve` prints a link; or a user invites another; or somebody
types a password.
After: a session, whose token is in one browser's cookie and nowhere else.
Dies half-way:
    an invitation used, no user created    the link is void: `serve` prints a new one while there is
                                           no user, else an owner invites again
    a user created, no session begun       sign in with the password just chosen
    a password changed                     one write, which also ends every older session
Commit point: the user's row; for a session, its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import argon2
import msgspec

from postroom.domain.address import Address, BadAddress, parse_address
from postroom.domain.errors import BadInput, WrongState
from postroom.domain.texts import _
from postroom.domain.user import (
    BROWSER_CHARS_MAX,
    INVITATION_LASTS,
    PASSWORD_CHARS_MAX,
    Invitation,
    Role,
    Session,
    User,
    check_password,
)
from postroom.records import users
from postroom.records.retry import retry_on_conflict
from postroom.records.stored import Stored
from postroom.storage.port import Tables

FIRST_LINK_LASTS = timedelta(hours=12)
HASHES_AT_ONCE = 2  # each takes 64 MiB and a core for 50 ms
_TOKEN_BYTES = 32
T = TypeVar("T")
hasher = argon2.PasswordHasher()  # tests set a cheaper one
_hashing = asyncio.Semaphore(HASHES_AT_ONCE)


class WrongPassword(BadInput):
    """A signed-in user typed a wrong current password."""


class Browser(msgspec.Struct, frozen=True):
    """The browser of a session, as shown in the list of sessions."""

    client: str
    words: str


async def first_link(tables: Tables, now: datetime) -> str | None:
    """Return a token for the first user; None once there is one. Older tokens are void."""
    if await users.has_any(tables):
        return None
    await users.withdraw_invitations(tables, "")
    return await _invite(tables, Invitation(role=Role.OWNER, until=now + FIRST_LINK_LASTS))


async def invite(tables: Tables, address: str, role: Role, now: datetime) -> str:
    """Return a token for a new user, or one who forgot their password; older ones are void."""
    parsed = parse_address(address)
    await users.withdraw_invitations(tables, parsed.storage_key)
    until = now + INVITATION_LASTS
    invitation = Invitation(role=role, address=parsed.typed, key=parsed.storage_key, until=until)
    return await _invite(tables, invitation)


async def find_invitation(tables: Tables, token: str, now: datetime) -> Invitation | None:
    """Return the invitation of a valid link; the first start's is void once there is a user."""
    invitation = await users.find_invitation(tables, token, now)
    if invitation and not invitation.address and await users.has_any(tables):
        return None
    return invitation


async def accept(
    tables: Tables, token: str, address: str, password: str, now: datetime
) -> User | None:
    """Create the invited user, or set their new password; None if the invitation is void."""
    invitation = await find_invitation(tables, token, now)
    if invitation is None:
        return None
    parsed = parse_address(invitation.address or address)
    check_password(password, parsed.typed)
    hashed = await _hash(password)
    if not invitation.address and await users.has_any(tables):
        return None  # somebody else used a link of the first start meanwhile
    if not await users.use_invitation(tables, token):
        return None
    if await users.find(tables, parsed.storage_key):
        return await _change(tables, parsed.storage_key, password=hashed, sessions_from=now)
    return await _add(tables, parsed, invitation.role, hashed, now)


async def add_user(tables: Tables, address: str, role: Role, password: str, now: datetime) -> User:
    """Create a user without an invitation, for the command line."""
    parsed = parse_address(address)
    check_password(password, parsed.typed)
    return await _add(tables, parsed, role, await _hash(password), now)


async def check(tables: Tables, address: str, password: str) -> User | None:
    """Return the user if the password is right; the time it takes reveals nothing."""
    found = None
    with contextlib.suppress(BadAddress):
        found = await users.find(tables, parse_address(address.strip()).storage_key)
    # Always hashed first, so that an unknown user takes as long as a known one.
    nobody = await _in_thread(_hash_of_nobody)
    hashed = found.value.password if found else nobody
    is_right = await _is_right(hashed, password)
    return found.value if found and is_right else None


async def begin(tables: Tables, user: User, browser: Browser, now: datetime) -> str:
    """Start a session and return the token for its cookie."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    session = Session(
        id=users.token_hash(token),
        user=user.key,
        began_at=now,
        seen_at=now,
        client=browser.client,
        browser=browser.words[:BROWSER_CHARS_MAX],
    )
    await users.begin_session(tables, session)
    return token


async def change_password(tables: Tables, user: User, old: str, new: str, now: datetime) -> None:
    """Change the password and end every session; the page begins a new one."""
    if not await _is_right(user.password, old):
        raise WrongPassword(_("This is not your current password."))
    check_password(new, user.address)
    await _change(tables, user.key, password=await _hash(new), sessions_from=now)


async def sign_out_everywhere(tables: Tables, user: User, now: datetime) -> None:
    await _change(tables, user.key, sessions_from=now)


async def give_role(tables: Tables, key: str, role: Role) -> None:
    """Conflict if the user, or the owner who remains, changes at the same moment."""
    user, etag = await users.read(tables, key)
    changed = msgspec.structs.replace(user, role=role)
    await users.withdraw_invitations(tables, key)
    if user.role is Role.OWNER and role is not Role.OWNER:
        await users.replace_beside(tables, changed, etag, *await _another_owner(tables, user))
    else:
        await users.replace(tables, changed, etag)


async def remove(tables: Tables, key: str) -> None:
    """Remove a user with their sessions (no user, no session) and invitations."""
    user, etag = await users.read(tables, key)
    await users.withdraw_invitations(tables, key)
    if user.role is Role.OWNER:
        await users.delete_beside(tables, key, etag, *await _another_owner(tables, user))
    else:
        await users.delete(tables, key, etag)


async def _another_owner(tables: Tables, user: User) -> Stored[User]:
    """Return an owner who remains: there is always one, even if two demote each other."""
    async for one, etag in users.users_with_etags(tables):
        if one.role is Role.OWNER and one.key != user.key:
            return Stored(one, etag)
    raise WrongState(
        _("{address} is the only owner. Make somebody else an owner first.", address=user.address)
    )


async def _invite(tables: Tables, invitation: Invitation) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    await users.invite(tables, token, invitation)
    return token


async def _add(tables: Tables, address: Address, role: Role, hashed: str, now: datetime) -> User:
    user = User(
        address=address.typed,
        key=address.storage_key,
        role=role,
        password=hashed,
        created_at=now,
        sessions_from=now,
    )
    await users.add(tables, user)
    return user


async def _change(tables: Tables, key: str, **values: object) -> User:
    async def change() -> User:
        user, etag = await users.read(tables, key)
        changed = msgspec.structs.replace(user, **values)
        await users.replace(tables, changed, etag)
        return changed

    return await retry_on_conflict(change)  # an owner may change their role meanwhile


@functools.cache
def _hash_of_nobody() -> str:
    """Used if there is no such user. Not computed at import: most processes sign nobody in."""
    return hasher.hash(secrets.token_hex(16))


async def _hash(password: str) -> str:
    return await _in_thread(hasher.hash, password)


async def _is_right(hashed: str, password: str) -> bool:
    def verify() -> bool:
        try:
            return hasher.verify(hashed, password[:PASSWORD_CHARS_MAX])
        except argon2.exceptions.VerificationError:
            return False

    return await _in_thread(verify)


async def _in_thread(call: Callable[..., T], *arguments: str) -> T:
    """Run a few at a time. A request that gives up keeps its slot until the call ends."""

    async def work() -> T:
        async with _hashing:
            return await asyncio.to_thread(call, *arguments)

    return await asyncio.shield(asyncio.ensure_future(work()))
