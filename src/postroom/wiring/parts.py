"""What every command and role works with: the settings checked and the storage opened."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from postroom.clock import Clock, WallClock
from postroom.domain.backup import BackupWatch
from postroom.domain.breaker import MailHealth
from postroom.intervals import Intervals
from postroom.migration import state
from postroom.records import storage_format
from postroom.settings import BadSettings, Settings
from postroom.storage.counting import CountingStorage
from postroom.storage.port import Unavailable
from postroom.wakeup import WakeUps
from postroom.wiring.engines import WORK_S, engine_of, intervals_of, opened_storage
from postroom.wiring.mailboxes import mailbox_of
from postroom.wiring.transports import transport_of

PRIVATE_FOLDER = 0o700  # it holds journals and, by default, the storage


@dataclass(frozen=True)
class Parts:
    settings: Settings
    clock: Clock
    storage: CountingStorage
    wakeups: WakeUps
    intervals: Intervals
    health: MailHealth = field(default_factory=MailHealth)  # of the mail server, in a sender
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)  # metrics of a role
    backups: BackupWatch = field(default_factory=BackupWatch)  # in a scheduler


def check(settings: Settings) -> list[str]:
    """The mistakes in the addresses of storage, transport and mailbox; opens nothing."""
    mistakes: list[str] = []
    for name, entry_of in (
        ("STORAGE", engine_of),
        ("TRANSPORT", transport_of),
        ("BOUNCE_MAILBOX", mailbox_of),
    ):
        try:
            entry_of(settings)
        except ValueError as error:
            mistakes.append(f"POSTROOM_{name}: {error}")
    return mistakes


@contextlib.asynccontextmanager
async def open_parts(
    settings: Settings,
    *,
    timeout_s: float = WORK_S,
    create_storage: bool = False,
    create_folder: bool = True,
) -> AsyncIterator[Parts]:
    """Open the storage, and close it again in any case.

    `timeout_s` limits a call to a remote storage. A missing storage is created only on request,
    because a command in the wrong folder must not work with an empty one. On Azure the first role
    creates it.
    """
    if mistakes := check(settings):
        raise BadSettings(mistakes)
    clock = WallClock()
    engine = engine_of(settings)
    if not create_storage and not engine.may_exist():
        raise Unavailable(
            f"There is no Postroom storage at {engine.description} (from "
            f"{settings.origin('storage')}). Set POSTROOM_STORAGE, or run the command in the "
            "folder where Postroom runs."
        )
    if create_folder:  # only this one: another missing folder may be a disk that is not mounted
        await asyncio.to_thread(create_private_folder, settings.data)
    create = create_storage or (create_folder and engine.is_created_by_roles)
    async with opened_storage(settings, clock, timeout_s=timeout_s, create=create) as storage:
        tables = storage.tables
        if why := await storage_format.why_newer(tables) or await state.why_closed(tables):
            raise Unavailable(why)
        yield Parts(
            settings,
            clock,
            CountingStorage(storage),
            WakeUps(settings.data / "bells"),
            intervals_of(settings),
            MailHealth(transport_of(settings).server),
        )


def create_private_folder(folder: Path) -> None:
    """Readable only by its owner, whatever the umask; an existing folder stays as it is."""
    if folder.is_dir():
        return
    try:
        folder.mkdir(PRIVATE_FOLDER, parents=True)
        folder.chmod(PRIVATE_FOLDER)
    except OSError as error:
        if not folder.is_dir():  # another role may have been faster
            raise Unavailable(
                f"The folder {folder} cannot be created: {error.strerror}."
            ) from error
