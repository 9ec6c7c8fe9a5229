"""Copy everything out of a storage that is in use and has no snapshot, such as Azure Storage.

This is not a snapshot: rows change while others are read. So everything is read in the reverse
order of writing, and whatever a row refers to is in the copy, as it was then or later:

    message rows > ledgers > batches > archive > all else > blobs > suppressions > lists and people

What can be inconsistent in a copy, and why it does no harm:
    a batch that its message does not count    the scheduler adopts it, as after a crash
    a batch without a ledger                   adopted, as queued; restoring settles what the
                                               archive knows, and a person decides on the rest
    a ledger that is open, rows deleted        they were deleted after everyone's outcome was
                                               archived, so restoring settles them by the archive
    a message both live and archived           readers take the live one; it is archived again
    a message neither retried nor archived     a retry that was decided meanwhile may be undone
    a body that was replaced meanwhile         its message is sent to nobody: recipients are held
    counts of a list                           only shown to people; the next change corrects them
    somebody who unsubscribed meanwhile        people are read last, so the copy knows more of them
Queues are not read by claiming, which would take work away from senders. The mail queue and the
queues of imports and feedback are not needed: their items are put again from rows. From the others
up to 32 items are copied, all that can be seen at once; later confirmations are not in the copy,
but the people are, and can be asked again (actions/ask_to_confirm.py).
Dies half-way: the file is incomplete and has no manifest, so it is never used as a backup.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from postroom.migration.comparison import BLOBS
from postroom.migration.row_pairs import OWN_ROWS
from postroom.migration.table_writer import TableWriter
from postroom.records.names import DEAD_LETTER_QUEUE, SINGLE_MAIL_QUEUE, TABLES
from postroom.records.rows import all_rows
from postroom.storage.port import CLAIM_ITEMS_MAX, KeysAcross, Row, Storage, Tables
from postroom.task_pool import TaskPool

ROWS_PER_PROGRESS = 1000
BATCHES_IN_FLIGHT = 4  # the file is faster than any remote storage
COPIED_QUEUES = (SINGLE_MAIL_QUEUE, DEAD_LETTER_QUEUE)
_FIRST = ("message", "messagearchive")
_LAST = ("suppression", "mailinglist")
# Messages and their due entries begin with "-", a digit or "m"; ledgers with "l"; batches with "b".
_MESSAGE_RANGES = (
    KeysAcross("m"),
    KeysAcross("", "b"),
    KeysAcross("l", "m"),
    KeysAcross("b", "l"),
)
OnProgress = Callable[[str, int], None]
"""Called regularly with what is being copied and how much of it is done."""


async def copy_everything(source: Storage, target: Storage, on_progress: OnProgress) -> None:
    """Copy into an empty storage, in the order above."""
    middle = (table for table in TABLES if table not in _FIRST + _LAST)
    for table in (*_FIRST, *middle):
        await _copy_table(source, target, table, on_progress)
    await _copy_blobs(source, target, on_progress)  # after the rows of templates and pictures
    for queue in COPIED_QUEUES:
        items = await source.queues.peek(queue, limit=CLAIM_ITEMS_MAX)
        await target.queues.put(queue, *(item.body for item in items))
    for table in _LAST:
        await _copy_table(source, target, table, on_progress)


async def _copy_table(
    source: Storage, target: Storage, table: str, on_progress: OnProgress
) -> None:
    async def write(call: Callable[[], Awaitable[object]]) -> None:
        await call()

    done = 0
    async with TaskPool(BATCHES_IN_FLIGHT) as pool:
        writer = TableWriter(pool, target.tables, table, write)
        async for row in _rows(source.tables, table):
            await writer.add(row)
            done += 1
            if done % ROWS_PER_PROGRESS == 0:
                on_progress(table, done)
        await writer.finish()


async def _rows(tables: Tables, table: str) -> AsyncIterator[Row]:
    """Everything in a table, in the order above, except for what belongs to one storage alone."""
    for keys in _MESSAGE_RANGES if table == _FIRST[0] else (KeysAcross(),):
        async for row in all_rows(tables, table, keys):
            if (table, row.partition) not in OWN_ROWS:
                yield row


async def _copy_blobs(source: Storage, target: Storage, on_progress: OnProgress) -> None:
    """One after the other: a blob may have 64 MiB. One that was deleted meanwhile is left out."""
    done = 0
    after: str | None = None
    while True:
        names, after = await source.blobs.list(after=after)
        for name in names:
            content = await source.blobs.get(name)
            if content is not None:
                await target.blobs.put(name, content)
            done += 1
            on_progress(BLOBS, done)
        if after is None:
            return
