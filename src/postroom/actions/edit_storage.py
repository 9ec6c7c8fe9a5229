"""Action, edit storage: an owner changes rows, items and blobs by hand.

Before: somebody has looked at a row, an item or a blob, and knows what is wrong with it.
After: exactly that is changed, and nothing else; Postroom's own checks are bypassed.
Dies half-way: a row is one guarded write; a blob is written as a whole; an item that is moved may
be on both queues (records/queue_items.py). The audit log has every change before it is made.
Commit point: the write itself.

A row is guarded by its etag. Blobs have no etag: their content is compared with the one that was
seen just before it is replaced, so a change within these milliseconds is overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

from postroom.act import Act
from postroom.domain.audit import AuditAction, AuditKind, changed_values, values_text
from postroom.domain.errors import AlreadyThere, BadInput, NotFound, PostroomError, WrongState
from postroom.domain.texts import _
from postroom.records.queue_items import delete_one, move_one
from postroom.records.secret_rows import is_locked, is_secret, masked_key, secret_names
from postroom.storage.port import (
    BLOB_BYTES_MAX,
    ITEM_BYTES_MAX,
    Claim,
    Conflict,
    Properties,
    Row,
)


async def insert_row(
    act: Act, table: str, partition: str, key: str, properties: Properties
) -> None:
    """Insert a row; AlreadyThere if it exists."""
    _check_unlocked(table, partition)
    _check_no_secrets(table, partition, properties)
    name = _row_name(table, partition, key)
    after = values_text(properties)
    async with act.audited(AuditKind.ROW, name, AuditAction.CREATE, after=after):
        with _checked_by_storage():
            try:
                await act.tables.insert(table, partition, key, properties)
            except Conflict:
                raise AlreadyThere(_("There is already a row with these keys.")) from None


async def replace_row(act: Act, table: str, seen: Row, properties: Properties) -> str:
    """Replace the row that was seen, and return its new etag; Conflict if it has changed.

    `properties` has no secrets: those of the row stay as they are.
    """
    _check_unlocked(table, seen.partition)
    _check_no_secrets(table, seen.partition, properties)
    hidden = secret_names(table, seen)
    whole = {name: seen.properties[name] for name in hidden} | dict(properties)
    before, after = changed_values(seen.properties, whole, secret=hidden)
    name = _row_name(table, seen.partition, seen.key)
    async with act.audited(AuditKind.ROW, name, AuditAction.CHANGE, before=before, after=after):
        with _checked_by_storage():
            return await act.tables.replace(table, seen.partition, seen.key, whole, seen.etag)


async def delete_row(act: Act, table: str, seen: Row) -> None:
    """Delete the row that was seen; Conflict if it has changed. Related rows are not touched."""
    _check_unlocked(table, seen.partition)
    hidden = secret_names(table, seen)
    before, _after = changed_values(seen.properties, {}, secret=hidden)
    name = _row_name(table, seen.partition, seen.key)
    async with act.audited(AuditKind.ROW, name, AuditAction.DELETE, before=before):
        await act.tables.delete(table, seen.partition, seen.key, seen.etag)


async def put_item(act: Act, queue: str, body: str) -> None:
    if not body or len(body.encode("utf-8", "surrogatepass")) > ITEM_BYTES_MAX:
        raise BadInput(_("An item must be 1 to {limit:,} bytes long.", limit=ITEM_BYTES_MAX))
    async with act.audited(AuditKind.ITEM, queue, AuditAction.PUT, after=body):
        await act.storage.queues.put(queue, body)
    _wake(act)


async def delete_item(act: Act, queue: str, id_: str) -> Claim:
    name = f"{queue} {id_}"
    async with act.audited(AuditKind.ITEM, name, AuditAction.DELETE):
        return await delete_one(act.storage.queues, queue, id_)


async def move_item(act: Act, queue: str, id_: str, to: str) -> Claim:
    if to == queue:
        raise BadInput(_("Choose another queue."))
    name = f"{queue} {id_}"
    after = values_text({"queue": to})
    async with act.audited(AuditKind.ITEM, name, AuditAction.MOVE, after=after):
        moved = await move_one(act.storage.queues, queue, id_, to)
    _wake(act)
    return moved


async def put_blob(act: Act, name: str, content: bytes, *, seen: str) -> None:
    """Write a blob; Conflict unless its content is the one seen ("" if there was none)."""
    if len(content) > BLOB_BYTES_MAX:
        raise BadInput(_("A blob can be at most {limit} MiB.", limit=BLOB_BYTES_MAX // 1024**2))
    with _checked_by_storage():
        current = await act.storage.blobs.get(name)
        before = "" if current is None else values_text({"bytes": len(current)})
        after = values_text({"bytes": len(content), "SHA-256": digest(content)})
        action = AuditAction.PUT
        async with act.audited(AuditKind.BLOB, name, action, before=before, after=after):
            if (digest(current) if current is not None else "") != seen:
                raise Conflict(f"the blob {name} has changed")
            await act.storage.blobs.put(name, content)


async def delete_blob(act: Act, name: str, *, seen: str) -> None:
    """Delete a blob; Conflict unless its content is the one seen."""
    current = await act.storage.blobs.get(name)
    if current is None:
        raise NotFound(_("There is no longer a blob with this name."))
    before = values_text({"bytes": len(current), "SHA-256": digest(current)})
    async with act.audited(AuditKind.BLOB, name, AuditAction.DELETE, before=before):
        if digest(current) != seen:
            raise Conflict(f"the blob {name} has changed")
        await act.storage.blobs.delete(name)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _check_unlocked(table: str, partition: str) -> None:
    if is_locked(table, partition):
        raise WrongState(
            _("This cannot be changed: it is part of the audit log, or the installation’s secret.")
        )


def _check_no_secrets(table: str, partition: str, properties: Properties) -> None:
    if any(is_secret(table, partition, name) for name in properties):
        raise WrongState(_("Secrets cannot be written here."))


@contextlib.contextmanager
def _checked_by_storage() -> Iterator[None]:
    """Report keys, names and values that storage refuses as bad input, not as a bug."""
    try:
        yield
    except PostroomError:
        raise
    except ValueError as error:
        raise BadInput(_("Storage does not allow this: {error}.", error=str(error))) from error


def _row_name(table: str, partition: str, key: str) -> str:
    return f"{table} / {partition} / {masked_key(table, partition, key)}"


def _wake(act: Act) -> None:
    act.wake_senders()
    act.wake_scheduler()
