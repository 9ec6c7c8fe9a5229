"""Users, their sessions and invitations as rows of `service`.

user / <address key>                 the user
session / <SHA-256 of the token>     a browser that is signed in
invitation / <SHA-256 of the token>  a link that works once
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import msgspec

from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.texts import _
from postroom.domain.user import Invitation, Session, User
from postroom.records.rows import all_rows, find_row, first_rows, readable_rows, to_properties
from postroom.records.stored import Stored
from postroom.storage.port import Change, Conflict, Delete, KeysWithin, Replace, StorageFull, Tables

SEEN_NOTED_EVERY = timedelta(minutes=1)  # a write a minute, not one a page
_TABLE = "service"
_USER, _SESSION, _INVITATION = "user", "session", "invitation"


def token_hash(token: str) -> str:
    """Hash a token; the hash is looked up as a whole, so that timing reveals nothing about it."""
    return hashlib.sha256(token.encode()).hexdigest()


async def add(tables: Tables, user: User) -> None:
    try:
        await tables.insert(_TABLE, _USER, user.key, to_properties(user))
    except Conflict:
        raise AlreadyThere(_("{address} is already a user.", address=user.address)) from None


async def find(tables: Tables, key: str) -> Stored[User] | None:
    return await find_row(tables, _TABLE, _USER, key, User)


async def read(tables: Tables, key: str) -> Stored[User]:
    found = await find(tables, key)
    if found is None:
        raise NotFound(_("There is no such user."))
    return found


async def replace(tables: Tables, user: User, etag: str) -> None:
    """Conflict if the user has changed since."""
    await tables.replace(_TABLE, _USER, user.key, to_properties(user), etag)


async def replace_beside(
    tables: Tables, user: User, etag: str, other: User, other_etag: str
) -> None:
    """Replace a user while another one is unchanged: Conflict if either changed."""
    pairs = ((user, etag), (other, other_etag))
    rows = [Replace(each.key, to_properties(each), its_etag) for each, its_etag in pairs]
    await tables.batch(_TABLE, _USER, rows)


async def delete(tables: Tables, key: str, etag: str) -> None:
    await tables.delete(_TABLE, _USER, key, etag)


async def delete_beside(tables: Tables, key: str, etag: str, other: User, other_etag: str) -> None:
    """Delete a user while another one is unchanged: Conflict if either changed."""
    rows: list[Change] = [Delete(key, etag), Replace(other.key, to_properties(other), other_etag)]
    await tables.batch(_TABLE, _USER, rows)


async def every_user(tables: Tables) -> AsyncIterator[User]:
    async for user, _etag in users_with_etags(tables):
        yield user


async def users_with_etags(tables: Tables) -> AsyncIterator[Stored[User]]:
    async for user, row in readable_rows(tables, _TABLE, KeysWithin(_USER), User):
        yield Stored(user, row.etag)


async def has_any(tables: Tables) -> bool:
    rows, _more = await first_rows(tables, _TABLE, KeysWithin(_USER), limit=1)
    return bool(rows)


async def begin_session(tables: Tables, session: Session) -> None:
    await tables.insert(_TABLE, _SESSION, session.id, to_properties(session))


async def find_session(tables: Tables, token: str, now: datetime) -> tuple[User, Session] | None:
    """Find the user with this token, if their session has not ended."""
    stored = await find_row(tables, _TABLE, _SESSION, token_hash(token), Session)
    if stored is None:
        return None
    session = stored.value
    found = await find(tables, session.user)
    if found is None or session.is_over(found.value, now):
        return None
    if now - session.seen_at > SEEN_NOTED_EVERY:
        seen = msgspec.structs.replace(session, seen_at=now)
        # Ended, or noted by another request at this moment; or a full disk: then pages are needed.
        with contextlib.suppress(Conflict, StorageFull):
            await tables.replace(_TABLE, _SESSION, session.id, to_properties(seen), stored.etag)
    return found.value, session


async def sessions_of(tables: Tables, user: User, now: datetime) -> list[Session]:
    """Return the sessions of a user, the latest first."""
    found = [
        session
        async for session, _ in readable_rows(tables, _TABLE, KeysWithin(_SESSION), Session)
        if session.user == user.key and not session.is_over(user, now)
    ]
    return sorted(found, key=lambda session: session.seen_at, reverse=True)


async def end_session(tables: Tables, id_: str) -> None:
    await tables.delete(_TABLE, _SESSION, id_)


async def end_all_sessions(tables: Tables) -> None:
    async for row in all_rows(tables, _TABLE, KeysWithin(_SESSION)):
        await tables.delete(_TABLE, _SESSION, row.key)


async def forget_ended(tables: Tables, now: datetime) -> int:
    """Delete sessions and invitations that have ended; return how many."""
    ended = 0
    async for session, row in readable_rows(tables, _TABLE, KeysWithin(_SESSION), Session):
        found = await find(tables, session.user)
        if found is None or session.is_over(found.value, now):
            await tables.delete(_TABLE, _SESSION, row.key)
            ended += 1
    async for invitation, row in readable_rows(tables, _TABLE, KeysWithin(_INVITATION), Invitation):
        if invitation.until < now:
            await tables.delete(_TABLE, _INVITATION, row.key)
            ended += 1
    return ended


async def invite(tables: Tables, token: str, invitation: Invitation) -> None:
    await tables.insert(_TABLE, _INVITATION, token_hash(token), to_properties(invitation))


async def find_invitation(tables: Tables, token: str, now: datetime) -> Invitation | None:
    found = await find_row(tables, _TABLE, _INVITATION, token_hash(token), Invitation)
    return found.value if found and now < found.value.until else None


async def use_invitation(tables: Tables, token: str) -> bool:
    """Use up the invitation; True for only one caller, even if several try at once."""
    row = await tables.get(_TABLE, _INVITATION, token_hash(token))
    if row is None:
        return False
    with contextlib.suppress(Conflict):
        await tables.delete(_TABLE, _INVITATION, row.key, row.etag)
        return True
    return False


async def withdraw_invitations(tables: Tables, key: str) -> None:
    """Delete all invitations for one address; with "" those for the first administrator."""
    async for invitation, row in readable_rows(tables, _TABLE, KeysWithin(_INVITATION), Invitation):
        if invitation.key == key:
            await tables.delete(_TABLE, _INVITATION, row.key)


async def open_invitations(tables: Tables, now: datetime) -> list[Invitation]:
    found = readable_rows(tables, _TABLE, KeysWithin(_INVITATION), Invitation)
    return [each async for each, _ in found if each.address and now < each.until]
