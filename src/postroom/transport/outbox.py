"""The test mailbox: emails are stored instead of sent, and read in the browser.

outbox / mails / <time>-<hash>    the envelope, newest first; the content is a blob of that name

Attachments are stored once for all emails that have them, as a blob that their rows name: a few
megabytes for each of ten thousand emails would fill the disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from postroom.clock import Clock
from postroom.domain.outcome import Deferred, Outcome, Scope, Sent, Untried
from postroom.domain.trouble import Fault, TroubleKind, one_line
from postroom.storage.port import Storage, StorageError, Value
from postroom.transport.port import HandOverWatch, OutgoingMail, new_lane_id

TABLE = "outbox"
PARTITION = "mails"


class OutboxLane:
    def __init__(self, storage: Storage, clock: Clock) -> None:
        self.id = new_lane_id()
        self._storage = storage
        self._clock = clock

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for mail in mails:
            if not watch.may_hand_over():
                outcomes.append(Untried("stopping"))
                watch.answered({mail.position: outcomes[-1]})
                continue
            watch.handing_over([mail.position])
            outcomes.append(await self._store(mail))
            watch.answered({mail.position: outcomes[-1]})
        return outcomes

    async def _store(self, mail: OutgoingMail) -> Outcome:
        """Write the content first, because a row without its blob cannot be shown."""
        spliced = mail.spliced(eight_bit=True)
        content = b"".join(spliced.parts)
        now = self._clock.now()
        falling = 10**13 - int(now.timestamp() * 1000)  # so that the newest is the first row
        name = f"{falling:013d}-{hashlib.sha256(content).hexdigest()[:16]}"
        row: dict[str, Value] = {
            "Format": 1,
            "EnvelopeSender": mail.sender,
            "EnvelopeRecipient": mail.recipient,
            "Bytes": spliced.size,
            "Time": now.isoformat(),
        }
        try:
            if spliced.tail:
                row["Attachments"] = await self._store_attachments(spliced.tail)
            await self._storage.blobs.put(f"outbox/{name}.eml", content)
            await self._storage.tables.upsert(TABLE, PARTITION, name, row)
        except StorageError as error:
            words = f"the test mailbox cannot be written: {error}"
            fault = Fault(TroubleKind.OUTBOX, one_line(str(error)))
            return Deferred(words, Scope.PROVIDER, reached=False, fault=fault)
        return Sent("kept in the test mailbox")

    async def _store_attachments(self, tail: bytes) -> str:
        """Write them unless they are there; somebody may have emptied the mailbox meanwhile."""
        name = f"outbox/attachments-{_digest(tail)}"
        found, _ = await self._storage.blobs.list(name)
        if name not in found:
            await self._storage.blobs.put(name, tail)
        return name

    async def close(self) -> None:
        return


@lru_cache(maxsize=1)  # all emails of a message have the same object
def _digest(tail: bytes) -> str:
    return hashlib.sha256(tail).hexdigest()[:32]


class OutboxTransport:
    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def lane(self) -> OutboxLane:
        return OutboxLane(self._storage, self._clock)

    async def close(self) -> None:
        return
