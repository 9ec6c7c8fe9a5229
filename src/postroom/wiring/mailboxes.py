"""The kinds of bounce mailbox, one entry each; POSTROOM_BOUNCE_MAILBOX chooses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl

from postroom.bounce_mailbox.directory import DirectoryMailbox
from postroom.bounce_mailbox.imap_config import URL_FORM, ImapConfig, ImapTimeouts, parse_imap_url
from postroom.bounce_mailbox.maildir import MaildirMailbox
from postroom.bounce_mailbox.port import BounceMailbox, MailboxUnavailable
from postroom.domain.doctor import Check, CheckResult
from postroom.domain.texts import ngettext
from postroom.settings import Settings

EXAMINE_S = 10.0  # longest wait for an answer while a person waits
_PROCESSED = {"keep": False, "delete": True}


class MailboxEntry(ABC):
    """One bounce mailbox, as the settings name it.

    Creating an entry checks the address: ValueError, whose text never contains the password.
    """

    form: ClassVar[str]  # of its addresses, for people

    @abstractmethod
    def __init__(self, address: str) -> None: ...

    @abstractmethod
    def open(self) -> BounceMailbox:
        """Opens no connection yet."""

    def open_quickly(self) -> BounceMailbox:
        """For a person who waits."""
        return self.open()

    @property
    def description(self) -> str:
        """For people; without secrets."""
        return self.open().description

    async def examine(self) -> Check:
        """Whether it can be read; changes nothing."""
        mailbox = self.open_quickly()
        try:
            waiting = await mailbox.count()
        except MailboxUnavailable as error:
            advice = (
                "Check POSTROOM_BOUNCE_MAILBOX. Bounces stay in the mailbox until it can be read."
            )
            return Check(CheckResult.WRONG, "mailbox", str(error), advice)
        finally:
            await mailbox.close()
        mails = ngettext("{count} email is waiting", "{count} emails are waiting", waiting)
        return Check(CheckResult.RIGHT, "mailbox", f"{mailbox.description} can be read; {mails}")


class ImapEntry(MailboxEntry):
    form = URL_FORM

    def __init__(self, address: str) -> None:
        self._config = parse_imap_url(address)
        self._deletes = _deletes_recorded(address.partition("?")[2])

    def open(self) -> BounceMailbox:
        return self._open(self._config)

    def open_quickly(self) -> BounceMailbox:
        return self._open(
            replace(self._config, timeouts=ImapTimeouts(EXAMINE_S, EXAMINE_S, EXAMINE_S))
        )

    def _open(self, config: ImapConfig) -> BounceMailbox:
        # Imported here: most commands only check the address.
        from postroom.bounce_mailbox.imap import ImapMailbox

        return ImapMailbox(config, deletes_recorded=self._deletes)


class MaildirEntry(MailboxEntry):
    form = "maildir:/path"

    def __init__(self, address: str) -> None:
        self._folder, self._deletes = _folder_and_choice(address)

    def open(self) -> BounceMailbox:
        return MaildirMailbox(self._folder, deletes_recorded=self._deletes)


class DirectoryEntry(MailboxEntry):
    form = "directory:/path"

    def __init__(self, address: str) -> None:
        self._folder, self._deletes = _folder_and_choice(address)

    def open(self) -> BounceMailbox:
        return DirectoryMailbox(self._folder, deletes_recorded=self._deletes)


MAILBOXES: dict[str, type[MailboxEntry]] = {
    "imap": ImapEntry,
    "maildir": MaildirEntry,
    "directory": DirectoryEntry,
}


def mailbox_of(settings: Settings) -> MailboxEntry | None:
    """The mailbox that POSTROOM_BOUNCE_MAILBOX names, if any; ValueError if it is wrong."""
    address = settings.bounce_mailbox.get_secret_value().strip()
    if not address:
        return None
    scheme, _, _ = address.partition(":")
    if scheme not in MAILBOXES:
        forms = " or ".join(entry.form for entry in MAILBOXES.values())
        raise ValueError(f"must be {forms}")
    return MAILBOXES[scheme](address)


def _folder_and_choice(address: str) -> tuple[Path, bool]:
    scheme, _, rest = address.partition(":")
    path, _, query = rest.partition("?")
    if not path.startswith("/"):
        raise ValueError(f"The path must be absolute: {scheme}:/path")
    return Path(path), _deletes_recorded(query)


def _deletes_recorded(query: str) -> bool:
    options = dict(parse_qsl(query, keep_blank_values=True))
    choice = options.get("processed", "keep")
    if choice not in _PROCESSED:
        raise ValueError("processed= must be keep or delete.")
    return _PROCESSED[choice]
