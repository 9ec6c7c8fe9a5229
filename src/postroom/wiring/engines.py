"""The storage engines, one entry each; POSTROOM_STORAGE chooses.

To add an engine, write its entry and list it in ENGINES (CONTRIBUTING.md has the recipe).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import SecretStr

from postroom.clock import Clock
from postroom.domain.doctor import Check, CheckResult
from postroom.intervals import LOCAL, REMOTE, Intervals
from postroom.records.names import STORAGE_NAMES
from postroom.settings import BadSettings, Settings
from postroom.storage.azure.account import check_prefix, parse_account
from postroom.storage.port import Storage
from postroom.storage.sqlite.backup_file import write_snapshot
from postroom.storage.sqlite.file import connect
from postroom.storage.sqlite.storage import SqliteStorage

WORK_S = 60.0  # longest call to a remote engine if nobody waits: outlasts most throttling
EMULATOR_S = 2.0  # longest wait for the emulator, which is on this machine
EXAMINE_S = 10.0  # longest wait for a locked file while a person waits
EXAMINE_BYTES_MAX = 256 * 1024 * 1024  # takes a second or two; a larger file is not read


class EngineEntry(ABC):
    """One engine, as the settings name it.

    Creating an entry checks the settings: ValueError, whose text never contains the address.
    """

    form: ClassVar[str]  # of its addresses, for people
    intervals: ClassVar[Intervals]
    is_created_by_roles: ClassVar[bool] = False  # else only by commands that say so

    @abstractmethod
    def __init__(self, settings: Settings) -> None: ...

    @abstractmethod
    async def open(self, clock: Clock, *, timeout_s: float, create: bool) -> Storage: ...

    @property
    @abstractmethod
    def description(self) -> str:
        """For people; without secrets."""

    @property
    def name(self) -> str:
        """A description that no other storage has."""
        return self.description

    @property
    def path(self) -> Path | None:
        """Its file on this machine, if it has one."""
        return None

    def may_exist(self) -> bool:
        """False if there is certainly nothing to open yet."""
        return True

    def start_hint(self) -> str:
        """What a person should do before the roles start; usually nothing."""
        return ""

    @property
    def snapshot(self) -> Callable[[Path], Awaitable[None]] | None:
        """Writes everything of one moment into a file, while it is in use; None if it cannot."""
        return None

    async def examine(self) -> list[Check]:
        """What the doctor checks in this engine besides writing and reading a row."""
        return []


class SqliteEntry(EngineEntry):
    form = "sqlite:///path.db"
    intervals = LOCAL

    def __init__(self, settings: Settings) -> None:
        address = settings.storage.get_secret_value()
        path = address.removeprefix("sqlite:///")
        if path in (address, ""):
            raise _unknown_address()
        self._path = Path(path)

    async def open(self, clock: Clock, *, timeout_s: float, create: bool) -> Storage:
        return await SqliteStorage.open(self._path, clock, STORAGE_NAMES, create=create)

    @property
    def description(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        return self._path.absolute()

    def may_exist(self) -> bool:
        return self._path.exists()

    @property
    def snapshot(self) -> Callable[[Path], Awaitable[None]]:
        return partial(write_snapshot, self._path)

    async def examine(self) -> list[Check]:
        size = self._path.stat().st_size
        if size > EXAMINE_BYTES_MAX:
            text = f"not checked, because a file of {size // 1024**2:,} MiB would take too long"
            return [Check(CheckResult.NOTE, "integrity", text)]
        damage = await asyncio.to_thread(self._find_damage)
        if damage:
            advice = "Stop Postroom, keep a copy of the file, and restore it from a backup."
            return [Check(CheckResult.WRONG, "integrity", damage, advice)]
        return [Check(CheckResult.RIGHT, "integrity", "the file is not damaged")]

    def _find_damage(self) -> str:
        with contextlib.closing(connect(self._path, busy_timeout_s=EXAMINE_S)) as connection:
            found = str(connection.pragma("quick_check", 1))
        return "" if found == "ok" else found


class AzureEntry(EngineEntry):
    form = "azure: and an account (see docs/settings.md)"
    intervals = REMOTE
    is_created_by_roles = True

    def __init__(self, settings: Settings) -> None:
        self._account = parse_account(settings.storage.get_secret_value().removeprefix("azure:"))
        self._prefix = settings.azure_prefix

    async def open(self, clock: Clock, *, timeout_s: float, create: bool) -> Storage:
        try:  # imported here because it is an extra, and slow to import
            from postroom.storage.azure.storage import AzureStorage
        except ImportError as error:
            raise BadSettings(
                ["POSTROOM_STORAGE: Azure needs an extra; install “postroom[azure]”."]
            ) from error
        return await AzureStorage.open(
            self._account,
            clock,
            STORAGE_NAMES,
            prefix=self._prefix,
            create=create,
            timeout_s=timeout_s,
        )

    @property
    def description(self) -> str:
        service = "Azure's emulator" if self._account.is_emulator else "Azure Storage"
        return f"{service} at {self._account.table_url}"

    @property
    def name(self) -> str:
        return self.description + (f" (prefix {self._prefix})" if self._prefix else "")

    def start_hint(self) -> str:
        """How to start the emulator, if it is not running."""
        if not self._account.is_emulator:
            return ""
        url = urlsplit(self._account.table_url)
        try:
            socket.create_connection((url.hostname, url.port or 80), EMULATOR_S).close()
        except OSError:
            return (
                f"Azure's emulator is not running at {url.netloc}. Start it with “./dev azurite” "
                f"in another terminal; Postroom waits {WORK_S:.0f} seconds for it."
            )
        return ""


ENGINES: dict[str, type[EngineEntry]] = {"sqlite": SqliteEntry, "azure": AzureEntry}


def engine_of(settings: Settings) -> EngineEntry:
    """The entry that the address in POSTROOM_STORAGE names; ValueError if there is none."""
    scheme, _, _ = settings.storage.get_secret_value().partition(":")
    if scheme not in ENGINES:
        raise _unknown_address()
    return ENGINES[scheme](settings)


def _unknown_address() -> ValueError:
    return ValueError("must be " + ", or ".join(entry.form for entry in ENGINES.values()))


def intervals_of(settings: Settings) -> Intervals:
    """The intervals of the engine, unless the settings say otherwise."""
    intervals = engine_of(settings).intervals
    if settings.poll_s is not None:
        schedule_s = max(settings.poll_s, 1.0)
        intervals = replace(intervals, poll_s=settings.poll_s, schedule_s=schedule_s)
    if settings.lease_s is not None:
        intervals = replace(intervals, lease_s=settings.lease_s)
    return intervals


@contextlib.asynccontextmanager
async def opened_storage(
    settings: Settings, clock: Clock, *, timeout_s: float = WORK_S, create: bool = True
) -> AsyncIterator[Storage]:
    """The storage alone, even one that a migration has closed."""
    storage = await engine_of(settings).open(clock, timeout_s=timeout_s, create=create)
    try:
        yield storage
    finally:
        await storage.close()


def with_storage(settings: Settings, address: str, prefix: str | None) -> Settings:
    """The settings with another storage; ValueError, without the address, if it is wrong."""
    prefix = settings.azure_prefix if prefix is None else check_prefix(prefix)
    other = settings.model_copy(update={"storage": SecretStr(address), "azure_prefix": prefix})
    engine_of(other)
    return other
