"""Storage in memory: the model for the other engines, and the disk of the simulation.

No call ever awaits, so each is atomic. Etags, ids and receipts come from counters, so the same
calls always give the same answers.
"""

from __future__ import annotations

import builtins
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import count, islice

import msgspec

from postroom.clock import Clock
from postroom.storage import port, validation
from postroom.storage.queue_time import (
    SECOND_US,
    QueueTime,
    from_queue_time,
    queue_time,
    read_clocks,
)

# Values are stored as they come back from JSON: a copy, with enums as their plain values.
_as_stored = msgspec.json.Decoder(dict[str, port.Value]).decode
_BEGINNING = "?"  # a continuation at the first row; no key contains a question mark


class MemoryStorage:
    """Everything in dicts.

    `page_rows` limits the rows examined for one page, which makes pages short. With
    `empty_first_page` the first page of every scan is empty and has a next, as Azure may answer.
    """

    def __init__(
        self,
        clock: Clock,
        names: port.StorageNames,
        *,
        page_rows: int | None = None,
        empty_first_page: bool = False,
    ) -> None:
        page_max = page_rows or port.SCAN_ROWS_MAX
        self.tables = MemoryTables(names.tables, page_max, empty_first_page)
        self.queues = MemoryQueues(names.queues, clock)
        self.blobs = MemoryBlobs(page_rows or port.BLOB_NAMES_MAX)
        self.troubles = port.Troubles()

    async def close(self) -> None:
        """Nothing to do: memory is freed with the process."""


class _Table:
    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], port.Row] = {}
        self.order: list[tuple[str, str]] = []

    def write(self, row: port.Row) -> None:
        place = (row.partition, row.key)
        if place not in self.rows:
            insort(self.order, place)
        self.rows[place] = row

    def remove(self, place: tuple[str, str]) -> None:
        if self.rows.pop(place, None) is not None:
            del self.order[bisect_left(self.order, place)]

    def range(self, keys: port.Keys, after: str | None) -> Iterator[port.Row]:
        """The rows of the range in order, starting after the row that `after` names."""
        low = (
            (keys.partition, keys.start) if isinstance(keys, port.KeysWithin) else (keys.start, "")
        )
        first = bisect_left(self.order, low)
        if after is not None and after != _BEGINNING:
            first = max(first, bisect_right(self.order, validation.place_of(after, keys)))
        for place in islice(self.order, first, None):
            if isinstance(keys, port.KeysWithin) and place[0] != keys.partition:
                return
            if keys.stop and place[isinstance(keys, port.KeysWithin)] >= keys.stop:
                return
            yield self.rows[place]


class MemoryTables(port.Tables):
    def __init__(
        self,
        names: Sequence[str],
        page_rows: int = port.SCAN_ROWS_MAX,
        empty_first_page: bool = False,
    ) -> None:
        self._tables = {name: _Table() for name in names}
        self._etags = count(1)
        self._page_rows = page_rows
        self._empty_first_page = empty_first_page

    async def get(self, table: str, partition: str, key: str) -> port.Row | None:
        validation.check_row(self._tables, table, partition, key)
        row = self._tables[table].rows.get((partition, key))
        return row and _copy(row)

    async def batch(self, table: str, partition: str, changes: Sequence[port.Change]) -> list[str]:
        contents = iter(validation.encode_batch(self._tables, table, partition, changes))
        stored = self._tables[table]
        for change in changes:
            if isinstance(change, port.DeleteRange):
                keys = port.KeysWithin(partition, change.start, change.stop)
                if [row.key for row in stored.range(keys, None)] != sorted(change.keys):
                    raise port.Conflict("the rows of the range are not as expected")
                continue
            row = stored.rows.get((partition, change.key))
            validation.check_expected(change, row.etag if row else None)
        etags: list[str] = []
        for change in changes:
            if isinstance(change, port.Delete | port.DeleteRange):
                for key in validation.keys_of(change):
                    stored.remove((partition, key))
                etags.append("")
            else:
                etags.append(str(next(self._etags)))
                properties = _as_stored(next(contents))
                stored.write(port.Row(partition, change.key, properties, etags[-1]))
        return etags

    async def scan(
        self,
        table: str,
        keys: port.Keys,
        *,
        where: port.Properties | None = None,
        limit: int = port.SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> port.Page:
        validation.check_scan(self._tables, table, keys, where, limit)
        where = _as_stored(validation.encode_properties(where or {}))
        if after is None and self._empty_first_page:
            return port.Page([], _BEGINNING)
        rows: list[port.Row] = []
        examined = ""
        for seen, row in enumerate(self._tables[table].range(keys, after)):
            if len(rows) == limit or seen == self._page_rows:
                return port.Page(rows, examined)
            examined = validation.continuation(row)
            if validation.matches(row.properties, where):
                rows.append(_copy(row))
        return port.Page(rows, None)


class _Item(msgspec.Struct):
    id: int
    body: str
    visible_at_us: int
    put_at_us: int
    taken: int = 0
    receipt: str = ""


class MemoryQueues:
    def __init__(self, names: Sequence[str], clock: Clock) -> None:
        self._clock = clock
        self._time: QueueTime | None = None
        self._queues: dict[str, dict[str, _Item]] = {name: {} for name in names}
        self._ids = count(1)
        self._receipts = count(1)

    async def put(self, queue: str, *bodies: str, delay_s: float = 0.0) -> None:
        validation.check_put(self._queues, queue, bodies, delay_s)
        for body in bodies:
            now_us = self._from_now(0)
            hidden_us = round(delay_s * SECOND_US)
            item = _Item(next(self._ids), body, now_us + hidden_us, now_us)
            self._queues[queue][str(item.id)] = item

    async def claim(self, queue: str, *, limit: int, lease_s: float) -> list[port.Claim]:
        validation.check_claim(self._queues, queue, limit, lease_s)
        claims = []
        for item in self._visible(queue, limit):
            item.taken += 1
            claims.append(self._hide(queue, item, lease_s))
        return claims

    async def extend(self, claim: port.Claim, *, lease_s: float) -> port.Claim:
        validation.check_lease(lease_s)
        return self._hide(claim.queue, self._claimed(claim), lease_s)

    async def complete(self, claim: port.Claim) -> None:
        self._claimed(claim)
        del self._queues[claim.queue][claim.item]

    async def release(self, claim: port.Claim, *, delay_s: float = 0.0) -> None:
        validation.check_delay(delay_s)
        self._hide(claim.queue, self._claimed(claim), delay_s)

    async def length(self, queue: str) -> int:
        validation.check_queue(self._queues, queue)
        return len(self._queues[queue])

    async def peek(self, queue: str, *, limit: int = port.CLAIM_ITEMS_MAX) -> list[port.Item]:
        validation.check_peek(self._queues, queue, limit)
        return [
            port.Item(item.body, item.taken, str(item.id), from_queue_time(item.put_at_us))
            for item in self._visible(queue, limit)
        ]

    def _visible(self, queue: str, limit: int) -> list[_Item]:
        now_us = self._from_now(0)
        found = (item for item in self._queues[queue].values() if item.visible_at_us <= now_us)
        return nsmallest(limit, found, key=lambda item: (item.visible_at_us, item.id))

    def _from_now(self, seconds: float) -> int:
        now_us, self._time = queue_time(self._time, read_clocks(self._clock, ""))
        return now_us + round(seconds * SECOND_US)

    def _hide(self, queue: str, item: _Item, seconds: float) -> port.Claim:
        """Make the item invisible for `seconds`, under a new receipt."""
        item.visible_at_us = self._from_now(seconds)
        item.receipt = str(next(self._receipts))
        return port.Claim(queue, str(item.id), item.receipt, item.body, item.taken)

    def _claimed(self, claim: port.Claim) -> _Item:
        validation.check_queue(self._queues, claim.queue)
        item = self._queues[claim.queue].get(claim.item)
        if item is None or item.receipt != claim.receipt:
            raise port.ClaimLost(f"the claim on item {claim.item} of {claim.queue} is stale")
        return item


class MemoryBlobs:
    def __init__(self, page_names: int) -> None:
        self._contents: dict[str, bytes] = {}
        self._page_names = page_names

    async def put(self, name: str, content: bytes) -> None:
        validation.check_blob(name, content)
        self._contents[name] = bytes(content)

    async def get(self, name: str) -> bytes | None:
        validation.check_blob(name)
        return self._contents.get(name)

    async def delete(self, name: str) -> None:
        validation.check_blob(name)
        self._contents.pop(name, None)

    async def list(
        self, prefix: str = "", *, after: str | None = None
    ) -> tuple[builtins.list[str], str | None]:
        found = sorted(
            name
            for name in self._contents
            if name.startswith(prefix) and (after is None or name > after)
        )
        page = found[: self._page_names]
        return page, page[-1] if len(found) > len(page) else None


def _copy(row: port.Row) -> port.Row:
    return port.Row(row.partition, row.key, dict(row.properties), row.etag)
