"""A message: its content, its scheduled time, its progress and its books."""

from __future__ import annotations

import re
import zlib
from datetime import datetime, timedelta
from enum import StrEnum
from operator import add
from typing import Any

import msgspec

from postroom.domain.attachment import Attachment
from postroom.domain.errors import BadInput, WrongState
from postroom.domain.texts import _, clipped, is_one_line, pgettext

_TICKS_EPOCH = datetime(1, 1, 1)  # noqa: DTZ001 - the .NET epoch, compared without a zone
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}")
SUBJECT_CHARS_MAX = 500
BODY_BYTES_MAX = 2 * 1024 * 1024  # twenty times what mailbox providers show


class Status(StrEnum):
    DRAFT = "draft"
    PENDING = "pending"
    QUEUING = "queuing"  # the scheduler is writing its batches and putting their work items
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
    """What happens to a delivery that may or may not have been sent."""

    RESEND = "resend"  # never lost, rarely a second copy with the same Message-ID
    HOLD = "hold"  # never twice; a person decides


class BodyKind(StrEnum):
    """What the HTML of a message was written as."""

    HTML = "html"
    MARKDOWN = "markdown"
    MJML = "mjml"
    BLOCKS = "blocks"


class Revive(StrEnum):
    """Which deliveries the scheduler queues again while it requeues the batches."""

    NOTHING = ""
    FAILED = "failed"  # send them again
    HELD = "held"  # send them again
    HELD_AS_SENT = "held-as-sent"  # a person found that they arrived


class Books(msgspec.Struct, frozen=True):
    """How many recipients are in each state; `doubts` counts events instead."""

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
        ours = msgspec.structs.astuple(self)
        return Books(*map(add, ours, msgspec.structs.astuple(other)))


class PauseCause(msgspec.Struct, frozen=True):
    """Why sending was paused automatically: refusals that are our fault, as counted then."""

    refused: int
    ended: int  # deliveries with an outcome
    words: str = ""  # the server's, of one refusal
    is_too_large: bool = False  # nobody was refused: no email of this size is accepted


class RestoreHold(msgspec.Struct, frozen=True):
    """Why a message of a restored backup waits: it may have been sent since the backup."""

    made_at: datetime  # the backup's
    people: int  # not recorded as sent there: at most these may have received it since


class MergeFields(msgspec.Struct, frozen=True):
    """The attributes of subscribers that the emails of a message use."""

    names: tuple[str, ...]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    ref: str
    list_name: str
    subject: str
    list_created_at: datetime  # distinguishes the list from a later one of the same name
    sender: str  # the list's From when the message was written
    status: Status
    on_doubt: OnDoubt = OnDoubt.RESEND
    created_at: datetime
    due_at: datetime | None = None
    due_zone: str = ""  # the zone or offset it was scheduled in, which pages show; "": UTC
    queuing_at: datetime | None = None  # people who unsubscribed since then are skipped
    completed_at: datetime | None = None  # when its books were closed; also set if it was cancelled
    has_html: bool = False
    has_text: bool = False
    kind: BodyKind = BodyKind.HTML
    preview_text: str = ""  # a template: the words beside the subject in an inbox
    language: str = ""  # of its text, as in <html lang>; "": the list's
    attachments: tuple[Attachment, ...] = ()  # in the order in which emails have them
    merge_fields: MergeFields | None = None  # what its deliveries carry; None: all attributes
    edition: str = ""  # names its bodies; new with every edit, so bodies of two edits never mix
    origin: str = ""  # the repeatable API call that created it: a repeated call finds its message
    # Progress of the fan-out. Saved after every page; rows written since are found again.
    cursor: str = ""  # the last address key of the last batch counted below
    batches: int = 0
    audience: int = 0
    expected: int = 0  # the size of the audience, as estimated when queuing began
    fanned_out: bool = False  # the audience is complete
    batches_requeued: int = 0  # batches with a work item (and revived) since queuing last began
    restarts: int = 0  # how often queuing began again: sets the restart flag of its items
    queued_by: str = ""  # the scheduler that began it, and the fence of its lease
    revive: Revive = Revive.NOTHING
    decision: int = 0  # counts the decisions to revive: each ledger carries out each decision once
    is_test: bool = False  # sent in test mode: emails counted as sent are in the test mailbox
    is_expiring: bool = False  # archived and past its age: it is being deleted for good
    expired_batches: int = 0  # how many of its batches are deleted
    closed_groups: str = "0"  # hexadecimal bitmap of ledger groups that a report no longer reads
    closed_books: Books = Books()  # the books of those groups
    books: Books = Books()  # as of the last report
    pause_cause: PauseCause | None = None  # also after it is resumed: these refusals are known
    is_self_paused: bool = False  # by refusals that are our fault, not by a person
    restore_hold: RestoreHold | None = None  # until a person resumes it or cancels it

    @property
    def is_fully_queued(self) -> bool:
        """Whether the audience is complete and every batch has a work item."""
        return self.fanned_out and self.batches_requeued >= self.batches

    @property
    def self_pause(self) -> PauseCause | None:
        """Why it was paused automatically; None once it is resumed or cancelled."""
        is_so = self.status is Status.PAUSED and self.is_self_paused
        return self.pause_cause if is_so else None

    @property
    def size(self) -> int:
        """The audience, or its estimated size until it is complete."""
        is_known = self.fanned_out or self.completed_at is not None
        return self.audience if is_known else max(self.audience, self.expected)


EDITABLE = frozenset({Status.DRAFT, Status.PENDING})
GOING_OUT = frozenset({Status.QUEUING, Status.PROCESSING})


def message_data(message: Message) -> dict[str, Any]:
    """A message as JSON, the same on the command line and in the web service."""
    return {
        "ref": message.ref,
        "status": message.status,
        "list": message.list_name,
        "subject": message.subject,
        "from": message.sender,
        "format": message.kind,
        "preview_text": message.preview_text,
        "language": message.language,
        "on_doubt": message.on_doubt,
        "audience": message.audience,
        **msgspec.structs.asdict(message.books),
        "attachments": [each.name for each in message.attachments],
        "test_mode": message.is_test,
        "created_at": message.created_at,
        "due_at": message.due_at,
        "completed_at": message.completed_at,
    }


def ticks(now: datetime) -> int:
    """100-nanosecond ticks since the year 1: what a message ref starts from."""
    return (now.replace(tzinfo=None) - _TICKS_EPOCH) // timedelta(microseconds=1) * 10


def ref_of_call(call: str, begun_at: datetime) -> str:
    """The ref of a message that a repeatable call creates: the same at every attempt.

    The call picks one of the 10,000 ticks of the millisecond after it began.
    """
    return f"{ticks(begun_at) + zlib.crc32(call.encode()) % 10_000:018d}"


def check_subject(subject: str) -> str:
    subject = subject.strip()
    if not subject:
        raise BadInput(_("The subject is empty. Enter what the message is about."))
    if len(subject) > SUBJECT_CHARS_MAX:
        raise BadInput(_("The subject is longer than {limit} characters.", limit=SUBJECT_CHARS_MAX))
    if not is_one_line(subject):
        raise BadInput(_("The subject must be one line without control characters."))
    return subject


def check_language(tag: str) -> str:
    """A tag of BCP 47, such as “de” or “pt-BR”; empty for the language of the list."""
    if tag and not _LANGUAGE.fullmatch(tag):
        raise BadInput(
            _("“{tag}” is not a language tag such as en, de or pt-BR.", tag=clipped(tag, 20))
        )
    return tag


def check_body(text: str) -> str:
    if len(text.encode(errors="surrogatepass")) > BODY_BYTES_MAX:
        raise BadInput(
            _("The body is longer than {limit} MiB. Shorten it.", limit=BODY_BYTES_MAX // 1024**2)
        )
    if "\0" in text:
        raise BadInput(_("The body contains null characters, so it is not text."))
    return text


def _named(message: Message) -> dict[str, object]:
    return {"ref": message.ref, "status": STATUS_TEXTS[message.status]}


def unscheduled(message: Message) -> Message:
    """The message as a draft again; a repeat of the call that scheduled it no longer finds it."""
    if message.status is Status.DRAFT:
        raise WrongState(_("Message {ref} is already a draft.", ref=message.ref))
    if message.status is not Status.PENDING:
        raise WrongState(
            _(
                "Message {ref} is already {status} and can no longer be unscheduled.",
                **_named(message),
            )
        )
    return msgspec.structs.replace(
        message, status=Status.DRAFT, due_at=None, due_zone="", origin=""
    )


def paused(message: Message) -> Message:
    if message.status not in GOING_OUT:
        raise WrongState(
            _(
                "Message {ref} is {status}. Only a message that is being sent can be paused.",
                **_named(message),
            )
        )
    return msgspec.structs.replace(message, status=Status.PAUSED, is_self_paused=False)


def paused_for(message: Message, cause: PauseCause) -> Message:
    return msgspec.structs.replace(paused(message), pause_cause=cause, is_self_paused=True)


def requeued(message: Message, revive: Revive = Revive.NOTHING) -> Message:
    """The message as it is when the scheduler must put the items of all its batches again."""
    is_cancelled = message.status is Status.CANCELLED
    return msgspec.structs.replace(
        message,
        status=Status.CANCELLED if is_cancelled else Status.QUEUING,
        batches_requeued=0,
        restarts=message.restarts + 1,
        revive=revive,
        closed_groups="0",
        closed_books=Books(),
        completed_at=None,
    )


def resumed(message: Message) -> Message:
    if message.status is not Status.PAUSED:
        raise WrongState(_("Message {ref} is {status}, not paused.", **_named(message)))
    message = msgspec.structs.replace(message, restore_hold=None)
    if message.queuing_at is None:  # held by a restore before it began: it is due, and begins now
        return msgspec.structs.replace(message, status=Status.PENDING)
    return requeued(message, message.revive)


def held_by_restore(message: Message, hold: RestoreHold) -> Message:
    """The message waiting for a person; `resumed` sends it to everyone not recorded as sent."""
    return msgspec.structs.replace(
        message, status=Status.PAUSED, restore_hold=hold, is_self_paused=False
    )


def revived(message: Message, revive: Revive) -> Message:
    if message.is_expiring:
        raise WrongState(_("Message {ref} has expired and is being deleted.", ref=message.ref))
    # Held deliveries of a cancelled message need a decision, or it is never archived.
    is_closed = message.status is Status.CANCELLED and message.completed_at is not None
    may_revive = message.status in (Status.COMPLETED, Status.PROCESSING)
    if not (may_revive or (is_closed and revive is not Revive.FAILED)):
        raise WrongState(
            _(
                "Message {ref} is {status}, so it cannot be sent again yet. Try again later.",
                **_named(message),
            )
        )
    return msgspec.structs.replace(requeued(message, revive), decision=message.decision + 1)


def cancelled(message: Message) -> Message:
    """The message cancelled: deliveries that are still queued will be skipped."""
    if message.status in (Status.COMPLETED, Status.CANCELLED):
        raise WrongState(_("Message {ref} is already {status}.", **_named(message)))
    if message.status is Status.DRAFT:
        raise WrongState(
            _("Message {ref} is a draft, so there is nothing to cancel.", ref=message.ref)
        )
    return msgspec.structs.replace(requeued(message), status=Status.CANCELLED, restore_hold=None)
