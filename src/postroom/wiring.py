"""The only module that names an engine or a transport: settings become working parts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from postroom.bell import Bell, Bells
from postroom.clock import Clock, WallClock
from postroom.domain.breaker import MailHealth
from postroom.domain.errors import PostroomError
from postroom.domain.retry import RetryRules
from postroom.flow.render import Renderer, Site
from postroom.flow.send import Sender
from postroom.journal import FileJournals
from postroom.process_locks import ProcessLocks
from postroom.records import migrations, outbox
from postroom.records.leases import Right
from postroom.records.secrets import installation_secret
from postroom.records.turns import Turns
from postroom.scheduler import Scheduler
from postroom.sender import SenderRole
from postroom.settings import BadSettings, Settings, host_and_port, networks
from postroom.storage.azure_account import Account, check_prefix, parse_account
from postroom.storage.counting import CountingStorage
from postroom.storage.port import Storage, Unavailable
from postroom.storage.sqlite import SqliteStorage
from postroom.storage.sqlite_file import connect
from postroom.transport import smtp_session
from postroom.transport.observed import ObservedTransport
from postroom.transport.outbox import OutboxTransport
from postroom.transport.paced import PacedTransport
from postroom.transport.port import Transport
from postroom.transport.smtp import (
    SmtpConfig,
    SmtpConnection,
    SmtpTransport,
    Timeouts,
    Tls,
    parse_smtp_url,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp

OUTBOX = "outbox:"
AZURE = "azure:"
PAGE_S = 10.0  # how long a call of storage may take when a person waits
WORK_S = 60.0  # and when nobody does: a throttled minute is sat out
WINDOW_GROWS = 4  # times, where a server takes long to answer
TRY_S = 10.0  # how long a server may think when a person waits for the answer


@dataclass(frozen=True)
class Pace:
    """How often roles look when nothing happens, in seconds."""

    poll_s: float
    lease_s: float
    schedule_s: float  # longest pause of the scheduler
    sweep_s: float
    tidy_s: float
    room_s: float  # while the queue is full
    last_report_s: float  # while a message is about to be completed


NEAR = Pace(
    poll_s=1.0,
    lease_s=30.0,
    schedule_s=10.0,
    sweep_s=60.0,
    tidy_s=60.0,
    room_s=0.05,
    last_report_s=0.1,
)
# Calls are paid for: an idle role makes at most ten a minute (docs/azure.md).
FAR = Pace(
    poll_s=15.0,
    lease_s=60.0,
    schedule_s=15.0,
    sweep_s=120.0,
    tidy_s=600.0,
    room_s=0.25,
    last_report_s=1.0,
)


@dataclass(frozen=True)
class Parts:
    """What every command and role works with."""

    settings: Settings
    clock: Clock
    storage: CountingStorage
    bells: Bells
    pace: Pace
    health: MailHealth = field(default_factory=MailHealth)  # of the mail server, in a sender


def check(settings: Settings) -> list[str]:
    """What is wrong with storage and transport, without opening anything."""
    mistakes: list[str] = []
    for name, read in (("STORAGE", _check_storage), ("TRANSPORT", _check_transport)):
        try:
            read(settings)
        except ValueError as error:
            mistakes.append(f"POSTROOM_{name}: {error}")
    return mistakes


@contextlib.asynccontextmanager
async def parts(settings: Settings, *, storage_s: float = WORK_S) -> AsyncIterator[Parts]:
    """Storage opened, and closed again whatever happens.

    `storage_s` is how long a call of storage may take, where that is far away.
    """
    mistakes = check(settings)
    if mistakes:
        raise BadSettings(mistakes)
    clock = WallClock()
    # Ours to make, unlike any other folder: one that is missing may be a disk not mounted.
    await asyncio.to_thread(_make_folder, settings.data)
    async with opened_storage(settings, clock, storage_s=storage_s) as storage:
        if why := await migrations.why_closed(storage.tables):
            raise Unavailable(why)
        bells = Bells(settings.data / "bells")
        counted, health = CountingStorage(storage), MailHealth(mail_server(settings))
        yield Parts(settings, clock, counted, bells, pace(settings), health)


@contextlib.asynccontextmanager
async def opened_storage(
    settings: Settings, clock: Clock, *, storage_s: float = WORK_S
) -> AsyncIterator[Storage]:
    """Storage alone, also one that a migration has closed."""
    storage = await _open_storage(settings, clock, storage_s)
    try:
        yield storage
    finally:
        await storage.close()


def elsewhere(settings: Settings, address: str, prefix: str | None) -> Settings:
    """The same with another storage; ValueError, which never shows the address, if it is none."""
    prefix = settings.azure_prefix if prefix is None else check_prefix(prefix)
    other = settings.model_copy(update={"storage": SecretStr(address), "azure_prefix": prefix})
    _check_storage(other)
    return other


async def _open_storage(settings: Settings, clock: Clock, storage_s: float) -> Storage:
    account = _azure_account(settings)
    if account is None:
        return await SqliteStorage.open(_sqlite_path(settings), clock)
    try:  # imported only here: an extra, and slow to load
        from postroom.storage.azure import AzureStorage
    except ImportError as error:
        raise BadSettings(
            ["POSTROOM_STORAGE: Azure needs an extra; install “postroom[azure]”."]
        ) from error
    return await AzureStorage.open(
        account, clock, prefix=settings.azure_prefix, timeout_s=storage_s
    )


def pace(settings: Settings) -> Pace:
    pace = NEAR if _azure_account(settings) is None else FAR
    if settings.poll_s is not None:
        pace = replace(pace, poll_s=settings.poll_s, schedule_s=max(settings.poll_s, 1.0))
    if settings.lease_s is not None:
        pace = replace(pace, lease_s=settings.lease_s)
    return pace


def new_owner() -> str:
    """Who holds a lease: unique, and readable in a trace."""
    return f"{socket.gethostname()[:20]}.{os.getpid()}.{secrets.token_hex(3)}".replace("/", "-")


def scheduler(parts: Parts) -> Scheduler:
    settings, pace = parts.settings, parts.pace
    return Scheduler(
        parts.storage,
        parts.clock,
        new_owner(),
        ProcessLocks(settings.data / "schedulers"),
        lease_s=pace.lease_s,
        sweep_every_s=pace.sweep_s,
        tidy_every_s=pace.tidy_s,
        items_ahead=settings.items_ahead,
        room_every_s=pace.room_s,
        last_report_every_s=pace.last_report_s,
        keep_archive_days=settings.archive_days,
        unconfirmed_days=settings.unconfirmed_days,
        is_test_mode=not leaves_the_machine(settings),
    )


@contextlib.contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """The address of the web role, ours alone while it is open."""
    address = host_and_port(settings.bind)
    try:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        listener = socket.create_server(address, family=family)
    except (OSError, OverflowError) as error:
        raise BadSettings(
            [f"POSTROOM_BIND: cannot listen on {settings.bind} ({error}): choose another port."]
        ) from error
    with listener:
        yield listener


async def web(parts: Parts) -> ASGIApp:
    """Imported only here: most commands do without the web, and start twice as fast."""
    from postroom.web.app import create_app
    from postroom.web.desk import Desk

    settings = parts.settings
    site = Site(settings.url, await installation_secret(parts.storage.tables))
    desk = Desk(
        parts.storage,
        parts.clock,
        parts.bells,
        site,
        trusted_proxies=networks(settings.trusted_proxies),
        admin_networks=networks(settings.admin_networks),
        has_outbox=not leaves_the_machine(settings),
        has_kept_mails=not await outbox.is_empty(parts.storage.tables),
        mail_server=mail_server(settings),
        data=settings.data,
    )
    return create_app(desk)


async def sender(parts: Parts, bell: Bell) -> SenderRole:
    settings, storage, clock = parts.settings, parts.storage, parts.clock
    owner = new_owner()
    journals = FileJournals(settings.data / "journals", owner)
    site = Site(settings.url, await installation_secret(storage.tables))
    renderer = Renderer(storage, site, clock)
    rules = RetryRules(settings.retry_first_s, settings.retry_longest_s, settings.retry_window_s)
    right = Right(clock, owner)
    lease_s = parts.pace.lease_s
    turns = Turns(storage.tables, clock, owner, lanes=settings.lanes, lease_s=lease_s)
    return SenderRole(
        storage,
        clock,
        Sender(storage, clock, right, journals, renderer, rules, settings.slice_size, turns),
        PacedTransport(ObservedTransport(transport(parts), parts.health.note), turns, clock),
        journals,
        bell,
        lanes=settings.lanes,
        lease_s=lease_s,
        claim_s=settings.claim_s,
        poll_s=parts.pace.poll_s,
        health=parts.health,
    )


def transport(parts: Parts) -> Transport:
    if not leaves_the_machine(parts.settings):
        return OutboxTransport(parts.storage, parts.clock)
    return SmtpTransport(_smtp_config(parts.settings))


def _smtp_config(settings: Settings) -> SmtpConfig:
    config = parse_smtp_url(settings.transport.get_secret_value())
    return replace(
        config,
        window=settings.smtp_window,
        window_max=settings.smtp_window * WINDOW_GROWS,
        mails_per_connection_max=settings.smtp_mails_per_connection,
        ehlo_name=config.ehlo_name or settings.smtp_ehlo_name,
        ca_file=config.ca_file or settings.smtp_ca_file,
    )


def leaves_the_machine(settings: Settings) -> bool:
    """Whether mails are sent at all, or only kept to be looked at."""
    return settings.transport.get_secret_value() != OUTBOX


def mail_server(settings: Settings) -> str:
    """Its host and port; empty while mails are only kept to be looked at."""
    return _smtp_config(settings).server if leaves_the_machine(settings) else ""


def describe_transport(settings: Settings) -> str:
    """For people; without the password."""
    if not leaves_the_machine(settings):
        return "the outbox: mails are kept in storage, nothing leaves this machine"
    config = _smtp_config(settings)
    privacy = {Tls.REQUIRE: "with STARTTLS", Tls.IMPLICIT: "with TLS", Tls.NONE: "in clear"}
    user = f" as {config.username}" if config.username else ""
    return f"SMTP to {config.server} {privacy[config.tls]}{user}"


async def try_transport(settings: Settings) -> None:
    """Connect, greet, TLS and login as a sender would, and send nothing.

    PostroomError, with the server's words, if mails could not leave this way.
    """
    timeouts = Timeouts(TRY_S, TRY_S, TRY_S)
    try:
        config = replace(_smtp_config(settings), timeouts=timeouts)
        opened = await smtp_session.open_session(config, smtp_session.tls_context(config))
    except (ValueError, smtp_session.Unavailable) as trouble:
        raise PostroomError(str(trouble)) from trouble
    await SmtpConnection(*opened, config).quit()


def describe_storage(settings: Settings) -> str:
    """For people; without the key."""
    account = _azure_account(settings)
    if account is None:
        return f"{_sqlite_path(settings).absolute()}"
    if account.is_emulator:
        return f"Azure's emulator at {account.table_url}"
    return f"Azure Storage at {account.table_url}"


def name_storage(settings: Settings) -> str:
    """As described, and so that no two have the same name."""
    has_prefix = bool(settings.azure_prefix) and _azure_account(settings) is not None
    prefix = f" (prefix {settings.azure_prefix})" if has_prefix else ""
    return describe_storage(settings) + prefix


def may_have_storage(settings: Settings) -> bool:
    """False if opening it would only make an empty one."""
    return _azure_account(settings) is not None or _sqlite_path(settings).exists()


def storage_path(settings: Settings) -> Path:
    """Where on this machine storage is; of Azure only what belongs to this machine is here."""
    if _azure_account(settings) is not None:
        return settings.data.absolute()
    return _sqlite_path(settings).absolute()


async def storage_damage(settings: Settings) -> str:
    """What a quick look over the whole file finds wrong with it; empty if nothing."""
    if _azure_account(settings) is not None:
        return ""

    def look() -> str:
        connection = connect(_sqlite_path(settings), busy_timeout_s=TRY_S)
        try:
            found = str(connection.pragma("quick_check", 1))
        finally:
            connection.close()
        return "" if found == "ok" else found

    return await asyncio.to_thread(look)


def _check_transport(settings: Settings) -> None:
    address = settings.transport.get_secret_value()
    if address.startswith("smtp://"):
        parse_smtp_url(address)
    elif address != OUTBOX:
        raise ValueError("must be outbox: or smtp://host:port")


def _check_storage(settings: Settings) -> None:
    if _azure_account(settings) is None:
        _sqlite_path(settings)


def _azure_account(settings: Settings) -> Account | None:
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


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"The folder {folder} cannot be made: {error.strerror}.") from error
