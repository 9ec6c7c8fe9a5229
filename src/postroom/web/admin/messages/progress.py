"""The live progress of a message: its books, its rate, the time left."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.delivery import State
from postroom.domain.message import GOING_OUT, Message, Status
from postroom.domain.texts import Text, _
from postroom.flow import report
from postroom.records import batches, messages
from postroom.storage.port import Tables
from postroom.web.admin.admin_request import Viewer
from postroom.web.context import WebContext
from postroom.web.live_updates import SharedPoll, SharedPolls, Update, polls_of, stream
from postroom.web.mail_server import SharedTrouble, troubles_now
from postroom.web.pages import number, part

router = APIRouter(prefix="/messages")
CURVE_S = 600.0
RATE_OVER_S = 20.0  # the window of the current rate and the time left
SLOWEST = 0.05  # emails per second; anything slower counts as stopped
SMOOTHED_OVER_S = 5.0  # a point of the curve
BOOKS_FRESH_S = 5.0  # the scheduler counts about once a second; if it does not, we do
GROUPS_READ_MAX = 20  # to find deferred recipients: ledgers of about 200,000 people


class RateSample(msgspec.Struct, frozen=True):
    at: float  # seconds since the epoch
    done: int  # recipients with an outcome
    rate: float = 0.0  # a point of the curve


class DeferredPeople(msgspec.Struct, frozen=True):
    """Queued recipients that the mail server deferred."""

    people: int = 0
    next_at: datetime | None = None


class MessageProgress(msgspec.Struct, frozen=True):
    """A message at one moment."""

    message: Message
    samples: tuple[RateSample, ...] = ()
    mail_troubles: tuple[SharedTrouble, ...] = ()  # if it waits for the mail server
    deferred: DeferredPeople = DeferredPeople()
    is_deleted: bool = False  # the message is as it was last read

    @property
    def is_waiting(self) -> bool:
        """Everybody has an outcome, except those who were deferred."""
        waiting = self.deferred.people
        return waiting > 0 and waiting == self.message.books.open

    @property
    def rate(self) -> float:
        """Emails per second, recently."""
        return _rate(self.samples, RATE_OVER_S)

    @property
    def pace(self) -> str:
        """The rate as text; empty while nothing is being sent."""
        is_paused = self.message.status is Status.PAUSED
        if self.rate < SLOWEST or is_paused or self.is_waiting:
            return ""
        return number(round(self.rate)) if self.rate >= 10 else f"{self.rate:.1f}"

    @property
    def left(self) -> Text | None:
        """The time left at the current rate; None if unknown."""
        if not self.pace:
            return None
        open_ = self.message.books.open + self.message.size - self.message.audience
        open_ -= self.deferred.people  # the server decides when, not our rate
        return duration_text(open_ / self.rate) if open_ > 0 else None

    @property
    def took(self) -> Text | None:
        """From the first recipient queued to the last outcome."""
        message = self.message
        if message.completed_at is None or message.queuing_at is None:
            return None
        return duration_text((message.completed_at - message.queuing_at).total_seconds())

    @property
    def curve(self) -> str:
        """Times and rates for the chart."""
        points = self.samples[1:]
        return json.dumps([[each.at for each in points], [each.rate for each in points]])


def duration_text(seconds: float) -> Text:
    """“22 s”, “5 min”, “3 h 20 min”."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 3:
        return _("{seconds} s", seconds=minutes * 60 + rest)
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return _("{minutes} min", minutes=minutes)
    return _("{hours} h {minutes} min", hours=hours, minutes=minutes)


def _rate(samples: Sequence[RateSample], over_s: float) -> float:
    """The rate between the first and the last recent reading."""
    if len(samples) < 2:
        return 0.0
    *earlier, last = samples
    first = next((each for each in earlier if each.at >= last.at - over_s), earlier[-1])
    return max(0.0, (last.done - first.done) / max(0.001, last.at - first.at))


class ProgressReader:
    """Reads one message repeatedly and remembers its last minutes."""

    def __init__(self, polls: SharedPolls, context: WebContext, message: Message) -> None:
        self._polls = polls
        self._context = context
        self._samples: deque[RateSample] = deque()
        self._row = message
        self._row_changed_s = context.clock.now().timestamp()

    async def read(self) -> MessageProgress:
        tables = self._context.storage.tables
        row = await messages.find(tables, self._row.ref)
        if row is None:
            return MessageProgress(self._row, is_deleted=True)
        now_s = self._context.clock.now().timestamp()
        if row != self._row:
            self._row = row
            self._row_changed_s = now_s
        is_counted = has_fresh_books(row) and now_s < self._row_changed_s + BOOKS_FRESH_S
        message = row if is_counted else await report.books_of(tables, row)
        sample = RateSample(now_s, message.books.total - message.books.open)
        rate = round(_rate([*self._samples, sample], SMOOTHED_OVER_S), 1)
        self._samples.append(msgspec.structs.replace(sample, rate=rate))
        while self._samples[0].at < now_s - CURVE_S:
            self._samples.popleft()
        troubles = await _troubles(self._polls, self._context, message)
        deferred = await _deferred_of(tables, message, now_s)
        return MessageProgress(message, tuple(self._samples), troubles, deferred)


def has_fresh_books(message: Message) -> bool:
    """The scheduler counts about once a second while it has nothing else to do with it."""
    is_reported = message.status is Status.PROCESSING and message.books.total == message.audience
    return is_reported or message.completed_at is not None


async def with_current_books(tables: Tables, message: Message) -> Message:
    return message if has_fresh_books(message) else await report.books_of(tables, message)


async def _deferred_of(tables: Tables, message: Message, now_s: float) -> DeferredPeople:
    """Recipients waiting for a retry, once everybody is queued; none if too many to read."""
    closed_groups = int(message.closed_groups, 16)
    open_ = [group for group in batches.groups(message.batches) if not closed_groups >> group & 1]
    has_queued = message.status is Status.PROCESSING and message.books.queued
    if not has_queued or len(open_) > GROUPS_READ_MAX:
        return DeferredPeople()
    times = [
        wait.retry_at
        for group in open_
        for ledger, _etag in await batches.load_group(tables, message.ref, group)
        for at, wait in ledger.deferred.items()
        if wait.attempts and wait.retry_at > now_s and ledger.states[at] == State.QUEUED
    ]
    next_at = datetime.fromtimestamp(min(times), UTC) if times else None
    return DeferredPeople(len(times), next_at)


async def progress_of(polls: SharedPolls, context: WebContext, message: Message) -> MessageProgress:
    """The shared reading if somebody watches the message, else its current books."""
    watched = polls.latest(message.ref)
    if isinstance(watched, MessageProgress) and not watched.is_deleted:
        return watched
    tables = context.storage.tables
    troubles = await _troubles(polls, context, message)
    if not has_fresh_books(message):
        # By status and round, so that what somebody has just done with the message shows at once.
        name = f"{message.ref} {message.status} {message.restarts}"
        message = await polls.cached_read(name, partial(report.books_of, tables, message))
    deferred = await _deferred_of(tables, message, context.clock.now().timestamp())
    return MessageProgress(message, mail_troubles=troubles, deferred=deferred)


async def _troubles(
    polls: SharedPolls, context: WebContext, message: Message
) -> tuple[SharedTrouble, ...]:
    """The problem that keeps a message from being sent."""
    if message.status not in GOING_OUT | {Status.PENDING}:
        return ()
    return await troubles_now(polls, context)


@router.get("/{ref}/live")
async def live(request: Viewer, ref: str) -> Response:
    polls = polls_of(request.http)
    message = await messages.read(request.tables, ref)

    def new_poll() -> SharedPoll[MessageProgress]:
        reader = ProgressReader(polls, request.context, message)
        return SharedPoll(reader.read, request.context.clock)

    def render(now: MessageProgress, before: MessageProgress | None) -> Update:
        """The live part of the page; its buttons only if they change, so that none loses focus."""
        if now.is_deleted:
            return Update(is_last=True)
        is_last = now.message.completed_at is not None
        if before and _shown(before) == _shown(now):
            return Update(is_last=is_last)
        piece = part(
            "messages/live.html",
            message=now.message,
            progress=now,
            signed_in=request.signed_in,
            has_new_actions=before is None or _acted_on(before) != _acted_on(now) or is_last,
            is_update=True,
        )
        return Update(piece, is_last)

    return stream(request.http, request.signed_in, polls.of(ref, new_poll), "books", render)


def _shown(progress: MessageProgress) -> tuple[object, ...]:
    return progress.message, round(progress.rate), progress.deferred, progress.mail_troubles


def _acted_on(progress: MessageProgress) -> tuple[object, ...]:
    """What the buttons depend on."""
    message = progress.message
    return message.status, message.books.failed, message.books.held
