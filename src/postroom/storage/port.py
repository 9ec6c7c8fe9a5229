"""The storage port: tables, queues and blobs, shaped by the strictest engine (Azure Storage).

What holds on every engine is written here and proved by tests/contract. Nothing may rely on a
transaction across partitions, tables, or table and queue: order and idempotence carry the promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

TABLES = ("mailinglist", "message", "messagearchive", "service", "outbox")
MAIL_QUEUE = "azuremailqueue"
SUBSCRIBE_QUEUE = "azuremailsubscribequeue"
IMPORT_QUEUE = "azuremailimportqueue"
DEAD_LETTERS = "azuremaildeadletter"
QUEUES = (MAIL_QUEUE, SUBSCRIBE_QUEUE, IMPORT_QUEUE, DEAD_LETTERS)

# The limits of Azure Storage, kept on every engine (limits.py) so that nobody meets them first
# when moving.
BATCH_CHANGES_MAX = 100
CLAIM_ITEMS_MAX = 32
KEY_CHARS_MAX = 512
PROPERTY_CHARS_MAX = 32 * 1024
ROW_BYTES_MAX = 1024 * 1024
BATCH_BYTES_MAX = 4 * 1024 * 1024
ITEM_BYTES_MAX = 48 * 1024  # 64 KiB on the wire, as base64
SCAN_ROWS_MAX = 1000  # a page
ITEM_DELAY_S_MAX = 7 * 24 * 3600.0
PROPERTIES_MAX = 252  # a row
PROPERTY_INT_MAX = 2**63 - 1
BLOB_NAME_CHARS_MAX = 1024
BLOB_BYTES_MAX = 64 * 1024 * 1024  # ours: a blob is held in memory whole
BLOB_NAMES_MAX = 1000  # a page

Value = str | int | float | bool
Properties = Mapping[str, Value]


class StorageError(Exception):
    """What storage may answer instead of doing as told. The list below is closed."""


class Conflict(StorageError):
    """A row exists already, is absent, or is not the version that was expected; nothing changed."""


class ClaimLost(StorageError):
    """The claim is stale: its lease lapsed and the item was taken again, or is gone."""


class Unavailable(StorageError):
    """No answer in time. The call may or may not have taken effect."""


class StorageGone(Unavailable):
    """The storage that was opened is not there any more, and only a person can help.

    What was being written may be somewhere, but nobody will find it.
    """


class StorageFull(StorageError):
    """No room left: nothing changed, and only a person can help."""


class Row(msgspec.Struct, frozen=True):
    partition: str
    key: str
    properties: dict[str, Value]
    etag: str


class Insert(msgspec.Struct, frozen=True):
    """Conflict if the row exists."""

    key: str
    properties: Properties


class Upsert(msgspec.Struct, frozen=True):
    """Write whatever stands there."""

    key: str
    properties: Properties


class Replace(msgspec.Struct, frozen=True):
    """Conflict unless the row exists with this etag."""

    key: str
    properties: Properties
    etag: str


class Delete(msgspec.Struct, frozen=True):
    """Conflict if the row is absent, or (with an etag) another version."""

    key: str
    etag: str | None = None


Change = Insert | Upsert | Replace | Delete
Batch = tuple[str, Sequence[Change]]  # partition, changes


class KeysWithin(msgspec.Struct, frozen=True):
    """Rows of one partition, from `start` up to but without `stop` ("" = to the end)."""

    partition: str
    start: str = ""
    stop: str = ""


class KeysAcross(msgspec.Struct, frozen=True):
    """All rows of the partitions from `start` up to but without `stop` ("" = to the end)."""

    start: str = ""
    stop: str = ""


Keys = KeysWithin | KeysAcross


class Page(msgspec.Struct, frozen=True):
    """Rows in key order; `next` goes on. A page may be short, even empty, and still have a next."""

    rows: list[Row]
    next: str | None


class Tables(Protocol):
    async def get(self, table: str, partition: str, key: str) -> Row | None: ...

    async def insert(self, table: str, partition: str, key: str, properties: Properties) -> str:
        """The new etag; Conflict if the row exists."""
        ...

    async def upsert(self, table: str, partition: str, key: str, properties: Properties) -> str:
        """The new etag."""
        ...

    async def replace(
        self, table: str, partition: str, key: str, properties: Properties, etag: str
    ) -> str:
        """The new etag; Conflict unless the row exists with the etag given."""
        ...

    async def delete(self, table: str, partition: str, key: str, etag: str | None = None) -> None:
        """Without an etag an absent row is fine; with one, anything but that version conflicts."""
        ...

    async def batch(self, table: str, partition: str, changes: Sequence[Change]) -> list[str]:
        """All or nothing, 1 to 100 changes, each key once. The new etags ("" for a deletion)."""
        ...

    async def batches(self, table: str, batches: Sequence[Batch]) -> None:
        """One batch after the other: a refusal, or a death, leaves out it and all behind it."""
        ...

    async def scan(
        self,
        table: str,
        keys: Keys,
        *,
        where: Properties | None = None,
        limit: int = SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> Page:
        """Up to `limit` rows whose properties equal all of `where`, going on after `after`."""
        ...


class Item(msgspec.Struct, frozen=True):
    body: str
    taken: int


class Claim(msgspec.Struct, frozen=True):
    """An item held for a while; `taken` counts how often it was claimed, this time included."""

    queue: str
    item: str
    receipt: str
    body: str
    taken: int


class Queues(Protocol):
    async def put(self, queue: str, *bodies: str, delay_s: float = 0.0) -> None:
        """One item a body, in order. Not all or nothing: dying half-way may leave some out."""
        ...

    async def claim(self, queue: str, *, limit: int, lease_s: float) -> list[Claim]:
        """Up to `limit` (≤ 32) visible items, oldest first as far as the engine can tell."""
        ...

    async def extend(self, claim: Claim, *, lease_s: float) -> Claim:
        """The same claim with a new lease from now; the old value is stale from here on."""
        ...

    async def complete(self, claim: Claim) -> None:
        """The item is gone for good."""
        ...

    async def release(self, claim: Claim, *, delay_s: float = 0.0) -> None:
        """Give the item back, to be visible after the delay; the claim is stale from here on."""
        ...

    async def length(self, queue: str) -> int:
        """How many items there are, claimed and delayed ones included; approximate on Azure."""
        ...

    async def peek(self, queue: str, *, limit: int = 32) -> list[Item]:
        """Items that could be claimed now, without claiming them."""
        ...


class Blobs(Protocol):
    async def put(self, name: str, content: bytes) -> None:
        """Whole or absent; an existing blob is replaced."""
        ...

    async def get(self, name: str) -> bytes | None: ...

    async def delete(self, name: str) -> None:
        """An absent blob is fine."""
        ...

    async def list(
        self, prefix: str = "", *, after: str | None = None
    ) -> tuple[list[str], str | None]:
        """A page of names in order, and how to go on (None at the end)."""
        ...


class Troubles(msgspec.Struct, frozen=True):
    """How often an engine far away was too busy or silent, since the start."""

    refused: int = 0  # too busy, or not to be reached
    in_doubt: int = 0  # no answer, or none that tells
    last_at: float = 0.0  # seconds since the epoch


class Storage(Protocol):
    """One engine, opened."""

    @property
    def tables(self) -> Tables: ...
    @property
    def queues(self) -> Queues: ...
    @property
    def blobs(self) -> Blobs: ...
    @property
    def troubles(self) -> Troubles: ...

    async def close(self) -> None: ...
