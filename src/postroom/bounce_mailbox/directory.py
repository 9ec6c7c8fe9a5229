"""A folder as bounce mailbox: each file is one mail.

A program that delivers here writes a mail under a name that begins with a dot, or into another
folder on the same disk, and renames it when it is complete. A file that was changed a moment ago is
left alone, in case a program does not follow this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence

from postroom.bounce_mailbox import files
from postroom.bounce_mailbox.file_mailbox import FileMailbox
from postroom.bounce_mailbox.port import (
    PROCESSED_FOLDER,
    UNKNOWN_FOLDER,
    Filing,
)

SETTLED_S = 2.0


class DirectoryMailbox(FileMailbox):
    @property
    def description(self) -> str:
        return f"the folder {self._folder}"

    def _waiting(self, limit: int, besides: Collection[str]) -> list[str]:
        before = time.time() - SETTLED_S

        def is_mail(entry: os.DirEntry[str]) -> bool:
            if not files.is_regular(entry):
                return False
            try:
                return entry.stat(follow_symlinks=False).st_mtime <= before
            except FileNotFoundError:
                return False

        try:
            return files.names_in(self._folder, limit=limit, besides=besides, is_mail=is_mail)
        except OSError as error:
            raise files.unavailable(self._folder, error) from error

    def _move(self, ids: Sequence[str], filing: Filing) -> set[str]:
        name = UNKNOWN_FOLDER if filing is Filing.UNKNOWN else PROCESSED_FOLDER
        folder = self._folder / name
        try:
            folder.mkdir(files.PRIVATE_FOLDER, exist_ok=True)
        except OSError as error:
            raise files.unavailable(folder, error) from error
        return {id_ for id_ in ids if not files.move(self._folder / id_, folder, id_)}
