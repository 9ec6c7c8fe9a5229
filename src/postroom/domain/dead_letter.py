"""Dead letters: work items that were set aside, why, since when, and what to do about them.

Each is one JSON text on the dead letter queue. It contains the item unchanged, so that the item can
be put back on its own queue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain import work_item
from postroom.domain.texts import Text, _
from postroom.domain.work_item import BadItem

BODY_CHARS_MAX = 4_000  # of an item; ours are shorter, and a dead letter must fit on its queue
_GUID = re.compile(r"([0-9a-f]{8})-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


class Reason(StrEnum):
    MALFORMED = "malformed"
    NO_BATCH = "no_batch"
    NO_DELIVERY = "no_delivery"
    NO_SUBSCRIBER = "no_subscriber"
    UNREADABLE = "unreadable"
    SENDERS_STOPPED = "senders_stopped"
    ROWS_MISSING = "rows_missing"
    NO_CONTENT = "no_content"
    TEST_NOT_SENT = "test_not_sent"
    RESTORED = "restored"
    UNKNOWN = "unknown"  # Postroom did not write it


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    queue: str  # where the item came from
    body: str
    reason: Reason
    at: datetime
    is_clipped: bool = False  # the item was too long to keep whole

    @property
    def can_be_put_back(self) -> bool:
        """Whether a sender understands the item."""
        return not self.is_clipped and self.reason not in {Reason.MALFORMED, Reason.UNKNOWN}

    @property
    def ref(self) -> str:
        """The ref of its message; empty if it has none."""
        try:
            return work_item.parse_mail_item(self.body).ref
        except BadItem:
            return ""


def dead_letter(queue: str, body: str, reason: Reason, now: datetime) -> DeadLetter:
    is_clipped = len(body) > BODY_CHARS_MAX
    body = body[:BODY_CHARS_MAX]
    return DeadLetter(queue=queue, body=body, reason=reason, at=now, is_clipped=is_clipped)


def parse_dead_letter(text: str, put_at: datetime) -> DeadLetter:
    """Read an item of the dead letter queue; `put_at` is for one that Postroom did not write."""
    try:
        return msgspec.json.decode(text, type=DeadLetter)
    except msgspec.DecodeError:
        return DeadLetter(queue="", body=text[:BODY_CHARS_MAX], reason=Reason.UNKNOWN, at=put_at)


EXPLANATIONS: dict[Reason, Text] = {
    Reason.MALFORMED: _(
        "It is not a Postroom work item, so nothing was sent. Find out what put it on the queue, "
        "then clear it."
    ),
    Reason.NO_BATCH: _(
        "It names a batch of recipients that does not exist, so nothing was sent and nobody is "
        "waiting for it. Clear it."
    ),
    Reason.NO_DELIVERY: _(
        "It names a recipient of a message, but that message does not exist or is not for this "
        "address. Nothing was sent. Find out what put it on the queue, then clear it."
    ),
    Reason.NO_SUBSCRIBER: _(
        "It names a subscriber by GUID, but no list has ever had a subscriber with this GUID. "
        "Nothing was sent. Find out what put it on the queue, then clear it."
    ),
    Reason.UNREADABLE: _(
        "Its rows were written by a newer version of Postroom, or are damaged. Its recipients are "
        "still waiting. Start the newer version, then put it back."
    ),
    Reason.SENDERS_STOPPED: _(
        "Several senders in a row stopped while they were sending it. Recipients who had not been "
        "sent the email were put on hold: decide about them on the message’s page, then clear it."
    ),
    Reason.ROWS_MISSING: _(
        "Recipient rows are missing from storage. Recipients who had not been sent the email were "
        "put on hold: decide about them on the message’s page, then clear it."
    ),
    Reason.NO_CONTENT: _(
        "The content of its message is missing or cannot be used. Recipients who had not been "
        "sent the email were put on hold: decide about them on the message’s page, then clear it."
    ),
    Reason.TEST_NOT_SENT: _(
        "A test email was not accepted after several attempts. Nobody else is affected: send the "
        "test again if you still need it, and clear it."
    ),
    Reason.RESTORED: _(
        "It was waiting when the backup that this storage was restored from was made. The email "
        "may have been sent since. Put it back to send it, perhaps for a second time, or clear it."
    ),
    Reason.UNKNOWN: _(
        "Postroom did not write this entry. Find out what put it on the queue, then clear it."
    ),
}


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    reason: Reason
    count: int
    since: datetime
    refs: list[str]  # of their messages

    @property
    def explanation(self) -> Text:
        return EXPLANATIONS[self.reason]


def grouped(letters: Iterable[DeadLetter]) -> list[DeadLetters]:
    """Group by reason, in the order of `Reason`."""
    found: dict[Reason, list[DeadLetter]] = {}
    for letter in letters:
        found.setdefault(letter.reason, []).append(letter)
    return [
        DeadLetters(
            reason=reason,
            count=len(found[reason]),
            since=min(one.at for one in found[reason]),
            refs=sorted({one.ref for one in found[reason] if one.ref}),
        )
        for reason in Reason
        if reason in found
    ]


def without_guids(body: str) -> str:
    """The item for people who may not act for a subscriber: a GUID opens the unsubscribe link."""
    return _GUID.sub(r"\1…", body)


def names_of(body: str) -> dict[str, str]:
    """The parts of an item that may be logged: names and numbers, never an address or a link."""
    try:
        if work_item.is_trial_item(body):
            return {"kind": "test", "ref": work_item.parse_trial_item(body).ref}
        if body.count(",") <= 1:
            confirm = work_item.parse_confirm_item(body)
            return {"kind": "confirmation", "list": confirm.list_name, "person": confirm.guid[:8]}
        item = work_item.parse_mail_item(body)
        if isinstance(item, work_item.RecipientItem):
            return {"kind": "recipient", "ref": item.ref}
        return {"kind": "batch", "ref": item.ref, "batch": str(item.batch)}
    except BadItem:
        return {"kind": "unknown"}
