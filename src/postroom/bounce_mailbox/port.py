"""The port of a bounce mailbox: list a few mails, fetch one, file some of them.

One reader at a time uses a mailbox. A mail has an id that names the same mail as long as it stays
where it is; after that, asking for it returns nothing, never another mail.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

# The report comes first; after it comes the returned email, which may have any size.
FETCHED_BYTES_MAX = 1024 * 1024
PROCESSED_FOLDER = "Postroom-processed"
UNKNOWN_FOLDER = "Postroom-unknown"


class MailboxUnavailable(Exception):
    """The mailbox cannot be used now; the text is a sentence without its full stop.

    It contains neither secrets nor addresses.
    """


class Filing(StrEnum):
    """The result of reading a mail, which decides where it is filed."""

    RECORDED = "recorded"  # its event is stored: the only mails that may be deleted
    IGNORED = "ignored"  # an automatic reply to one of our emails: kept with the recorded ones
    UNKNOWN = "unknown"  # not about one of our emails, as far as it can be proved: kept for people


class ReturnedMail(msgspec.Struct, frozen=True):
    """A mail in the mailbox, or the beginning of a huge one."""

    content: bytes
    received_at: datetime


class BounceMailbox(Protocol):
    @property
    def description(self) -> str:
        """For people; without secrets."""
        ...

    async def waiting(self, *, limit: int, besides: Collection[str] = ()) -> list[str]:
        """The ids of some mails that have not been filed yet."""
        ...

    async def fetch(self, id_: str) -> ReturnedMail | None:
        """Read a mail without changing anything; None if it is gone or cannot be read."""
        ...

    async def put_away(self, ids: Sequence[str], filing: Filing) -> set[str]:
        """File mails; return the ids of those that could not be moved or deleted."""
        ...

    async def count(self) -> int:
        """How many mails wait. It also shows whether the mailbox can be used."""
        ...

    async def close(self) -> None:
        """End the connection, if there is one; the next call opens another."""
        ...
