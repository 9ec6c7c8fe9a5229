"""A message: what it says, when it is due, how far it got, and its books."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from postroom.domain.errors import BadInput, WrongState
from postroom.domain.texts import _, pgettext

TICKS_PER_S = 10_000_000
_TICKS_EPOCH = datetime(1, 1, 1)  # noqa: DTZ001 - the .NET epoch, compared without a zone
SUBJECT_CHARS_MAX = 500
BODY_BYTES_MAX = 2 * 1024 * 1024  # twenty times what mailbox providers show


class Status(StrEnum):
    DRAFT = "draft"
    PENDING = "pending"
    QUEUING = "queuing"  # the scheduler is going over it: writing batches, putting work items
    PROCESSING = "processing"  # every batch is written and has its work item
    PAUSED = "paused"
    COMPLETED = "completed"  # nothing queued, nothing being sent
    CANCELLED = "cancelled"


STATUS_TEXTS = {
    Status.DRAFT: pgettext("a message is", "draft"),
    Status.PENDING: pgettext("a message is", "scheduled"),
    Status.QUEUING: pgettext("a message is", "sending"),
    Status.PROCESSING: pgettext("a message is", "sending"),
    Status.PAUSED: pgettext("a message is", "paused"),
    Status.COMPLETED: pgettext("a message is", "sent"),
    Status.CANCELLED: pgettext("a message is", "cancelled"),
}


class OnDoubt(StrEnum):
    """What happens to a delivery when nobody can tell whether it went out."""

    RESEND = "resend"  # never lost, rarely a second copy with the same Message-ID
    HOLD = "hold"  # never twice; a person decides


class Revive(StrEnum):
    """What the scheduler is to bring back while it goes over the batches."""

    NOTHING = ""
    FAILED = "failed"  # send them again
    HELD = "held"  # send them again
    HELD_AS_SENT = "held-as-sent"  # somebody looked: they arrived


class Books(msgspec.Struct, frozen=True):
    """Where everyone of the audience is. `doubts` counts events, not people."""

    queued: int = 0
    sending: int = 0
    sent: int = 0
    failed: int = 0
    held: int = 0
    skipped: int = 0
    doubts: int = 0

    @property
    def open(self) -> int:
        return self.queued + self.sending

    @property
    def total(self) -> int:
        return self.queued + self.sending + self.sent + self.failed + self.held + self.skipped

    def __add__(self, other: Books) -> Books:
        return Books(
            self.queued + other.queued,
            self.sending + other.sending,
            self.sent + other.sent,
            self.failed + other.failed,
            self.held + other.held,
            self.skipped + other.skipped,
            self.doubts + other.doubts,
        )


class Message(msgspec.Struct, frozen=True, kw_only=True):
    ref: str
    list_name: str
    subject: str
    list_created_at: datetime  # tells the list from a later one of the same name
    sender: str  # the list's From when the message was written
    status: Status
    on_doubt: OnDoubt = OnDoubt.RESEND
    created_at: datetime
    due_at: datetime | None = None
    due_zone: str = ""  # the zone or offset it was scheduled in, for pages to show it in; "": UTC
    queuing_at: datetime | None = None  # who left since then is skipped
    completed_at: datetime | None = None  # the books are closed, also those of a cancelled one
    has_html: bool = False
    has_text: bool = False
    edition: str = ""  # which bodies are meant: new with every edit, so that no two ever mix
    origin: str = ""  # the call that made it, where a call may be repeated: it knows its own
    # Fan-out: how far it got. Saved now and then; the rows written since are found again.
    cursor: str = ""  # the last address key of the last batch counted below
    batches: int = 0
    audience: int = 0
    expected: int = 0  # how many the audience would be, as counted when queuing began
    fanned_out: bool = False  # the audience is complete
    walked: int = 0  # batches gone over (item put, revived) since queuing was last entered
    restarts: int = 0  # how often queuing was entered again: the restart flag of its items
    revive: Revive = Revive.NOTHING
    decision: int = 0  # counts what people decided to revive: a ledger follows each one once
    is_test: bool = False  # sent in test mode: mails counted as sent are kept in the test mailbox
    is_expiring: bool = False  # archived and past its age: being deleted, never to come back
    # Books of ledger groups that are closed, so that a report reads only the others.
    folded: str = "0"  # hexadecimal bitmap of groups
    folded_books: Books = Books()
    books: Books = Books()  # as of the last report

    @property
    def is_gone_over(self) -> bool:
        """Every batch is counted and has had its item put."""
        return self.fanned_out and self.walked >= self.batches

    @property
    def size(self) -> int:
        """The audience, or what it is expected to be while it is being collected."""
        is_known = self.fanned_out or self.completed_at is not None
        return self.audience if is_known else max(self.audience, self.expected)


EDITABLE = frozenset({Status.DRAFT, Status.PENDING})
GOING_OUT = frozenset({Status.QUEUING, Status.PROCESSING})


def message_data(message: Message) -> dict[str, Any]:
    """What programs see of a message, on the command line as in the web service."""
    return {
        "ref": message.ref,
        "status": message.status,
        "list": message.list_name,
        "subject": message.subject,
        "from": message.sender,
        "on_doubt": message.on_doubt,
        "audience": message.audience,
        **msgspec.structs.asdict(message.books),
        "test_mode": message.is_test,
        "created_at": message.created_at,
        "due_at": message.due_at,
        "completed_at": message.completed_at,
    }


def ticks(now: datetime) -> int:
    """100-nanosecond ticks since the year 1: what a message ref starts from."""
    return (now.replace(tzinfo=None) - _TICKS_EPOCH) // timedelta(microseconds=1) * 10


def ref_of_call(call: str, begun_at: datetime) -> str:
    """The ref of what a repeatable call writes: the same at every try, and nearly nobody else's.

    Of the millisecond after it began, the call picks its own ten-thousandth.
    """
    return f"{ticks(begun_at) + zlib.crc32(call.encode()) % 10_000:018d}"


def check_subject(subject: str) -> str:
    subject = subject.strip()
    if not subject:
        raise BadInput(_("The subject is empty: say what the message is about."))
    if len(subject) > SUBJECT_CHARS_MAX:
        raise BadInput(_("The subject is longer than {limit} characters.", limit=SUBJECT_CHARS_MAX))
    if not subject.isprintable():
        raise BadInput(_("The subject must be one line without control characters."))
    return subject


def check_body(text: str) -> str:
    if len(text.encode(errors="surrogatepass")) > BODY_BYTES_MAX:
        raise BadInput(
            _("A body has at most {limit} MiB: shorten it.", limit=BODY_BYTES_MAX // 1024**2)
        )
    if "\0" in text:
        raise BadInput(_("A body is text: this one has null characters in it."))
    return text


def unscheduled(message: Message) -> Message:
    """A draft again, as it was. A repeated call that scheduled it does not know it any more."""
    if message.status is Status.DRAFT:
        raise WrongState(_("Message {ref} is a draft already.", ref=message.ref))
    if message.status is not Status.PENDING:
        raise WrongState(
            _(
                "Message {ref} is {status}: it is too late to unschedule it.",
                ref=message.ref,
                status=STATUS_TEXTS[message.status],
            )
        )
    return msgspec.structs.replace(
        message, status=Status.DRAFT, due_at=None, due_zone="", origin=""
    )


def paused(message: Message) -> Message:
    if message.status not in GOING_OUT:
        raise WrongState(
            _(
                "Message {ref} is {status}: only a message that is being sent can be paused.",
                ref=message.ref,
                status=STATUS_TEXTS[message.status],
            )
        )
    return msgspec.structs.replace(message, status=Status.PAUSED)


def requeued(message: Message, revive: Revive = Revive.NOTHING) -> Message:
    """The scheduler goes over every batch again and puts its items anew."""
    is_cancelled = message.status is Status.CANCELLED
    return msgspec.structs.replace(
        message,
        status=Status.CANCELLED if is_cancelled else Status.QUEUING,
        walked=0,
        restarts=message.restarts + 1,
        revive=revive,
        folded="0",
        folded_books=Books(),
        completed_at=None,
    )


def resumed(message: Message) -> Message:
    if message.status is not Status.PAUSED:
        raise WrongState(
            _(
                "Message {ref} is {status}, not paused.",
                ref=message.ref,
                status=STATUS_TEXTS[message.status],
            )
        )
    return requeued(message, message.revive)


def revived(message: Message, revive: Revive) -> Message:
    if message.is_expiring:
        raise WrongState(_("Message {ref} is past its age and is being deleted.", ref=message.ref))
    # Held ones of a cancelled message want a decision too, or it would never be archived.
    is_closed = message.status is Status.CANCELLED and message.completed_at is not None
    may_revive = message.status in (Status.COMPLETED, Status.PROCESSING)
    if not (may_revive or (is_closed and revive is not Revive.FAILED)):
        raise WrongState(
            _(
                "Message {ref} is {status}, so nobody can be sent to again yet. Try again later.",
                ref=message.ref,
                status=STATUS_TEXTS[message.status],
            )
        )
    return msgspec.structs.replace(requeued(message, revive), decision=message.decision + 1)


def cancelled(message: Message) -> Message:
    """Whoever is still queued will be skipped; who was sent to, was sent to."""
    if message.status in (Status.COMPLETED, Status.CANCELLED):
        raise WrongState(
            _(
                "Message {ref} is {status} already.",
                ref=message.ref,
                status=STATUS_TEXTS[message.status],
            )
        )
    if message.status is Status.DRAFT:
        raise WrongState(
            _("Message {ref} is a draft: nothing would be sent anyway.", ref=message.ref)
        )
    return msgspec.structs.replace(requeued(message), status=Status.CANCELLED)
