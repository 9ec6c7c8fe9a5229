"""A Maildir as bounce mailbox: mails in new/ and cur/, put away into folders of Maildir++.

An id is the folder and the name of the file. A mail program that marks a mail renames it: then
the mail is gone under its old id, and is found again under the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from postroom.bounce_mailbox import files
from postroom.bounce_mailbox.file_mailbox import FileMailbox
from postroom.bounce_mailbox.port import (
    PROCESSED_FOLDER,
    UNKNOWN_FOLDER,
    Filing,
)

NEW, CUR, TMP = "new", "cur", "tmp"
SEEN = ":2,S"


class MaildirMailbox(FileMailbox):
    @property
    def description(self) -> str:
        return f"the Maildir {self._folder}"

    def _waiting(self, limit: int, besides: Collection[str]) -> list[str]:
        found: list[str] = []
        for part in (NEW, CUR):
            left = {id_.partition("/")[2] for id_ in besides if id_.startswith(f"{part}/")}
            folder = self._folder / part
            try:
                names = files.names_in(
                    folder, limit=limit - len(found), besides=left, is_mail=files.is_regular
                )
            except OSError as error:
                raise files.unavailable(folder, error) from error
            found += [f"{part}/{name}" for name in names]
        return found

    def _move(self, ids: Sequence[str], filing: Filing) -> set[str]:
        name = UNKNOWN_FOLDER if filing is Filing.UNKNOWN else PROCESSED_FOLDER
        target = self._subfolder(name)
        stay: set[str] = set()
        for id_ in ids:
            unique = id_.partition("/")[2].partition(":2,")[0]
            # What a person should look at stays new.
            folder, flags = (NEW, "") if filing is Filing.UNKNOWN else (CUR, SEEN)
            if not files.move(self._folder / id_, target / folder, unique + flags):
                stay.add(id_)
        return stay

    def _subfolder(self, name: str) -> Path:
        """Create a folder of Maildir++, as mail programs expect it."""
        folder = self._folder / f".{name}"
        try:
            for part in (TMP, NEW, CUR):
                (folder / part).mkdir(files.PRIVATE_FOLDER, parents=True, exist_ok=True)
            (folder / "maildirfolder").touch()
        except OSError as error:
            raise files.unavailable(folder, error) from error
        return folder
