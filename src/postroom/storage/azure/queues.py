"""Queues on Azure, through the SDK: receipts, visibility and claim counts are the service's own.

It counts whole seconds, so times are rounded up.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

from postroom.storage import port, validation
from postroom.storage.azure.retry import UnexpectedAnswer
from postroom.storage.azure.sdk import SdkCaller
from postroom.storage.port import Claim, ClaimLost, Item

NEVER_EXPIRES = -1  # by default the service deletes items after seven days
_STALE = frozenset({"MessageNotFound", "PopReceiptMismatch"})

T = TypeVar("T")


class AzureQueues:
    def __init__(self, url: str, caller: SdkCaller, names: Sequence[str], prefix: str) -> None:
        self._caller = caller
        self._clients = {
            queue: QueueClient(url, prefix + queue, **caller.client_options) for queue in names
        }

    async def create_missing(self) -> None:
        for client in self._clients.values():
            await self._caller.create(client.create_queue)

    async def put(self, queue: str, *bodies: str, delay_s: float = 0.0) -> None:
        validation.check_put(self._clients, queue, bodies, delay_s)
        send = partial(
            self._clients[queue].send_message,
            visibility_timeout=math.ceil(delay_s),
            time_to_live=NEVER_EXPIRES,
        )
        for body in bodies:
            text = base64.b64encode(body.encode()).decode()  # XML allows no control characters
            await self._write(partial(send, text))

    async def claim(self, queue: str, *, limit: int, lease_s: float) -> list[Claim]:
        """If the answer is lost, items were claimed for nothing and reappear after their lease."""
        validation.check_claim(self._clients, queue, limit, lease_s)
        hidden_s = math.ceil(lease_s)

        async def receive() -> list[Claim]:
            messages = self._clients[queue].receive_messages(
                messages_per_page=limit, visibility_timeout=hidden_s
            )
            async for page in messages.by_page():  # an empty queue has none
                return [_as_claim(queue, message) async for message in page]
            return []

        return await self._write(receive)

    async def extend(self, claim: Claim, *, lease_s: float) -> Claim:
        validation.check_lease(lease_s)
        receipt = await self._hide(claim, lease_s)
        return Claim(claim.queue, claim.item, receipt, claim.body, claim.taken)

    async def complete(self, claim: Claim) -> None:
        validation.check_queue(self._clients, claim.queue)
        client = self._clients[claim.queue]
        await self._write(lambda: client.delete_message(claim.item, claim.receipt))

    async def release(self, claim: Claim, *, delay_s: float = 0.0) -> None:
        validation.check_delay(delay_s)
        await self._hide(claim, delay_s)

    async def length(self, queue: str) -> int:
        validation.check_queue(self._clients, queue)
        found = await self._caller.read(self._clients[queue].get_queue_properties)
        return int(found.approximate_message_count or 0)

    async def peek(self, queue: str, *, limit: int = port.CLAIM_ITEMS_MAX) -> list[Item]:
        validation.check_peek(self._clients, queue, limit)
        found = await self._caller.read(lambda: self._clients[queue].peek_messages(limit))
        return [_as_item(each) for each in found]

    async def _hide(self, claim: Claim, hidden_s: float) -> str:
        """Hide the item for `hidden_s`, and return its new receipt."""
        validation.check_queue(self._clients, claim.queue)
        client = self._clients[claim.queue]
        timeout = math.ceil(hidden_s)
        hidden = await self._write(
            lambda: client.update_message(claim.item, claim.receipt, visibility_timeout=timeout)
        )
        return str(hidden.pop_receipt)

    async def _write(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._caller.write(call)
        except UnexpectedAnswer as answer:
            if answer.code in _STALE:
                raise ClaimLost("the claim is stale") from answer
            raise


def _as_claim(queue: str, message: QueueMessage) -> Claim:
    body = _as_body(message.content)
    taken = int(message.dequeue_count or 0)
    return Claim(queue, message.id, str(message.pop_receipt), body, taken)


def _as_item(message: QueueMessage) -> Item:
    assert message.inserted_on, "the service says when each message was put"
    body = _as_body(message.content)
    return Item(body, int(message.dequeue_count or 0), message.id, message.inserted_on)


def _as_body(text: str | None) -> str:
    try:
        return base64.b64decode(text or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text or ""  # put there by hand; the sender will report it as malformed
