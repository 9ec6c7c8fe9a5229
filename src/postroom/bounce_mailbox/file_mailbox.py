"""What a folder and a Maildir have in common as bounce mailboxes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path

from postroom.bounce_mailbox import files
from postroom.bounce_mailbox.port import Filing, ReturnedMail


class FileMailbox(ABC):
    """A mailbox of files; the disk is used in threads."""

    def __init__(self, folder: Path, *, deletes_recorded: bool = False) -> None:
        self._folder = folder
        self._deletes_recorded = deletes_recorded

    async def waiting(self, *, limit: int, besides: Collection[str] = ()) -> list[str]:
        return await asyncio.to_thread(self._waiting, limit, besides)

    async def fetch(self, id_: str) -> ReturnedMail | None:
        return await asyncio.to_thread(files.read_beginning, self._folder / id_)

    async def put_away(self, ids: Sequence[str], filing: Filing) -> set[str]:
        return await asyncio.to_thread(self._put_away, ids, filing)

    async def count(self) -> int:
        return len(await self.waiting(limit=1_000_000))

    async def close(self) -> None:
        return

    def _put_away(self, ids: Sequence[str], filing: Filing) -> set[str]:
        if filing is Filing.RECORDED and self._deletes_recorded:
            return {id_ for id_ in ids if not files.delete(self._folder / id_)}
        return self._move(ids, filing)

    @abstractmethod
    def _waiting(self, limit: int, besides: Collection[str]) -> list[str]: ...

    @abstractmethod
    def _move(self, ids: Sequence[str], filing: Filing) -> set[str]:
        """Move the mails into the folder for them; return those that stay."""
