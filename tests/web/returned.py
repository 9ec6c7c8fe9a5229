"""A message that was sent, and what comes back for it."""

from __future__ import annotations

from typing import Any

import msgspec

from postroom.domain.address import Address, parse_address
from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State
from postroom.domain.delivery_token import DeliveryId, delivery_tokens
from postroom.domain.feedback import (
    BounceClass,
    BounceReason,
    Classification,
    FeedbackEvent,
    FeedbackKind,
)
from postroom.domain.message import Books, PauseCause, Status
from postroom.domain.subscriber import Subscriber
from postroom.flow import subscribe
from postroom.records import archive, batches, feedback, messages, subscribers
from postroom.records.feedback import LocatedEvent
from postroom.records.recipients import Recipient
from tests.acting import acting
from tests.web.drafts import written
from tests.web.office import LIST, NOW
from tests.web.signed_in import Worker

DEAD = Classification(
    BounceClass.DEAD, BounceReason.NO_SUCH_USER, "5.1.1", "550 5.1.1 <b>mailbox</b> unavailable"
)
FULL = Classification(
    BounceClass.TEMPORARY, BounceReason.MAILBOX_FULL, "5.2.2", "552 5.2.2 Mailbox full"
)
BLOCKED = Classification(
    BounceClass.OURS, BounceReason.BLOCKED, "5.7.1", "550 5.7.1 Our filters block you"
)
SPAM = Classification(BounceClass.COMPLAINT, BounceReason.COMPLAINT)
CAUSE = PauseCause(refused=30, ended=120, words="550 5.7.1 Our filters block you")


def address_at(position: int) -> str:
    return f"reader{position}@{('contoso.edu', 'fabrikam.edu', 'tailspin.edu')[position % 3]}"


async def sent_to(
    worker: Worker, people: int, status: Status = Status.COMPLETED, **more: Any
) -> str:
    """The path of a message that was sent to this many subscribers, in one batch."""
    office = worker.office
    tables = office.storage.tables
    deliveries = []
    for at in range(people):
        address = parse_address(address_at(at))
        known = await subscribers.find(tables, LIST, address.storage_key)
        one = known.value if known else await _join(worker, address)
        deliveries.append(Delivery(at, one.key, one.address, one.guid))
    path = await written(worker)
    ref = path.rpartition("/")[2]
    found = await messages.find_live(tables, ref)
    assert found
    ledger = Ledger(
        ref=ref,
        batch=0,
        states=State.SENT * people,
        first=deliveries[0].key,
        last=deliveries[-1].key,
    )
    recipients = [Recipient(one.key, one.address, one.guid, "") for one in deliveries]
    await batches.write_batches(tables, found[0], [recipients])
    await batches.insert_ledgers(tables, [ledger])
    ended = dict.fromkeys(range(people), DeliveryEnd(State.SENT, "250 2.0.0 Ok", NOW))
    await archive.write(tables, ledger, dict(enumerate(deliveries)), ended)
    message = msgspec.structs.replace(
        found[0],
        status=status,
        due_at=NOW,
        queuing_at=NOW,
        completed_at=NOW if status is Status.COMPLETED else None,
        batches=1,
        audience=people,
        fanned_out=True,
        batches_requeued=1,
        books=Books(sent=people),
        **more,
    )
    await messages.replace(tables, message, found[1])
    return path


async def _join(worker: Worker, address: Address) -> Subscriber:
    act = acting(worker.office.storage, NOW)
    return await subscribe.add(act, LIST, address, {}, verified=True)


def token_of(worker: Worker, path: str, position: int) -> str:
    secret = worker.office.site.secret.encode()
    return delivery_tokens(secret, path.rpartition("/")[2], 0, [position])[position]


async def come_back(
    worker: Worker,
    path: str,
    kind: FeedbackKind,
    *positions: int,
    why: Classification | None = None,
) -> None:
    """Count what was reported about the recipients at these positions."""
    ref = path.rpartition("/")[2]
    located = []
    for at in positions:
        event = FeedbackEvent(
            id=f"{kind}-{at}", kind=kind, at=NOW, source="postmark", classification=why
        )
        address = parse_address(address_at(at))
        located.append(
            LocatedEvent(event, DeliveryId(ref, 0, at), address.storage_key, address.typed)
        )
    await feedback.record(worker.office.storage.tables, ref, located)


async def everything(worker: Worker, path: str) -> None:
    """Each kind of feedback, and each class of bounce; of twelve recipients."""
    await come_back(worker, path, FeedbackKind.DELIVERED, *range(6))
    await come_back(worker, path, FeedbackKind.BOUNCED, 6, 7, why=DEAD)
    await come_back(worker, path, FeedbackKind.BOUNCED, 8, why=FULL)
    await come_back(worker, path, FeedbackKind.BOUNCED, 9, why=BLOCKED)
    await come_back(worker, path, FeedbackKind.BOUNCED, 10)
    await come_back(worker, path, FeedbackKind.COMPLAINED, 0, why=SPAM)
    await come_back(worker, path, FeedbackKind.UNSUBSCRIBED, 1)
    await come_back(worker, path, FeedbackKind.DEFERRED, 11, why=FULL)
    await come_back(worker, path, FeedbackKind.OPENED, 2, 3)
    await come_back(worker, path, FeedbackKind.CLICKED, 2)
