"""A folder on an IMAP server as bounce mailbox.

Mails that are recorded go to a subfolder Postroom-processed, all others to Postroom-unknown. Where
no folder can be created, recorded mails are deleted, and all others stay and are marked.
Without MOVE, a mail is copied and then deleted: a crash in between leaves a second copy in the
folder, and the mail is read and moved again.
"""

from __future__ import annotations

import asyncio
import imaplib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from postroom.bounce_mailbox.imap_config import ImapConfig
from postroom.bounce_mailbox.imap_session import ImapSession, LoginRefused, NoSuchFolder
from postroom.bounce_mailbox.port import (
    PROCESSED_FOLDER,
    UNKNOWN_FOLDER,
    Filing,
    MailboxUnavailable,
    ReturnedMail,
)
from postroom.domain.trouble import Fault, TroubleKind, fault_of_error, one_line, sentence

T = TypeVar("T")


class ImapMailbox:
    """Keeps its connection between the calls; an id is UIDVALIDITY and UID."""

    def __init__(self, config: ImapConfig, *, deletes_recorded: bool = False) -> None:
        self._config = config
        self._deletes_recorded = deletes_recorded
        self._session: ImapSession | None = None
        self._found: deque[int] = deque()  # of the last search

    @property
    def description(self) -> str:
        config = self._config
        return f"the IMAP folder {config.folder} of {config.username} on {config.server}"

    async def waiting(self, *, limit: int, besides: Collection[str] = ()) -> list[str]:
        """From the last search as long as it has some: a long backlog is listed once."""
        if not self._found:
            self._found = await self._search(besides)
        uids = [self._found.popleft() for _ in range(min(limit, len(self._found)))]
        session = self._session
        return [f"{session.uid_validity}:{uid}" for uid in uids] if session else []

    async def fetch(self, id_: str) -> ReturnedMail | None:
        validity, uid = _parsed(id_)

        def read(session: ImapSession) -> ReturnedMail | None:
            return session.fetch(uid) if session.uid_validity == validity else None

        return await self._call(read)

    async def put_away(self, ids: Sequence[str], filing: Filing) -> set[str]:
        def put(session: ImapSession) -> set[str]:
            uids = {
                uid: id_
                for id_ in ids
                for validity, uid in [_parsed(id_)]
                if validity == session.uid_validity
            }
            stay = self._put(session, list(uids), filing)
            return {uids[uid] for uid in stay} | (set(ids) - set(uids.values()))

        return await self._call(put)

    async def count(self) -> int:
        return len(await self._call(ImapSession.search))

    async def close(self) -> None:
        session, self._session = self._session, None
        self._found.clear()
        if session:
            await asyncio.to_thread(session.log_out)

    def _put(self, session: ImapSession, uids: list[int], filing: Filing) -> set[int]:
        if filing is Filing.RECORDED and self._deletes_recorded:
            return session.delete(uids)
        name = UNKNOWN_FOLDER if filing is Filing.UNKNOWN else PROCESSED_FOLDER
        folder = session.target(name)
        if folder:
            return session.move(uids, folder)
        if filing is Filing.RECORDED:
            return session.delete(uids)
        return session.mark_as_kept(uids)

    async def _search(self, besides: Collection[str]) -> deque[int]:
        def search(session: ImapSession) -> deque[int]:
            session.select()
            left = {uid for validity, uid in map(_parsed, besides)}
            return deque(uid for uid in session.search() if uid not in left)

        is_kept = self._session is not None
        try:
            return await self._call(search)
        except MailboxUnavailable:
            if not is_kept:
                raise
        return await self._call(search)  # the server had ended the connection meanwhile

    async def _call(self, work: Callable[[ImapSession], T]) -> T:
        """Do it in a thread over the open connection, or a new one."""
        session = self._session
        try:
            async with asyncio.timeout(self._config.timeouts.call_s):
                if session is None:
                    session = await asyncio.to_thread(ImapSession, self._config)
                    self._session = session
                return await asyncio.to_thread(_work, session, work)
        except (OSError, UnicodeError) as error:
            self._drop()
            raise self._unavailable(fault_of_error(error)) from error
        except LoginRefused as error:
            self._drop()
            words = one_line(str(error))
            raise self._unavailable(Fault(TroubleKind.LOGIN, words)) from error
        except NoSuchFolder as error:
            self._drop()
            words = f"The folder {self._config.folder} on {self._config.server} cannot be used"
            raise MailboxUnavailable(f"{words}: {error}") from error
        except imaplib.IMAP4.error as error:
            self._drop()
            words = one_line(str(error).replace(self._config.password, "…"))
            raise self._unavailable(Fault(TroubleKind.BROKEN, words)) from error
        except asyncio.CancelledError:
            self._drop()
            raise

    def _drop(self) -> None:
        """Forget the connection; a thread that still waits for it ends at once."""
        session, self._session = self._session, None
        self._found.clear()
        if session:
            session.break_off()

    def _unavailable(self, fault: Fault) -> MailboxUnavailable:
        words = str(sentence(fault.kind, self._config.server, fault.words))
        return MailboxUnavailable(words.removesuffix("."))


def _work(session: ImapSession, work: Callable[[ImapSession], T]) -> T:
    """Do it, and close the connection if anything goes wrong."""
    try:
        return work(session)
    except BaseException:
        session.close()
        raise


def _parsed(id_: str) -> tuple[int, int]:
    validity, _, uid = id_.partition(":")
    return int(validity), int(uid)
