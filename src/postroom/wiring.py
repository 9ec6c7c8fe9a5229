"""Settings become working parts: the only module that names a transport; engines.py has storage."""

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

from postroom.clock import Clock, WallClock
from postroom.domain.breaker import MailHealth
from postroom.domain.errors import PostroomError
from postroom.domain.retry import RetryRules
from postroom.domain.trouble import ADVICE
from postroom.domain.web_address import host_and_port
from postroom.engines import (
    WORK_S,
    azure_account,
    check_storage,
    check_storage_exists,
    describe_storage,
    elsewhere,
    opened_storage,
)
from postroom.flow.render import Renderer, Site
from postroom.flow.send import Sender
from postroom.importing.worker import ImportWorker
from postroom.journal import FileJournals
from postroom.migration import state
from postroom.process_locks import ProcessLocks
from postroom.records import outbox
from postroom.records.leases import Right
from postroom.records.secrets import installation_secret
from postroom.records.turns import Turns
from postroom.scheduler import Scheduler
from postroom.sender import SenderRole
from postroom.settings import BadSettings, Settings, networks
from postroom.storage.counting import CountingStorage
from postroom.storage.port import Unavailable
from postroom.transport.observed import ObservedTransport
from postroom.transport.outbox import OutboxTransport
from postroom.transport.paced import PacedTransport
from postroom.transport.port import Transport
from postroom.transport.smtp import session
from postroom.transport.smtp.config import SUBMISSIONS_PORT
from postroom.transport.smtp.transport import (
    SmtpConfig,
    SmtpConnection,
    SmtpTransport,
    Timeouts,
    Tls,
    parse_smtp_url,
)
from postroom.wakeup import WakeUpListener, WakeUps

__all__ = ["WORK_S", "describe_storage", "elsewhere", "opened_storage"]  # of engines.py

if TYPE_CHECKING:
    from starlette.types import ASGIApp

OUTBOX = "outbox:"
PAGE_S = 10.0  # how long a call of storage may take when a person waits
WINDOW_GROWS = 4  # times, where a server takes long to answer
PRIVATE_FOLDER = 0o700  # files of people on their way in, journals, and the default storage
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
    imports_s: float  # between looks for imports to run; on one machine the web wakes us at once


NEAR = Pace(
    poll_s=1.0,
    lease_s=30.0,
    schedule_s=10.0,
    sweep_s=60.0,
    tidy_s=60.0,
    room_s=0.05,
    last_report_s=0.1,
    imports_s=10.0,
)
# Calls are paid for: an idle role makes at most ten a minute (docs/azure.md).
FAR = Pace(
    poll_s=15.0,
    lease_s=60.0,
    schedule_s=15.0,
    sweep_s=120.0,
    tidy_s=1200.0,
    room_s=0.25,
    last_report_s=1.0,
    imports_s=60.0,
)


@dataclass(frozen=True)
class Parts:
    """What every command and role works with."""

    settings: Settings
    clock: Clock
    storage: CountingStorage
    wakeups: WakeUps
    pace: Pace
    health: MailHealth = field(default_factory=MailHealth)  # of the mail server, in a sender


def check(settings: Settings) -> list[str]:
    """What is wrong with storage and transport, without opening anything."""
    mistakes: list[str] = []
    for name, read in (("STORAGE", check_storage), ("TRANSPORT", _check_transport)):
        try:
            read(settings)
        except ValueError as error:
            mistakes.append(f"POSTROOM_{name}: {error}")
    return mistakes


@contextlib.asynccontextmanager
async def parts(
    settings: Settings,
    *,
    storage_s: float = WORK_S,
    create_storage: bool = False,
    create_folder: bool = True,
) -> AsyncIterator[Parts]:
    """Storage opened, and closed again whatever happens.

    `storage_s` is how long a call of storage may take, where that is far away. Storage that is
    missing is created only if somebody asks for it: a command that is run in the wrong folder
    must say so, and not work with an empty one. On Azure whichever role comes first creates it.
    """
    mistakes = check(settings)
    if mistakes:
        raise BadSettings(mistakes)
    clock = WallClock()
    if not create_storage:
        check_storage_exists(settings)
    if create_folder:  # no other one: a folder that is missing may be a disk that is not mounted
        await asyncio.to_thread(_create_folder, settings.data)
    create = create_storage or (create_folder and azure_account(settings) is not None)
    async with opened_storage(settings, clock, storage_s=storage_s, create=create) as storage:
        if why := await state.why_closed(storage.tables):
            raise state.StorageClosed(why)
        wakeups = WakeUps(settings.data / "bells")
        counted, health = CountingStorage(storage), MailHealth(mail_server(settings))
        yield Parts(settings, clock, counted, wakeups, pace(settings), health)


def pace(settings: Settings) -> Pace:
    pace = NEAR if azure_account(settings) is None else FAR
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


def importer(parts: Parts, wakeup: WakeUpListener) -> ImportWorker:
    from postroom.web.language import languages  # only here: most commands do without the web

    return ImportWorker(
        parts.storage,
        parts.clock,
        wake=parts.wakeups.ring,
        languages=languages(),
        lease_s=parts.pace.lease_s,
        poll_s=parts.pace.imports_s,
        on_room=wakeup.ring,
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
    from postroom.web.context import WebContext

    settings = parts.settings
    site = Site(settings.url, await installation_secret(parts.storage.tables))
    context = WebContext(
        parts.storage,
        parts.clock,
        parts.wakeups,
        site,
        trusted_proxies=networks(settings.trusted_proxies),
        admin_networks=networks(settings.admin_networks),
        is_url_given=settings.is_url_given,
        has_outbox=not leaves_the_machine(settings),
        has_kept_mails=not await outbox.is_empty(parts.storage.tables),
        mail_server=mail_server(settings),
    )
    return create_app(context)


async def sender(parts: Parts, wakeup: WakeUpListener) -> SenderRole:
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
        wakeup,
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


def may_want_implicit_tls(settings: Settings) -> bool:
    config = _smtp_config(settings)
    return config.port == SUBMISSIONS_PORT and config.tls is not Tls.IMPLICIT


class TransportTrouble(PostroomError):
    """Mails could not leave this way; in the server's words, and with what to do."""

    def __init__(self, words: str, advice: str) -> None:
        super().__init__(words)
        self.advice = advice


async def try_transport(settings: Settings) -> None:
    """Connect, greet, TLS and login as a sender would, and send nothing; or TransportTrouble."""
    timeouts = Timeouts(TRY_S, TRY_S, TRY_S)
    try:
        config = replace(_smtp_config(settings), timeouts=timeouts)
        opened = await session.open_session(config, session.tls_context(config))
    except session.ServerUnavailable as trouble:
        raise TransportTrouble(str(trouble), str(ADVICE[trouble.fault.kind])) from trouble
    except ValueError as error:
        raise TransportTrouble(str(error), "See POSTROOM_TRANSPORT.") from error
    await SmtpConnection(*opened, config).quit()


def _check_transport(settings: Settings) -> None:
    address = settings.transport.get_secret_value()
    if address.startswith("smtp://"):
        parse_smtp_url(address)
    elif address != OUTBOX:
        raise ValueError("must be outbox: or smtp://host:port")


def _create_folder(folder: Path) -> None:
    """For its owner alone, whatever the umask; one that is there stays as it is."""
    if folder.is_dir():
        return
    try:
        folder.mkdir(PRIVATE_FOLDER, parents=True)
        folder.chmod(PRIVATE_FOLDER)
    except OSError as error:
        if folder.is_dir():  # another role was faster
            return
        raise Unavailable(f"The folder {folder} cannot be made: {error.strerror}.") from error
