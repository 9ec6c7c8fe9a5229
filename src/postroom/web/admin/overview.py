"""The overview: messages being sent, scheduled and recently sent, senders and queues."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.domain.dead_letter import DeadLetters, grouped
from postroom.domain.message import GOING_OUT, Message, Status
from postroom.flow import report
from postroom.records import counts, dead_letters, leases, lists, messages
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE
from postroom.storage.port import Storage, StorageError, Troubles
from postroom.web.admin.messages.progress import has_fresh_books
from postroom.web.context import WebContext, context_of, one_per_app
from postroom.web.live_updates import SharedPoll, Update, polls_of, stream
from postroom.web.mail_server import SharedTrouble, shared_troubles
from postroom.web.pages import part, show
from postroom.web.server import stopping_of
from postroom.web.signed_in import Viewer

router = APIRouter()
MESSAGES_LOOKED_AT = 30
SHOWN_MAX = 5
GAUGED_EVERY_S = 10.0
GAUGED_FOR = timedelta(hours=1)  # what the charts show, and how long nobody has to look
GAUGES_MAX = 360
TROUBLES_SHOWN_FOR_S = 600.0


class QueueSample(msgspec.Struct, frozen=True):
    at: float  # seconds since the epoch
    waiting: int
    senders: int


class Overview(msgspec.Struct, frozen=True):
    going_out: list[Message]
    next: list[Message]
    last: list[Message]
    drafts: int
    waiting: int  # work items
    dead_letters: int
    senders: int
    first_list: str  # its name; empty: there is none yet
    has_people: bool = False  # on that list, who get messages
    has_message: bool = False
    mail_troubles: tuple[SharedTrouble, ...] = ()
    drafts_among: int = 0  # so many of the newest messages were looked at; 0: all
    troubles: Troubles = Troubles()  # of living roles with storage, if lately
    queue_history: tuple[QueueSample, ...] = ()
    set_aside: list[DeadLetters] = []  # the oldest dead letters, by reason

    @property
    def queue_curve(self) -> str:
        """Times and work items for the chart."""
        return json.dumps(
            [[at.at for at in self.queue_history], [at.waiting for at in self.queue_history]]
        )

    @property
    def sender_curve(self) -> str:
        return json.dumps(
            [[at.at for at in self.queue_history], [at.senders for at in self.queue_history]]
        )

    @property
    def trouble_at(self) -> datetime:
        return datetime.fromtimestamp(self.troubles.last_at, UTC)

    @property
    def has_list(self) -> bool:
        return bool(self.first_list)

    @property
    def is_new(self) -> bool:
        """Nothing was sent yet outside test mode, so the page shows the first steps."""
        return all(each.is_test for each in self.last) and not self.going_out


@router.get("")
async def overview_page(request: Request, signed_in: Viewer) -> Response:
    context = context_of(request)
    overview = await look(context, _gauges_of(request))
    return show(request, signed_in, "overview.html", overview=overview, context=context)


@router.get("/live")
async def live(request: Request, signed_in: Viewer) -> Response:
    context = context_of(request)
    queue_history = _gauges_of(request)

    def new_pulse() -> SharedPoll[Overview]:
        return SharedPoll(lambda: look(context, queue_history), context.clock)

    poll = polls_of(request).of("overview", new_pulse)
    return stream(request, signed_in, poll, "overview", _news)


def _news(now: Overview, before: Overview | None) -> Update:
    return Update() if now == before else Update(part("overview_live.html", overview=now))


class QueueHistory:
    """The last hour of the queue and the senders, as this process saw it.

    From the first look at the overview on, until nobody has looked for an hour.
    """

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._taken: deque[QueueSample] = deque(maxlen=GAUGES_MAX)
        self._looked_at: datetime = context.clock.now()
        self._task: asyncio.Task[None] | None = None

    def look(self, stopping: asyncio.Event) -> None:
        self._looked_at = self._context.clock.now()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_gauging(stopping))

    def taken(self, now: datetime) -> tuple[QueueSample, ...]:
        since = (now - GAUGED_FOR).timestamp()
        return tuple(each for each in self._taken if each.at >= since)

    async def _keep_gauging(self, stopping: asyncio.Event) -> None:
        while self._context.clock.now() < self._looked_at + GAUGED_FOR:
            with contextlib.suppress(StorageError):  # a gap in the curve
                self._taken.append(await _gauge(self._context))
            try:
                async with asyncio.timeout(GAUGED_EVERY_S):
                    await stopping.wait()
                return
            except TimeoutError:
                continue


async def _gauge(context: WebContext) -> QueueSample:
    storage = context.storage
    now = context.clock.now()
    waiting = await storage.queues.length(MAIL_QUEUE)
    running = await leases.living(storage.tables, now)
    return QueueSample(now.timestamp(), waiting, leases.senders_among(running))


def _gauges_of(request: Request) -> QueueHistory:
    queue_history = one_per_app(request.app, QueueHistory, context_of(request))
    queue_history.look(stopping_of(request))
    return queue_history


async def look(context: WebContext, queue_history: QueueHistory) -> Overview:
    storage = context.storage
    now = context.clock.now()
    found, older = await messages.newest(storage.tables, limit=MESSAGES_LOOKED_AT)
    drafts = sum(each.status is Status.DRAFT for each in found)
    if older:  # what has a time may have been written long ago
        known = {each.ref for each in found}
        found += await messages.scheduled_or_sending(
            storage.tables, limit=MESSAGES_LOOKED_AT, besides=known
        )
    waiting, dead = await asyncio.gather(
        storage.queues.length(MAIL_QUEUE), storage.queues.length(DEAD_LETTER_QUEUE)
    )
    alive = await leases.living(storage.tables, now)
    first_list = await _first_list(storage)
    going = [each for each in found if each.status in GOING_OUT | {Status.PAUSED}]
    pending = sorted(
        (each for each in found if each.status is Status.PENDING and each.due_at),
        key=lambda each: each.due_at or now,
    )
    return Overview(
        going_out=[await _counted(storage, each) for each in going[:SHOWN_MAX]],
        next=pending[:SHOWN_MAX],
        last=[each for each in found if each.completed_at][:SHOWN_MAX],
        drafts=drafts,
        drafts_among=MESSAGES_LOOKED_AT if older else 0,
        waiting=waiting,
        dead_letters=dead,
        senders=leases.senders_among(alive),
        first_list=first_list,
        has_people=await _has_people(storage, first_list),
        has_message=bool(found),
        mail_troubles=shared_troubles(alive, now),
        queue_history=queue_history.taken(now),
        set_aside=grouped(await dead_letters.oldest(storage.queues)) if dead else [],
        troubles=_troubles([storage.troubles, *(lease.troubles for lease in alive)], now),
    )


def _troubles(met: Sequence[Troubles], now: datetime) -> Troubles:
    """The storage troubles of all roles combined, unless the last one is long past."""
    last_at = max(each.last_at for each in met)
    if last_at + TROUBLES_SHOWN_FOR_S < now.timestamp():
        return Troubles()
    refused = sum(each.refused for each in met)
    in_doubt = sum(each.in_doubt for each in met)
    return Troubles(refused, in_doubt, last_at)


async def _counted(storage: Storage, message: Message) -> Message:
    return message if has_fresh_books(message) else await report.books_of(storage.tables, message)


async def _has_people(storage: Storage, list_name: str) -> bool:
    return bool(list_name) and (await counts.read(storage.tables, list_name)).verified > 0


async def _first_list(storage: Storage) -> str:
    found, _ = await lists.page(storage.tables, limit=1)
    return found[0].name if found else ""
