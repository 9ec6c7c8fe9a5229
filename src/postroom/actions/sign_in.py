"""Action, sign in: decide who may work on the admin pages.

Before: nobody is a user, and `serve` prints a link; or a user invites another; or somebody types a
password.
After: a session, whose token is in one browser's cookie and nowhere else.
Dies half-way:
    an invitation used, no user made    the link is spent: `serve` prints a new one while nobody is
                                        there, an owner invites again
    a user made, no session begun       sign in with the password just chosen
    a password changed                  one write, which also ends every older session
Commit point: the user's row; for a session, its own.
"""

from __future__ import annotations

import asyncio
import contextlib
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
hasher = argon2.PasswordHasher()  # tests hand in a cheaper one
_hashing = asyncio.Semaphore(HASHES_AT_ONCE)
# Compared with when nobody of that name is there, so that the answer takes as long.
_NOBODY = hasher.hash(secrets.token_hex(16))


class WrongPassword(BadInput):
    """Of somebody who is signed in and wants to change theirs."""


class Browser(msgspec.Struct, frozen=True):
    """Where somebody signs in from, as they see it in the list of their sessions."""

    client: str
    words: str


async def first_link(tables: Tables, now: datetime) -> str | None:
    """A token for the first administrator, as long as nobody is there; older ones are void."""
    if await users.has_any(tables):
        return None
    await users.withdraw_invitations(tables, "")
    return await _invited(tables, Invitation(role=Role.OWNER, until=now + FIRST_LINK_LASTS))


async def invite(tables: Tables, address: str, role: Role, now: datetime) -> str:
    """A token for a newcomer, or for a user who forgot the password; older ones are void."""
    known = parse_address(address)
    await users.withdraw_invitations(tables, known.storage_key)
    until = now + INVITATION_LASTS
    return await _invited(
        tables,
        Invitation(role=role, address=known.typed, key=known.storage_key, until=until),
    )


async def find_invitation(tables: Tables, token: str, now: datetime) -> Invitation | None:
    """The invitation of a link that still works.

    The link of the first start does not, once somebody has an account.
    """
    invitation = await users.find_invitation(tables, token, now)
    if invitation and not invitation.address and await users.has_any(tables):
        return None
    return invitation


async def accept(
    tables: Tables, token: str, address: str, password: str, now: datetime
) -> User | None:
    """The user whom an invitation made, or gave a new password; None if it is void."""
    invitation = await find_invitation(tables, token, now)
    if invitation is None:
        return None
    known = parse_address(invitation.address or address)
    check_password(password, known.typed)
    hashed = await _hashed(password)
    is_first = not invitation.address
    if is_first and await users.has_any(tables):
        return None  # an older link: somebody else was first
    if not await users.use_invitation(tables, token):
        return None
    if await users.find(tables, known.storage_key):
        return await _change(tables, known.storage_key, password=hashed, sessions_from=now)
    return await _added(tables, known, invitation.role, hashed, now)


async def add_user(tables: Tables, address: str, role: Role, password: str, now: datetime) -> User:
    """On the command line, where no link is needed."""
    known = parse_address(address)
    check_password(password, known.typed)
    return await _added(tables, known, role, await _hashed(password), now)


async def check(tables: Tables, address: str, password: str) -> User | None:
    """The user, if the password is theirs; the time it takes tells nothing."""
    found = None
    with contextlib.suppress(BadAddress):
        found = await users.find(tables, parse_address(address.strip()).storage_key)
    known = found.value.password if found else _NOBODY
    is_right = await _is_right(known, password[:PASSWORD_CHARS_MAX])
    return found.value if found and is_right else None


async def begin(tables: Tables, user: User, browser: Browser, now: datetime) -> str:
    """The token for the cookie of a new session."""
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
    """Every session ends, this one too: the page begins a new one."""
    if not await _is_right(user.password, old[:PASSWORD_CHARS_MAX]):
        raise WrongPassword(_("That is not your password now."))
    check_password(new, user.address)
    await _change(tables, user.key, password=await _hashed(new), sessions_from=now)


async def sign_out_everywhere(tables: Tables, user: User, now: datetime) -> None:
    await _change(tables, user.key, sessions_from=now)


async def give_role(tables: Tables, key: str, role: Role) -> None:
    """Conflict if the user, or the owner who makes it possible, changes at this moment."""
    user, etag = await users.read(tables, key)
    changed = msgspec.structs.replace(user, role=role)
    await users.withdraw_invitations(tables, key)
    if user.role is Role.OWNER and role is not Role.OWNER:
        await users.replace_beside(tables, changed, etag, *await _another_owner(tables, user))
    else:
        await users.replace(tables, changed, etag)


async def remove(tables: Tables, key: str) -> None:
    """Their sessions end with them (no user, no session), and so do links made for them."""
    user, etag = await users.read(tables, key)
    await users.withdraw_invitations(tables, key)
    if user.role is Role.OWNER:
        await users.delete_beside(tables, key, etag, *await _another_owner(tables, user))
    else:
        await users.delete(tables, key, etag)


async def _another_owner(tables: Tables, user: User) -> Stored[User]:
    """Somebody who stays one: there is always an owner, also if two demote each other."""
    async for one, etag in users.users_with_etags(tables):
        if one.role is Role.OWNER and one.key != user.key:
            return Stored(one, etag)
    raise WrongState(
        _("{address} is the only owner: make somebody else one first.", address=user.address)
    )


async def _invited(tables: Tables, invitation: Invitation) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    await users.invite(tables, token, invitation)
    return token


async def _added(tables: Tables, known: Address, role: Role, hashed: str, now: datetime) -> User:
    user = User(
        address=known.typed,
        key=known.storage_key,
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

    return await retry_on_conflict(change)  # somebody may change their role


async def _hashed(password: str) -> str:
    return await _in_turn(hasher.hash, password)


async def _is_right(hashed: str, password: str) -> bool:
    return await _in_turn(_matches, hashed, password)


async def _in_turn(call: Callable[..., T], *arguments: str) -> T:
    """In a thread, few at once. A page that gives up meanwhile does not give its turn away."""

    async def work() -> T:
        async with _hashing:
            return await asyncio.to_thread(call, *arguments)

    return await asyncio.shield(asyncio.ensure_future(work()))


def _matches(hashed: str, password: str) -> bool:
    try:
        return hasher.verify(hashed, password)
    except argon2.exceptions.VerificationError:
        return False
