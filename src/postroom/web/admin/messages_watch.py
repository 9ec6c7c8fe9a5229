"""A message on its way, live: its books, its rate, the time left."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from functools import partial

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.clock import Clock
from postroom.domain.message import GOING_OUT, Message, Status
from postroom.domain.texts import Text, _
from postroom.flow import report
from postroom.records import messages
from postroom.storage.port import Tables
from postroom.web.desk import Desk, desk_of
from postroom.web.mail_server import SharedTrouble, troubles_now
from postroom.web.pages import number, part
from postroom.web.pulse import News, Pulse, Pulses, pulses_of, stream
from postroom.web.visitor import Viewer, Visitor

router = APIRouter(prefix="/messages")
CURVE_S = 600.0
RATE_OVER_S = 20.0  # what “now” means for the rate and the time left
SLOWEST = 0.05  # mails a second: anything less is standing still
SMOOTHED_OVER_S = 5.0  # a point of the curve
COUNTED_LATELY_S = 5.0  # the scheduler counts about once a second; if it does not, we do


class Sample(msgspec.Struct, frozen=True):
    at: float  # seconds since the epoch
    done: int  # people whose fate is known
    rate: float = 0.0  # a point of the curve


class Progress(msgspec.Struct, frozen=True):
    """A message at one moment; None once it is deleted."""

    message: Message | None
    samples: tuple[Sample, ...] = ()
    mail_troubles: tuple[SharedTrouble, ...] = ()  # if it waits for the mail server

    @property
    def rate(self) -> float:
        """Mails a second, lately."""
        return _rate(self.samples, RATE_OVER_S)

    @property
    def pace(self) -> str:
        """The rate for people; empty while nothing moves."""
        if self.rate < SLOWEST:
            return ""
        return number(round(self.rate)) if self.rate >= 10 else f"{self.rate:.1f}"

    @property
    def left(self) -> Text | None:
        """As long as the rate lasts; None while nobody can tell."""
        if self.message is None or self.rate < SLOWEST:
            return None
        open_ = self.message.books.open + self.message.size - self.message.audience
        if not open_:
            return None
        return words_for(open_ / self.rate)

    @property
    def took(self) -> Text | None:
        """From the first person queued to the last fate known."""
        message = self.message
        if message is None or message.completed_at is None or message.queuing_at is None:
            return None
        return words_for((message.completed_at - message.queuing_at).total_seconds())

    @property
    def curve(self) -> str:
        """Times and rates, as the chart takes them."""
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


def _rate(samples: Sequence[Sample], over_s: float) -> float:
    """From the first of the last seconds to the last."""
    if len(samples) < 2:
        return 0.0
    last, first = samples[-1], samples[-2]
    for each in reversed(samples):
        if each.at < last.at - over_s:
            break
        first = each if each is not last else first
    return max(0.0, (last.done - first.done) / max(0.001, last.at - first.at))


class Meter:
    """Reads one message again and again, and remembers its last minutes."""

    def __init__(self, tables: Tables, clock: Clock, ref: str) -> None:
        self._tables = tables
        self._clock = clock
        self._ref = ref
        self._samples: deque[Sample] = deque()
        self._row: Message | None = None
        self._row_since = 0.0

    async def read(self) -> Progress:
        row = await messages.find(self._tables, self._ref)
        if row is None:
            return Progress(None)
        now_s = self._clock.now().timestamp()
        if row != self._row:
            self._row, self._row_since = row, now_s
        is_counted = has_fresh_books(row) and now_s < self._row_since + COUNTED_LATELY_S
        message = row if is_counted else await report.books_of(self._tables, row)
        self._note(now_s, message.books.total - message.books.open)
        return Progress(message, tuple(self._samples))

    def _note(self, at: float, done: int) -> None:
        self._samples.append(Sample(at, done))
        rate = round(_rate(self._samples, SMOOTHED_OVER_S), 1)
        self._samples[-1] = Sample(at, done, rate)
        while self._samples[0].at < at - CURVE_S:
            self._samples.popleft()


def has_fresh_books(message: Message) -> bool:
    """The scheduler counts about once a second while nothing else is to be done with a message."""
    is_reported = message.status is Status.PROCESSING and message.books.total == message.audience
    return is_reported or message.completed_at is not None


async def progress_of(pulses: Pulses, desk: Desk, message: Message) -> Progress:
    """As whoever watches it sees it; if nobody does, its books of this moment."""
    watched = pulses.latest(_name(message.ref))
    if isinstance(watched, Progress) and watched.message:
        return watched
    troubles = await _troubles(pulses, desk, message)
    if has_fresh_books(message):
        return Progress(message, mail_troubles=troubles)
    # By status and round: what somebody has just done with the message shows at once.
    name = f"{message.ref} {message.status} {message.restarts}"
    count = partial(report.books_of, desk.storage.tables, message)
    return Progress(await pulses.glance(name, count), mail_troubles=troubles)


async def _troubles(
    pulses: Pulses, desk: Desk, message: Message | None
) -> tuple[SharedTrouble, ...]:
    """What keeps a message waiting that is going out, or about to."""
    if message is None or message.status not in GOING_OUT | {Status.PENDING}:
        return ()
    return await troubles_now(pulses, desk)


@router.get("/{ref}/live")
async def live(request: Request, visitor: Viewer, ref: str) -> Response:
    desk = desk_of(request)
    await messages.read(desk.storage.tables, ref)

    def new_pulse() -> Pulse[Progress]:
        meter, pulses = Meter(desk.storage.tables, desk.clock, ref), pulses_of(request)

        async def read() -> Progress:
            found = await meter.read()
            troubles = await _troubles(pulses, desk, found.message)
            return msgspec.structs.replace(found, mail_troubles=troubles)

        return Pulse(read, desk.clock)

    def render(now: Progress, before: Progress | None) -> News:
        return news(now, before, visitor)

    pulse = pulses_of(request).of(_name(ref), new_pulse)
    return stream(request, visitor, pulse, "books", render)


def news(now: Progress, before: Progress | None, visitor: Visitor) -> News:
    """The same piece of the page; its buttons only when they change, so that none loses focus."""
    if now.message is None:
        return News(is_last=True)
    is_last = now.message.completed_at is not None
    is_same = before is not None and before.mail_troubles == now.mail_troubles
    if before and is_same and before.message == now.message and _is_as_fast(before, now):
        return News(is_last=is_last)
    had = before.message.status if before and before.message else None
    piece = part(
        "messages/live.html",
        message=now.message,
        progress=now,
        visitor=visitor,
        has_new_actions=had != now.message.status or is_last,
        is_update=True,
    )
    return News(piece, is_last)


def _is_as_fast(before: Progress, now: Progress) -> bool:
    return round(before.rate) == round(now.rate)


def _name(ref: str) -> str:
    return f"message {ref}"
