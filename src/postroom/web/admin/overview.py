"""The overview: trouble first, then the audience, messages, senders and queues."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.backup import BackupRecord
from postroom.domain.dead_letter import DeadLetters, grouped
from postroom.domain.feedback import MAILBOX_SOURCE
from postroom.domain.message import GOING_OUT, Message, Status
from postroom.domain.scaling import ScalingChange
from postroom.records import (
    backups,
    counts,
    dead_letters,
    instances,
    leases,
    lists,
    messages,
    webhooks,
)
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE
from postroom.records.webhooks import WebhookCounts
from postroom.storage.port import StorageError, Troubles
from postroom.web.admin.admin_request import AdminRequest, Viewer
from postroom.web.admin.audience import Audience, AudienceCache
from postroom.web.admin.messages.progress import with_current_books
from postroom.web.context import WebContext, one_per_app
from postroom.web.live_updates import SharedPoll, Update, polls_of, stream
from postroom.web.mail_server import SharedTrouble, shared_troubles
from postroom.web.pages import part
from postroom.web.server import stopping_of

router = APIRouter()
MESSAGES_SEARCHED = 30
SHOWN_MAX = 5
SAMPLED_EVERY_S = 10.0
HISTORY = timedelta(hours=1)  # shown in the charts; sampling stops an hour after the last view
SAMPLES_MAX = 360
TROUBLES_SHOWN_FOR_S = 600.0
FULL_S = 12.0  # roles that cannot write try again more often than this


class QueueSample(msgspec.Struct, frozen=True):
    at: float  # seconds since the epoch
    waiting: int
    senders: int


class FullDisk(msgspec.Struct, frozen=True):
    """There is no space for the database, or there was none a while ago."""

    at: datetime  # when a role last could not write
    is_now: bool
    free_bytes: int | None = None  # as the operating system says; a quota may be tighter


class Overview(msgspec.Struct, frozen=True):
    going_out: list[Message]
    next: list[Message]
    last: list[Message]
    drafts: int
    waiting: int  # work items
    dead_letters: int
    senders: int
    first_list: str  # its name; empty: there is none yet
    audience: Audience = Audience()
    has_people: bool = False  # that list has confirmed subscribers
    has_message: bool = False
    mail_troubles: tuple[SharedTrouble, ...] = ()
    bounce_mailbox: WebhookCounts = WebhookCounts()  # what was read, and what went wrong
    drafts_among: int = 0  # the number of newest messages that were searched; 0: all
    troubles: Troubles = Troubles()  # recent problems of running roles with storage
    queue_history: tuple[QueueSample, ...] = ()
    set_aside: list[DeadLetters] = []  # the oldest dead letters, by reason
    self_paused: list[Message] = []  # by refusals that are our fault
    restored: list[Message] = []  # held, because they may have been sent since a backup
    backup: BackupRecord | None = None  # of the scheduled backups
    full_disk: FullDisk | None = None
    scaling: tuple[ScalingChange, ...] = ()  # the last change on each machine
    starts_senders: bool = False  # a supervisor starts them when there is something to send

    def curve(self, name: str) -> str:
        """Times and values of this field of the samples, for a chart."""
        samples = self.queue_history
        return json.dumps(
            [[each.at for each in samples], [getattr(each, name) for each in samples]]
        )

    @property
    def trouble_at(self) -> datetime:
        return datetime.fromtimestamp(self.troubles.last_at, UTC)

    @property
    def is_new(self) -> bool:
        """Nothing was sent yet outside test mode, so the page shows the first steps."""
        return all(each.is_test for each in self.last) and not self.going_out


@router.get("")
async def overview_page(request: Viewer) -> Response:
    audience = _audience(request)
    await audience.count(request.tables, request.now())
    overview = await read_overview(request.context, _queue_history(request), audience)
    return request.show("overview.html", overview=overview)


@router.get("/live")
async def live(request: Viewer) -> Response:
    context = request.context
    queue_history = _queue_history(request)
    audience = _audience(request)

    def new_poll() -> SharedPoll[Overview]:
        return SharedPoll(lambda: read_overview(context, queue_history, audience), context.clock)

    def render(now: Overview, before: Overview | None) -> Update:
        return Update() if now == before else Update(part("overview_live.html", overview=now))

    poll = polls_of(request.http).of("overview", new_poll)
    return stream(request.http, request.signed_in, poll, "overview", render)


class QueueHistory:
    """The last hour of the queue and the senders, as this process saw it.

    Sampling starts with the first view of the overview and stops an hour after the last.
    """

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._samples: deque[QueueSample] = deque(maxlen=SAMPLES_MAX)
        self._viewed_at: datetime = context.clock.now()
        self._task: asyncio.Task[None] | None = None

    def keep_sampling(self, stopping: asyncio.Event) -> None:
        self._viewed_at = self._context.clock.now()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._sample_regularly(stopping))

    def recent(self, now: datetime) -> tuple[QueueSample, ...]:
        since = (now - HISTORY).timestamp()
        return tuple(each for each in self._samples if each.at >= since)

    async def _sample_regularly(self, stopping: asyncio.Event) -> None:
        storage = self._context.storage
        while (now := self._context.clock.now()) < self._viewed_at + HISTORY:
            with contextlib.suppress(StorageError):  # a gap in the curve
                waiting = await storage.queues.length(MAIL_QUEUE)
                senders = leases.senders_among(await leases.living(storage.tables, now))
                self._samples.append(QueueSample(now.timestamp(), waiting, senders))
            try:
                async with asyncio.timeout(SAMPLED_EVERY_S):
                    await stopping.wait()
                return
            except TimeoutError:
                continue


def _queue_history(request: AdminRequest) -> QueueHistory:
    queue_history = one_per_app(request.http.app, QueueHistory, request.context)
    queue_history.keep_sampling(stopping_of(request.http))
    return queue_history


def _audience(request: AdminRequest) -> AudienceCache:
    return one_per_app(request.http.app, AudienceCache)


async def read_overview(
    context: WebContext, queue_history: QueueHistory, audience: AudienceCache
) -> Overview:
    storage = context.storage
    tables = storage.tables
    now = context.clock.now()
    found, older = await messages.newest(tables, limit=MESSAGES_SEARCHED)
    drafts = sum(each.status is Status.DRAFT for each in found)
    if older:  # a scheduled message may have been written long ago
        found += await messages.scheduled_or_sending(
            tables, limit=MESSAGES_SEARCHED, besides={each.ref for each in found}
        )
    waiting, dead = await asyncio.gather(
        storage.queues.length(MAIL_QUEUE), storage.queues.length(DEAD_LETTER_QUEUE)
    )
    alive = await leases.living(tables, now)
    supervisors = [each for each in await instances.running(tables, now) if each.limits]
    first_lists, _next = await lists.page(tables, limit=1)
    first_list = first_lists[0].name if first_lists else ""
    going_out = [each for each in found if each.status in GOING_OUT | {Status.PAUSED}]
    pending = sorted(
        (each for each in found if each.status is Status.PENDING and each.due_at),
        key=lambda each: each.due_at or now,
    )
    return Overview(
        going_out=[await with_current_books(tables, each) for each in going_out[:SHOWN_MAX]],
        self_paused=[each for each in going_out if each.self_pause][:SHOWN_MAX],
        restored=[each for each in going_out if each.restore_hold][:SHOWN_MAX],
        backup=await backups.find(tables),
        next=pending[:SHOWN_MAX],
        last=[each for each in found if each.completed_at][:SHOWN_MAX],
        drafts=drafts,
        drafts_among=MESSAGES_SEARCHED if older else 0,
        waiting=waiting,
        dead_letters=dead,
        senders=leases.senders_among(alive),
        first_list=first_list,
        audience=await audience.read(tables, now),
        has_people=bool(first_list) and (await counts.read(tables, first_list)).verified > 0,
        has_message=bool(found),
        mail_troubles=shared_troubles(alive, now),
        bounce_mailbox=await _read_mailbox_counts(context),
        queue_history=queue_history.recent(now),
        set_aside=grouped(await dead_letters.oldest(storage.queues)) if dead else [],
        troubles=_recent_troubles([storage.troubles, *(lease.troubles for lease in alive)], now),
        full_disk=_find_full_disk(context, [lease.troubles for lease in alive], now),
        scaling=tuple(each.changes[0] for each in supervisors if each.changes),
        starts_senders=any(each.limits and each.limits.maximum for each in supervisors),
    )


def _find_full_disk(
    context: WebContext, by_role: Sequence[Troubles], now: datetime
) -> FullDisk | None:
    """What this process and the other roles of this machine report about a full disk.

    Leases report the other machines, but not this one while nothing can be written.
    """
    seen = [context.storage.troubles.full_at, context.full_disk.heard_at]
    last_at = max([*seen, *(each.full_at for each in by_role)])
    if last_at + TROUBLES_SHOWN_FOR_S < now.timestamp():
        return None
    is_now = now.timestamp() < last_at + FULL_S
    free_bytes = context.free_bytes() if is_now else None
    return FullDisk(datetime.fromtimestamp(last_at, UTC), is_now, free_bytes)


async def _read_mailbox_counts(context: WebContext) -> WebhookCounts:
    if not context.has_bounce_mailbox:
        return WebhookCounts()
    return await webhooks.find_counts(context.storage.tables, MAILBOX_SOURCE)


def _recent_troubles(by_role: Sequence[Troubles], now: datetime) -> Troubles:
    """The storage troubles of all roles combined, unless the last one is long past."""
    last_at = max(each.last_at for each in by_role)
    if last_at + TROUBLES_SHOWN_FOR_S < now.timestamp():
        return Troubles()
    refused = sum(each.refused for each in by_role)
    in_doubt = sum(each.in_doubt for each in by_role)
    return Troubles(refused, in_doubt, last_at)
