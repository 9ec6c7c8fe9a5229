"""The live progress of a message: its books, its rate, the time left."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.clock import Clock
from postroom.domain.delivery import State
from postroom.domain.message import GOING_OUT, Message, Status
from postroom.domain.texts import Text, _
from postroom.flow import report
from postroom.records import batches, messages
from postroom.storage.port import Tables
from postroom.web.context import WebContext, context_of
from postroom.web.live_updates import SharedPoll, SharedPolls, Update, polls_of, stream
from postroom.web.mail_server import SharedTrouble, troubles_now
from postroom.web.pages import number, part
from postroom.web.signed_in import SignedIn, Viewer

router = APIRouter(prefix="/messages")
CURVE_S = 600.0
RATE_OVER_S = 20.0  # what “now” means for the rate and the time left
SLOWEST = 0.05  # mails a second: anything less is standing still
SMOOTHED_OVER_S = 5.0  # a point of the curve
COUNTED_LATELY_S = 5.0  # the scheduler counts about once a second; if it does not, we do
GROUPS_LOOKED_AT = 20  # for those who wait to retry: ledgers of about 200,000 people


class RateSample(msgspec.Struct, frozen=True):
    at: float  # seconds since the epoch
    done: int  # people whose fate is known
    rate: float = 0.0  # a point of the curve


class DeferredPeople(msgspec.Struct, frozen=True):
    """Queued recipients that the mail server deferred."""

    people: int = 0
    next_at: datetime | None = None


class MessageProgress(msgspec.Struct, frozen=True):
    """A message at one moment; None once it is deleted."""

    message: Message | None
    samples: tuple[RateSample, ...] = ()
    mail_troubles: tuple[SharedTrouble, ...] = ()  # if it waits for the mail server
    waiting: DeferredPeople = DeferredPeople()

    @property
    def is_waiting(self) -> bool:
        """Everybody else is done."""
        open_ = self.message.books.open if self.message else 0
        return bool(open_) and self.waiting.people == open_

    @property
    def rate(self) -> float:
        """Emails per second, recently."""
        return _rate(self.samples, RATE_OVER_S)

    @property
    def pace(self) -> str:
        """The rate as text; empty while nothing is being sent."""
        is_paused = self.message is not None and self.message.status is Status.PAUSED
        if self.rate < SLOWEST or is_paused or self.is_waiting:
            return ""
        return number(round(self.rate)) if self.rate >= 10 else f"{self.rate:.1f}"

    @property
    def left(self) -> Text | None:
        """The time left at the current rate; None if unknown."""
        if self.message is None or not self.pace:
            return None
        open_ = self.message.books.open + self.message.size - self.message.audience
        open_ -= self.waiting.people  # by the server's time, not by our rate
        if open_ <= 0:
            return None
        return words_for(open_ / self.rate)

    @property
    def took(self) -> Text | None:
        """From the first recipient queued to the last outcome."""
        message = self.message
        if message is None or message.completed_at is None or message.queuing_at is None:
            return None
        return words_for((message.completed_at - message.queuing_at).total_seconds())

    @property
    def curve(self) -> str:
        """Times and rates for the chart."""
        points = self.samples[1:]
        return json.dumps([[each.at for each in points], [each.rate for each in points]])


def words_for(seconds: float) -> Text:
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
    last = samples[-1]
    first = samples[-2]
    for each in reversed(samples):
        if each.at < last.at - over_s:
            break
        first = each if each is not last else first
    return max(0.0, (last.done - first.done) / max(0.001, last.at - first.at))


class ProgressReader:
    """Reads one message repeatedly and remembers its last minutes."""

    def __init__(self, tables: Tables, clock: Clock, ref: str) -> None:
        self._tables = tables
        self._clock = clock
        self._ref = ref
        self._samples: deque[RateSample] = deque()
        self._row: Message | None = None
        self._row_since = 0.0

    async def read(self) -> MessageProgress:
        row = await messages.find(self._tables, self._ref)
        if row is None:
            return MessageProgress(None)
        now_s = self._clock.now().timestamp()
        if row != self._row:
            self._row = row
            self._row_since = now_s
        is_counted = has_fresh_books(row) and now_s < self._row_since + COUNTED_LATELY_S
        message = row if is_counted else await report.books_of(self._tables, row)
        self._note(now_s, message.books.total - message.books.open)
        waiting = await waiting_of(self._tables, message, now_s)
        return MessageProgress(message, tuple(self._samples), waiting=waiting)

    def _note(self, at: float, done: int) -> None:
        self._samples.append(RateSample(at, done))
        rate = round(_rate(self._samples, SMOOTHED_OVER_S), 1)
        self._samples[-1] = RateSample(at, done, rate)
        while self._samples[0].at < at - CURVE_S:
            self._samples.popleft()


def has_fresh_books(message: Message) -> bool:
    """The scheduler counts about once a second while nothing else is to be done with a message."""
    is_reported = message.status is Status.PROCESSING and message.books.total == message.audience
    return is_reported or message.completed_at is not None


async def waiting_of(tables: Tables, message: Message, now_s: float) -> DeferredPeople:
    """Recipients waiting for a retry, once everybody is queued; none if too many to read."""
    closed_groups = int(message.closed_groups, 16)
    open_ = [group for group in batches.groups(message.batches) if not closed_groups >> group & 1]
    is_told = message.status is Status.PROCESSING and message.books.queued
    if not is_told or len(open_) > GROUPS_LOOKED_AT:
        return DeferredPeople()
    times = [
        wait.retry_at
        for group in open_
        for ledger, _etag in await batches.load_group(tables, message.ref, group)
        for at, wait in ledger.deferred.items()
        if wait.attempts and wait.retry_at > now_s and ledger.states[at] == State.QUEUED
    ]
    return (
        DeferredPeople(len(times), datetime.fromtimestamp(min(times), UTC))
        if times
        else DeferredPeople()
    )


async def progress_of(polls: SharedPolls, context: WebContext, message: Message) -> MessageProgress:
    """The shared reading if somebody watches the message, else its current books."""
    watched = polls.latest(_name(message.ref))
    if isinstance(watched, MessageProgress) and watched.message:
        return watched
    tables = context.storage.tables
    troubles = await _troubles(polls, context, message)
    if not has_fresh_books(message):
        # By status and round: what somebody has just done with the message shows at once.
        name = f"{message.ref} {message.status} {message.restarts}"
        message = await polls.cached_read(name, partial(report.books_of, tables, message))
    waiting = await waiting_of(tables, message, context.clock.now().timestamp())
    return MessageProgress(message, waiting=waiting, mail_troubles=troubles)


async def _troubles(
    polls: SharedPolls, context: WebContext, message: Message | None
) -> tuple[SharedTrouble, ...]:
    """The problem that keeps a message from being sent."""
    if message is None or message.status not in GOING_OUT | {Status.PENDING}:
        return ()
    return await troubles_now(polls, context)


@router.get("/{ref}/live")
async def live(request: Request, signed_in: Viewer, ref: str) -> Response:
    context = context_of(request)
    await messages.read(context.storage.tables, ref)

    def new_pulse() -> SharedPoll[MessageProgress]:
        meter = ProgressReader(context.storage.tables, context.clock, ref)
        polls = polls_of(request)

        async def read() -> MessageProgress:
            found = await meter.read()
            troubles = await _troubles(polls, context, found.message)
            return msgspec.structs.replace(found, mail_troubles=troubles)

        return SharedPoll(read, context.clock)

    def render(now: MessageProgress, before: MessageProgress | None) -> Update:
        return news(now, before, signed_in)

    poll = polls_of(request).of(_name(ref), new_pulse)
    return stream(request, signed_in, poll, "books", render)


def news(now: MessageProgress, before: MessageProgress | None, signed_in: SignedIn) -> Update:
    """The live part of the page; its buttons only when they change, so that none loses focus."""
    if now.message is None:
        return Update(is_last=True)
    is_last = now.message.completed_at is not None
    if before and _shown(before) == _shown(now):
        return Update(is_last=is_last)
    piece = part(
        "messages/live.html",
        message=now.message,
        progress=now,
        signed_in=signed_in,
        has_new_actions=before is None or _acted_on(before) != _acted_on(now) or is_last,
        is_update=True,
    )
    return Update(piece, is_last)


def _shown(progress: MessageProgress) -> tuple[object, ...]:
    return progress.message, round(progress.rate), progress.waiting, progress.mail_troubles


def _acted_on(progress: MessageProgress) -> tuple[object, ...]:
    """What the buttons depend on."""
    message = progress.message
    return (message.status, message.books.failed, message.books.held) if message else ()


def _name(ref: str) -> str:
    return f"message {ref}"
