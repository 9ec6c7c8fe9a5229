"""The storage port: tables, queues and blobs, shaped by the strictest engine (Azure Storage).

Everything stated here holds on every engine, and tests/contract proves it. Nothing may rely on a
transaction across partitions, tables, or a table and a queue; the order of writes and idempotence
keep the promises instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Generic, Protocol, TypeVar

import msgspec

# The limits of Azure Storage. Every engine enforces them (validation.py), so that moving
# to Azure never fails on data that another engine accepted.
BATCH_CHANGES_MAX = 100
CLAIM_ITEMS_MAX = 32
KEY_CHARS_MAX = 512
PROPERTY_CHARS_MAX = 32 * 1024
ROW_BYTES_MAX = 1024 * 1024
BATCH_BYTES_MAX = 4 * 1024 * 1024
ITEM_BYTES_MAX = 48 * 1024  # 64 KiB on the wire, as base64
SCAN_ROWS_MAX = 1000  # per page
SHORT_SCAN_ROWS = 200  # a page that an embedded engine reads at once, without a thread
ITEM_DELAY_S_MAX = 7 * 24 * 3600.0
PROPERTIES_MAX = 252  # per row
PROPERTY_INT_MAX = 2**63 - 1
BLOB_BYTES_MAX = 64 * 1024 * 1024  # our own limit: a blob is held in memory as a whole
BLOB_NAMES_MAX = 1000  # per page

Value = str | int | float | bool
Properties = Mapping[str, Value]


class FlatRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Properties as a struct, for rows that exist by the million.

    Its fields are Values, and `rename` gives them the names of properties; one that has its default
    is not stored. Names and types are checked once for the kind, and all rows of a batch are
    encoded in one step: a quarter of the time that mappings take.
    """


Content = Properties | FlatRow  # of a row that is written


class StorageNames(msgspec.Struct, frozen=True):
    tables: tuple[str, ...]
    queues: tuple[str, ...]
    container: str


class StorageError(Exception):
    """A call did not succeed. The subclasses below are all there are."""


class Conflict(StorageError):
    """The row exists, is absent or has changed, unexpectedly; nothing was written."""


class ClaimLost(StorageError):
    """The lease of the claim expired, and the item was claimed again or completed."""


class Unavailable(StorageError):
    """No answer in time. The call may or may not have taken effect."""


class StorageGone(Unavailable):
    """The storage that was opened no longer exists; only an administrator can fix this.

    Data that was being written may still exist somewhere, but no process will find it.
    """


class StorageFull(StorageError):
    """There is no space left, and nothing was written; only an administrator can fix this."""


class Unreadable(StorageError):
    """A row was written by a newer version of the program, or was damaged."""


class Row(msgspec.Struct, frozen=True):
    partition: str
    key: str
    properties: dict[str, Value]
    etag: str


KindT = TypeVar("KindT", bound=FlatRow)


class TypedRow(msgspec.Struct, Generic[KindT], frozen=True, gc=False):
    """A row whose properties are read into a struct; it ignores those that it has no field for."""

    partition: str
    key: str
    properties: KindT
    etag: str


class Insert(msgspec.Struct, frozen=True, gc=False):
    """Conflict if the row exists."""

    key: str
    properties: Content


class Upsert(msgspec.Struct, frozen=True, gc=False):
    """Write the row, whether or not it exists."""

    key: str
    properties: Content


class Replace(msgspec.Struct, frozen=True):
    """Conflict unless the row exists with this etag."""

    key: str
    properties: Content
    etag: str


class Delete(msgspec.Struct, frozen=True):
    """Conflict if the row is absent or, with an etag, has another version."""

    key: str
    etag: str | None = None


class DeleteRange(msgspec.Struct, frozen=True):
    """Delete the rows from `start` (inclusive) to `stop` (exclusive), which `keys` lists in full.

    Conflict if one of them is absent. A row of the range that is not named is never deleted: where
    the engine sees it, there is a Conflict; on Azure, which deletes by keys, it stays. So another
    change of the batch must guard the range (a row that is replaced whenever others are added).
    Each key counts as a change of the batch.
    """

    start: str
    stop: str
    keys: tuple[str, ...]


Change = Insert | Upsert | Replace | Delete | DeleteRange
Batch = tuple[str, str, Sequence[Change]]  # table, partition, changes


class KeysWithin(msgspec.Struct, frozen=True):
    """Rows of one partition from `start` (inclusive) to `stop` (exclusive; "": to the end)."""

    partition: str
    start: str = ""
    stop: str = ""


class KeysAcross(msgspec.Struct, frozen=True):
    """Rows of all partitions from `start` (inclusive) to `stop` (exclusive; "": to the end)."""

    start: str = ""
    stop: str = ""


Keys = KeysWithin | KeysAcross


class Page(msgspec.Struct, frozen=True):
    """Rows in key order. A page may be short, even empty, and still have a `next` page."""

    rows: list[Row]
    next: str | None


class TypedPage(msgspec.Struct, Generic[KindT], frozen=True):
    """The same with typed rows."""

    rows: list[TypedRow[KindT]]
    next: str | None


class Tables(Protocol):
    """Tables of rows. Engines inherit the changes of one row, which are batches of one."""

    async def get(self, table: str, partition: str, key: str) -> Row | None: ...

    async def insert(self, table: str, partition: str, key: str, properties: Content) -> str:
        """Insert the row and return its etag; Conflict if it exists."""
        return (await self.batch(table, partition, [Insert(key, properties)]))[0]

    async def upsert(self, table: str, partition: str, key: str, properties: Content) -> str:
        """Write the row, whether or not it exists, and return its new etag."""
        return (await self.batch(table, partition, [Upsert(key, properties)]))[0]

    async def replace(
        self, table: str, partition: str, key: str, properties: Content, etag: str
    ) -> str:
        """Replace the row and return its new etag; Conflict unless it exists with `etag`."""
        return (await self.batch(table, partition, [Replace(key, properties, etag)]))[0]

    async def delete(self, table: str, partition: str, key: str, etag: str | None = None) -> None:
        """Delete the row. With an etag, Conflict unless it matches; without, it may be absent."""
        try:
            await self.batch(table, partition, [Delete(key, etag)])
        except Conflict:
            if etag is not None:
                raise

    async def batch(self, table: str, partition: str, changes: Sequence[Change]) -> list[str]:
        """Apply 1 to 100 changes, each key once, all or nothing; return etags ("" if deleted).

        There is one etag for each change; a range has one as well.
        """

    async def batches(self, batches: Sequence[Batch]) -> list[list[str]]:
        """Apply batches in order, even of several tables, and return the etags of each.

        An error or a crash skips that batch and all after it; those before it stay.
        """
        return [await self.batch(*batch) for batch in batches]

    async def scan(
        self,
        table: str,
        keys: Keys,
        *,
        where: Properties | None = None,
        limit: int = SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> Page:
        """Return up to `limit` rows that match all of `where`; `after` is the last `next`."""

    async def scan_as(
        self,
        kind: type[KindT],
        table: str,
        keys: Keys,
        *,
        where: Properties | None = None,
        limit: int = SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> TypedPage[KindT]:
        """Like `scan`, for long lists: half the work. Unreadable if a row does not fit `kind`."""
        page = await self.scan(table, keys, where=where, limit=limit, after=after)
        try:
            rows = [
                TypedRow(row.partition, row.key, msgspec.convert(row.properties, kind), row.etag)
                for row in page.rows
            ]
        except msgspec.ValidationError as error:
            raise Unreadable(f"A row is not a complete {kind.__name__}: {error}.") from error
        return TypedPage(rows, page.next)


class Item(msgspec.Struct, frozen=True):
    body: str
    taken: int  # how often it was claimed
    id: str  # the `item` of its claims
    put_at: datetime


class Claim(msgspec.Struct, frozen=True):
    """An item claimed for a while; `taken` counts its claims, including this one."""

    queue: str
    item: str
    receipt: str
    body: str
    taken: int


class Queues(Protocol):
    async def put(self, queue: str, *bodies: str, delay_s: float = 0.0) -> None:
        """Put one item per body, in order; a crash half-way may leave some out."""

    async def claim(self, queue: str, *, limit: int, lease_s: float) -> list[Claim]:
        """Claim at most `limit` (≤ 32) visible items, roughly the oldest first."""

    async def extend(self, claim: Claim, *, lease_s: float) -> Claim:
        """Renew the lease from now; only the claim that comes back is valid afterwards."""

    async def complete(self, claim: Claim) -> None:
        """Delete the item; ClaimLost if the claim is stale."""

    async def release(self, claim: Claim, *, delay_s: float = 0.0) -> None:
        """Make the item visible again after the delay; the claim is stale afterwards."""

    async def length(self, queue: str) -> int:
        """The number of items, including claimed and delayed ones; approximate on Azure."""

    async def peek(self, queue: str, *, limit: int = 32) -> list[Item]:
        """Items that could be claimed now; nothing is claimed."""


class Blobs(Protocol):
    async def put(self, name: str, content: bytes) -> None:
        """Write the whole blob or nothing, replacing an existing one."""

    async def get(self, name: str) -> bytes | None: ...

    async def delete(self, name: str) -> None:
        """An absent blob is fine."""

    async def list(
        self, prefix: str = "", *, after: str | None = None
    ) -> tuple[list[str], str | None]:
        """A page of names in order, and the `after` of the next page (None at the end)."""


class Troubles(msgspec.Struct, frozen=True):
    """How often a remote engine failed to answer since the process started; when a disk was full.

    Times are seconds since the epoch.
    """

    refused: int = 0  # too busy or unreachable: nothing was done
    in_doubt: int = 0  # no clear answer: it may have been done
    last_at: float = 0.0  # either of them
    full_at: float = 0.0  # when a write last found no space


class Storage(Protocol):
    @property
    def tables(self) -> Tables: ...
    @property
    def queues(self) -> Queues: ...
    @property
    def blobs(self) -> Blobs: ...
    @property
    def troubles(self) -> Troubles: ...

    async def close(self) -> None: ...
