"""The roles: each is built, run until it is asked to stop, and closed in order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

import structlog

from postroom import metrics, worker
from postroom import sender as sender_role
from postroom.backup.keeper import BackupKeeper
from postroom.bounce_mailbox.reader import MailboxReader
from postroom.domain.errors import WrongState
from postroom.domain.feedback import FeedbackPolicy
from postroom.domain.instance import Vitals
from postroom.domain.retry import RetryRules
from postroom.domain.web_address import host_and_port
from postroom.flow.feedback import FeedbackHandler
from postroom.flow.render import Renderer, Site
from postroom.flow.schedule import waits_for_scheduler
from postroom.importing.worker import ImportWorker
from postroom.process_locks import ProcessLocks
from postroom.records import outbox, storage_format
from postroom.records.secrets import installation_secret
from postroom.records.suppression_filter import SuppressionFilter
from postroom.scheduler import Scheduler
from postroom.sender import Sender
from postroom.sending.journal import FileJournals
from postroom.settings import BadSettings, Settings, networks
from postroom.storage.port import StorageError
from postroom.transport.observed import ObservedTransport
from postroom.wakeup import (
    BACKUP_KEEPER,
    MAILBOX_READER,
    SCHEDULER,
    SENDER,
    WEB,
    WakeUpListener,
)
from postroom.wiring.backups import build_backup_keeper
from postroom.wiring.describing import describe, free_bytes_of
from postroom.wiring.engines import WORK_S
from postroom.wiring.following import (
    LiveSettings,
    following,
    hearing_of_full_disk,
    with_changes,
)
from postroom.wiring.mailboxes import mailbox_of
from postroom.wiring.observing import log_mails, observed, sampled_service, traced_role
from postroom.wiring.parts import Parts, open_parts
from postroom.wiring.transports import transport_of
from postroom.worker import StopRequest

if TYPE_CHECKING:
    from postroom.web.context import WebContext
    from postroom.web.server import WebServer

log = structlog.get_logger("roles")
PAGE_S = 10.0  # longest call to a remote storage while a person waits for a page
COLLECT_AFTER = 50_000  # objects; collecting took a sixth of fan-out, and rows form no cycles
BULK_NICE = 5  # on a busy machine, pages and a mail server come first: a person waits for pages
DRAIN_PAUSE_S = 0.05
DRAIN_IMPORT_S = 1.0  # an import that ends rings
DRAIN_FAULTS_MAX = 4  # attempts to reach the mail server before `drain` gives up


async def build_scheduler(parts: Parts) -> Scheduler:
    settings = parts.settings
    secret = await installation_secret(parts.storage.tables)
    return Scheduler(
        parts.storage,
        parts.clock,
        _new_owner(),
        ProcessLocks(settings.data / "schedulers"),
        intervals=parts.intervals,
        items_ahead=settings.items_ahead,
        keep_archive_days=settings.archive_days,
        keep_traces=(settings.trace_days, settings.trace_rows_max),
        unconfirmed_days=settings.unconfirmed_days,
        audit_days=settings.audit_days,
        dead_letter_days=settings.dead_letter_days,
        is_test_mode=not transport_of(settings).leaves_the_machine,
        suppressions=SuppressionFilter(parts.storage, parts.clock, secret),
    )


async def build_feedback_handler(parts: Parts) -> FeedbackHandler:
    settings = parts.settings
    secret = await installation_secret(parts.storage.tables)
    return FeedbackHandler(parts.storage, parts.clock, secret, _policy_of(settings))


def _policy_of(settings: Settings) -> FeedbackPolicy:
    return FeedbackPolicy(
        strikes_max=settings.soft_bounces_max,
        strikes_days_min=settings.soft_bounces_days,
        pause_share=settings.pause_refused_share,
    )


async def build_mailbox_reader(
    parts: Parts, scheduler: Scheduler, wake: Callable[[], None]
) -> MailboxReader | None:
    """The reader of the bounce mailbox, if there is one; `wake` wakes those who process events."""
    settings = parts.settings
    entry = mailbox_of(settings)
    if entry is None:
        return None
    return MailboxReader(
        parts.storage,
        parts.clock,
        scheduler.owner,
        await installation_secret(parts.storage.tables),
        entry.open(),
        poll_s=settings.bounce_poll_s,
        lease_s=parts.intervals.lease_s,
        wake=wake,
        is_sending=lambda: scheduler.is_sending,
        is_dead=scheduler.locks.is_dead if scheduler.locks else lambda owner: False,
    )


def build_importer(parts: Parts, wakeup: WakeUpListener) -> ImportWorker:
    from postroom.web.language import languages  # here, because most commands do without the web

    return ImportWorker(
        parts.storage,
        parts.clock,
        wake=parts.wakeups.ring,
        languages=languages(),
        lease_s=parts.intervals.lease_s,
        poll_s=parts.intervals.imports_s,
        on_run_ended=wakeup.ring,
    )


async def build_sender(parts: Parts, wakeup: WakeUpListener) -> Sender:
    settings = parts.settings
    storage = parts.storage
    clock = parts.clock
    owner = _new_owner()
    secret = await installation_secret(storage.tables)
    site = Site(settings.url, secret, settings.bounce_domain)
    entry = transport_of(settings)
    transport = entry.open(storage, clock)
    doubt_s = settings.doubt_wait_s if entry.settles_doubts else 0.0
    return sender_role.build_sender(
        storage,
        clock,
        owner,
        ObservedTransport(transport, parts.health.note),
        FileJournals(settings.data / "journals", owner),
        Renderer(storage, site, clock),
        wakeup,
        rules=RetryRules(
            settings.retry_first_s, settings.retry_longest_s, settings.retry_window_s, doubt_s
        ),
        lanes=settings.lanes,
        slice_size=settings.slice_size,
        lease_s=parts.intervals.lease_s,
        claim_s=settings.claim_s,
        poll_s=parts.intervals.poll_s,
        health=parts.health,
    )


async def build_web(parts: Parts, live: LiveSettings) -> tuple[WebServer, WebContext]:
    # Imported here: other roles and most commands do without it and start twice as fast.
    from postroom.web.app import create_app
    from postroom.web.context import WebContext
    from postroom.web.measured import MeasuredApp
    from postroom.web.server import WebServer
    from postroom.web.webhooks.keys import WebhookKeys

    settings = parts.settings
    transport = transport_of(settings)
    context = WebContext(
        parts.storage,
        parts.clock,
        parts.wakeups,
        Site(settings.url, await installation_secret(parts.storage.tables)),
        trusted_proxies=networks(settings.trusted_proxies),
        admin_networks=networks(settings.admin_networks),
        is_url_given=settings.is_url_given,
        has_outbox=not transport.leaves_the_machine,
        has_kept_mails=not await outbox.is_empty(parts.storage.tables),
        mail_server=transport.server,
        has_bounce_mailbox=mailbox_of(settings) is not None,
        transport=transport.description,
        examine_transport=transport.examine,
        webhook_keys=WebhookKeys(
            settings.sendgrid_webhook_key,
            settings.mailgun_webhook_key.get_secret_value(),
            settings.sns_topics,
        ),
        settings=live.started,
        setting_descriptions=describe(settings),
        free_bytes=functools.partial(free_bytes_of, settings),
    )
    server = WebServer(
        MeasuredApp(create_app(context), metrics.request_times(parts.registry)),
        settings.stop_grace_s,
        settings.stop_notice_s,
        trusted_proxies=networks(settings.trusted_proxies),
    )
    return server, context


async def run_scheduler(settings: Settings, *, supervised: bool = False) -> None:
    """Schedule messages and, whether or not this scheduler leads, run imports and feedback.

    One of all schedulers reads the bounce mailbox.
    """
    os.nice(BULK_NICE)
    async with (
        _role_parts("scheduler", settings) as (parts, live),
        sampled_service(parts),
    ):
        wakeup = parts.wakeups.listen(SCHEDULER)
        stop = StopRequest(wakeup, supervised=supervised)
        scheduler = await build_scheduler(parts)
        import_wakeup = parts.wakeups.listen(SCHEDULER)
        importer = build_importer(parts, import_wakeup)
        stop.then(import_wakeup.ring)
        feedback_wakeup = parts.wakeups.listen(SCHEDULER)
        handler = await build_feedback_handler(parts)
        stop.then(feedback_wakeup.ring)
        reader = await build_mailbox_reader(parts, scheduler, feedback_wakeup.ring)
        keeper = build_backup_keeper(parts, lambda: scheduler.lease is not None)
        intervals = parts.intervals

        def apply(changed: Settings) -> None:
            _apply_to_scheduler(changed, scheduler, handler, reader)

        async def feedback_rest_s() -> float:
            return intervals.feedback_s if scheduler.is_sending else intervals.imports_s

        async def step() -> bool:
            is_busy = await scheduler.step()
            if is_busy:
                parts.wakeups.ring(SENDER)
            return is_busy

        stop.vitals = lambda: Vitals(
            busy=int(scheduler.is_sending), is_leading=scheduler.lease is not None
        )
        _tune_garbage_collection()
        try:
            async with following(parts, live, "scheduler", stop, apply):
                await asyncio.gather(
                    worker.run(step, scheduler.rest_s, wakeup, stop, parts.clock),
                    worker.run(importer.step, importer.rest_s, import_wakeup, stop, parts.clock),
                    worker.run(handler.step, feedback_rest_s, feedback_wakeup, stop, parts.clock),
                    *([_read_mailbox(reader, parts, stop)] if reader else []),
                    *([_keep_backups(keeper, parts, stop)] if keeper else []),
                )
        finally:
            await scheduler.stop()
            await importer.close(settings.stop_grace_s)
            feedback_wakeup.close()
            import_wakeup.close()
            wakeup.close()


def _apply_to_scheduler(
    settings: Settings,
    scheduler: Scheduler,
    handler: FeedbackHandler,
    reader: MailboxReader | None,
) -> None:
    scheduler.items_ahead = settings.items_ahead
    scheduler.keep_archive_days = settings.archive_days
    scheduler.unconfirmed_days = settings.unconfirmed_days
    scheduler.audit_days = settings.audit_days
    scheduler.dead_letter_days = settings.dead_letter_days
    handler.policy = _policy_of(settings)
    if reader:
        reader.poll_s = settings.bounce_poll_s


async def _read_mailbox(reader: MailboxReader, parts: Parts, stop: StopRequest) -> None:
    """Read the mailbox at its own pace, unaffected by other wake-ups of the role."""
    wakeup = parts.wakeups.listen(MAILBOX_READER)
    stop.then(reader.stop)
    stop.then(wakeup.ring)
    try:
        await worker.run(reader.step, reader.rest_s, wakeup, stop, parts.clock)
    finally:
        with contextlib.suppress(StorageError):  # then its lease expires
            await reader.close()
        wakeup.close()


async def _keep_backups(keeper: BackupKeeper, parts: Parts, stop: StopRequest) -> None:
    """Make scheduled backups in the background, at their own pace."""
    wakeup = parts.wakeups.listen(BACKUP_KEEPER)
    stop.then(keeper.stop)
    stop.then(wakeup.ring)
    try:
        await worker.run(keeper.step, keeper.rest_s, wakeup, stop, parts.clock)
    finally:
        wakeup.close()


async def run_sender(settings: Settings, *, supervised: bool = False) -> None:
    os.nice(BULK_NICE)
    async with (
        _role_parts("sender", settings) as (parts, live),
        _open_sender(parts, supervised=supervised) as (sender, wakeup, stop),
    ):

        def apply(settings: Settings) -> None:
            sender.claim_s = settings.claim_s
            sender.rules.first_s = settings.retry_first_s
            sender.rules.longest_s = settings.retry_longest_s
            sender.rules.window_s = settings.retry_window_s

        stop.vitals = sender.vitals
        _tune_garbage_collection()
        summing_up = asyncio.create_task(log_mails(parts))
        try:
            async with following(parts, live, "sender", stop, apply):
                await worker.run(sender.step, sender.rest_s, wakeup, stop, parts.clock)
        finally:
            summing_up.cancel()


async def run_web(settings: Settings, *, supervised: bool = False) -> None:
    """Serve pages and the API; requests in progress are finished within the grace period."""
    with listening(settings) as listener:
        async with _role_parts("web", settings, timeout_s=PAGE_S) as (parts, live):
            server, context = await build_web(parts, live)
            with contextlib.closing(parts.wakeups.listen(WEB)) as wakeup:
                stop = StopRequest(wakeup, supervised=supervised)
                await _serve_pages(parts, live, server, context, listener, stop)


async def _serve_pages(
    parts: Parts,
    live: LiveSettings,
    server: WebServer,
    context: WebContext,
    listener: socket.socket,
    stop: StopRequest,
) -> None:
    stop.then(server.stop)
    stop.vitals = server.vitals
    _tune_garbage_collection()
    async with following(parts, live, "web", stop), hearing_of_full_disk(parts, context.full_disk):
        await server.run(listener)


async def drain(settings: Settings) -> None:
    """Do everything that is due in this process: imports, the bounce mailbox, then emails."""
    async with (
        open_parts(settings) as opened,
        _with_changes(opened) as parts,
        traced_role("drain", parts),
        _open_sender(parts) as (sender, wakeup, stop),
    ):
        scheduler = await build_scheduler(parts)
        handler = await build_feedback_handler(parts)
        try:
            await _drain_imports(parts, wakeup, stop)
            await _drain_mailbox(parts, scheduler, wakeup, stop)
            while not stop.is_asked and await drain_step(scheduler, sender, handler, wakeup):
                pass
        finally:
            await scheduler.stop()


@contextlib.asynccontextmanager
async def _with_changes(opened: Parts) -> AsyncIterator[Parts]:
    parts, _live = await with_changes(opened)
    yield parts


async def _drain_imports(parts: Parts, wakeup: WakeUpListener, stop: StopRequest) -> None:
    """Run the imports that wait; one that is interrupted goes back into its queue."""
    importer = build_importer(parts, wakeup)
    try:
        while not stop.is_asked and await importer.step():
            while not (stop.is_asked or importer.is_idle):
                await wakeup.wait(DRAIN_IMPORT_S)
    finally:
        await importer.close(parts.settings.stop_grace_s)


async def _drain_mailbox(
    parts: Parts, scheduler: Scheduler, wakeup: WakeUpListener, stop: StopRequest
) -> None:
    """Read the bounce mailbox to its end, unless another process reads it."""
    reader = await build_mailbox_reader(parts, scheduler, wakeup.ring)
    if reader is None:
        return
    stop.then(reader.stop)
    try:
        while not stop.is_asked and await reader.step():
            pass
    finally:
        with contextlib.suppress(StorageError):  # then its lease expires
            await reader.close()


async def drain_step(
    scheduler: Scheduler, sender: Sender, handler: FeedbackHandler, wakeup: WakeUpListener
) -> bool:
    """Run one step of each role; return whether there is more to do."""
    is_busy = await scheduler.step()
    is_busy |= await sender.step()
    is_busy |= await handler.step()
    if is_busy:
        return True
    faults = sender.breaker.faults
    pause_s = await sender.rest_s() if faults else DRAIN_PAUSE_S
    if faults >= DRAIN_FAULTS_MAX:
        if (trouble := sender.health.trouble) is None:
            raise WrongState(
                "The mail server accepts no emails. See the log, and run “postroom doctor”."
            )
        words = str(trouble.sentence).removesuffix(".")
        raise WrongState(
            f"{words}. {trouble.advice} Nothing is lost. Run the command again once it works."
        )
    if sender.is_idle and sender.has_recovered:
        if await scheduler.step_and_report():
            return True
        tables = scheduler.storage.tables
        if scheduler.lease or not await waits_for_scheduler(tables, scheduler.clock.now()):
            return False
        # Another scheduler leads, or led until it died: it does the rest, or its lease ends.
    await wakeup.wait(pause_s)
    return True


@contextlib.contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """Listen on the address of the web role, which no other process can use meanwhile."""
    address = host_and_port(settings.bind)
    try:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        listener = socket.create_server(address, family=family)
    except (OSError, OverflowError) as error:
        raise BadSettings(
            [f"POSTROOM_BIND: cannot listen on {settings.bind} ({error}). Choose another port."]
        ) from error
    with listener:
        yield listener


@contextlib.asynccontextmanager
async def _role_parts(
    role: str, settings: Settings, *, timeout_s: float = WORK_S
) -> AsyncIterator[tuple[Parts, LiveSettings]]:
    """The parts of a role, with its metrics shown; its settings are as people changed them."""
    async with open_parts(settings, timeout_s=timeout_s) as parts:
        parts, live = await with_changes(parts)
        await storage_format.mark(parts.storage.tables)
        async with observed(role, parts):
            yield parts, live


@contextlib.asynccontextmanager
async def _open_sender(
    parts: Parts, *, supervised: bool = False
) -> AsyncIterator[tuple[Sender, WakeUpListener, StopRequest]]:
    """A sender that stops on signals and finishes the mails in hand when it is closed."""
    wakeup = parts.wakeups.listen(SENDER)
    sender = await build_sender(parts, wakeup)
    stop = StopRequest(wakeup, supervised=supervised)
    stop.then(sender.stop_handing_over)
    await sender.open()
    try:
        yield sender, wakeup, stop
    finally:
        await sender.close(parts.settings.stop_grace_s)
        wakeup.close()


def _new_owner() -> str:
    """The owner of a lease: unique, and readable in a log."""
    return f"{socket.gethostname()[:20]}.{os.getpid()}.{secrets.token_hex(3)}".replace("/", "-")


def _tune_garbage_collection() -> None:
    """Exempt everything built so far from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 10, 10)
