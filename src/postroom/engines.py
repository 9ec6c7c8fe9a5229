"""Which storage the settings name: opened, described and examined, whatever the engine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from postroom.clock import Clock
from postroom.records.names import STORAGE_NAMES
from postroom.settings import BadSettings, Settings
from postroom.storage.azure.account import Account, check_prefix, parse_account
from postroom.storage.port import Storage, Unavailable
from postroom.storage.sqlite.file import connect
from postroom.storage.sqlite.storage import SqliteStorage

AZURE = "azure:"
WORK_S = 60.0  # how long a call may take when nobody waits: a throttled minute is sat out
EMULATOR_S = 2.0  # it is on this machine
LOOK_S = 10.0  # and one that looks through the file while a person waits


@contextlib.asynccontextmanager
async def opened_storage(
    settings: Settings, clock: Clock, *, storage_s: float = WORK_S, create: bool = True
) -> AsyncIterator[Storage]:
    """Storage alone, also one that a migration has closed."""
    storage = await _open_storage(settings, clock, storage_s, create)
    try:
        yield storage
    finally:
        await storage.close()


def elsewhere(settings: Settings, address: str, prefix: str | None) -> Settings:
    """The same with another storage; ValueError, which never shows the address, if it is none."""
    prefix = settings.azure_prefix if prefix is None else check_prefix(prefix)
    other = settings.model_copy(update={"storage": SecretStr(address), "azure_prefix": prefix})
    check_storage(other)
    return other


async def _open_storage(
    settings: Settings, clock: Clock, storage_s: float, create: bool
) -> Storage:
    account = azure_account(settings)
    if account is None:
        return await SqliteStorage.open(_sqlite_path(settings), clock, STORAGE_NAMES, create=create)
    try:  # imported only here: an extra, and slow to load
        from postroom.storage.azure.storage import AzureStorage
    except ImportError as error:
        raise BadSettings(
            ["POSTROOM_STORAGE: Azure needs an extra; install “postroom[azure]”."]
        ) from error
    return await AzureStorage.open(
        account,
        clock,
        STORAGE_NAMES,
        prefix=settings.azure_prefix,
        create=create,
        timeout_s=storage_s,
    )


def describe_storage(settings: Settings) -> str:
    """For people; without the key."""
    account = azure_account(settings)
    if account is None:
        return f"{_sqlite_path(settings).absolute()}"
    if account.is_emulator:
        return f"Azure's emulator at {account.table_url}"
    return f"Azure Storage at {account.table_url}"


def name_storage(settings: Settings) -> str:
    """As described, and so that no two have the same name."""
    has_prefix = bool(settings.azure_prefix) and azure_account(settings) is not None
    prefix = f" (prefix {settings.azure_prefix})" if has_prefix else ""
    return describe_storage(settings) + prefix


def may_have_storage(settings: Settings) -> bool:
    """False if opening it could only create an empty one; of Azure only opening it tells."""
    return azure_account(settings) is not None or _sqlite_path(settings).exists()


def check_storage_exists(settings: Settings) -> None:
    if not may_have_storage(settings):
        raise Unavailable(
            f"There is no Postroom storage at {describe_storage(settings)} (from "
            f"{settings.origin('storage')}). Set POSTROOM_STORAGE, or run the command in the "
            "folder where Postroom runs."
        )


def emulator_hint(settings: Settings) -> str:
    """How to start Azure's emulator, if that is the storage and does not run; else empty."""
    account = azure_account(settings)
    if account is None or not account.is_emulator:
        return ""
    where = urlsplit(account.table_url)
    try:
        socket.create_connection((where.hostname, where.port or 80), EMULATOR_S).close()
    except OSError:
        return (
            f"Azure's emulator does not listen at {where.netloc}. Start it with “./dev azurite” in "
            f"another terminal; Postroom waits {WORK_S:.0f} seconds for it."
        )
    return ""


def storage_path(settings: Settings) -> Path:
    """Where on this machine storage is; of Azure only what belongs to this machine is here."""
    if azure_account(settings) is not None:
        return settings.data.absolute()
    return _sqlite_path(settings).absolute()


async def storage_damage(settings: Settings) -> str:
    """What a quick look over the whole file finds wrong with it; empty if nothing."""
    if azure_account(settings) is not None:
        return ""

    def look() -> str:
        connection = connect(_sqlite_path(settings), busy_timeout_s=LOOK_S)
        try:
            found = str(connection.pragma("quick_check", 1))
        finally:
            connection.close()
        return "" if found == "ok" else found

    return await asyncio.to_thread(look)


def check_storage(settings: Settings) -> None:
    if azure_account(settings) is None:
        _sqlite_path(settings)


def azure_account(settings: Settings) -> Account | None:
    """None if storage is something else."""
    address = settings.storage.get_secret_value()
    if not address.startswith(AZURE):
        return None
    return parse_account(address.removeprefix(AZURE))


def _sqlite_path(settings: Settings) -> Path:
    address = settings.storage.get_secret_value()
    path = address.removeprefix("sqlite:///")
    if path == address or not path:
        raise ValueError("must be sqlite:///path.db, or azure: and what docs/settings.md says")
    return Path(path)
