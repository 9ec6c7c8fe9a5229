"""`postroom init` and `postroom storage …`: create a storage, inspect any engine's content."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from postroom.cli.dead_letters import dead_letters_command
from postroom.cli.output import AsJson, Yes, confirm, print_json_array, show, to_json
from postroom.cli.session import load_settings, with_parts, work
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.texts import ngettext
from postroom.records.names import QUEUES, TABLES
from postroom.storage.port import CLAIM_ITEMS_MAX, SCAN_ROWS_MAX, Keys, KeysAcross, KeysWithin, Row

if TYPE_CHECKING:
    from postroom.wiring import Parts

T = TypeVar("T")
SECRET_PARTITION = "secret"
SECRET_NAMES = ("secret", "password", "token", "hash")  # parts of property names
MASK = "•••"

app = typer.Typer(no_args_is_help=True, help="Inspect tables, queues and blobs.")
app.command("dead-letters")(dead_letters_command)
Table = Annotated[str, typer.Argument(metavar="TABLE")]
Partition = Annotated[str, typer.Argument(metavar="PARTITION")]
Key = Annotated[str, typer.Argument(metavar="KEY")]


def init(as_json: AsJson = False) -> None:
    """Create an empty storage, unless there is one. “postroom serve” does it by itself."""
    from postroom.wiring.engines import engine_of

    engine = engine_of(load_settings())
    is_new = not engine.may_exist()
    where = engine.description

    async def job(parts: Parts) -> None:
        """Opening the storage creates it."""

    work(job, create=True)
    text = f"Created a new storage at {where}." if is_new else f"The storage at {where} is ready."
    show({"storage": where, "created": is_new}, as_json, text)


@app.command("tables")
def tables(as_json: AsJson = False) -> None:
    """List the tables."""
    show(TABLES, as_json, *TABLES)


@app.command("rows")
def rows(
    table: Table,
    partition: Annotated[str | None, typer.Option(help="Only rows of this partition.")] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="KEY", help="The first key, or partition, to show.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Print rows in key order; secrets are masked."""
    _check_name(table, TABLES, "table")
    keys = KeysAcross(start) if partition is None else KeysWithin(partition, start)

    async def job(parts: Parts) -> None:
        found = _rows(parts, table, keys, limit)
        if as_json:
            await print_json_array(_data(row) async for row in found)
            return
        async for row in found:
            typer.echo(_line(row))

    _query(job)


@app.command("row")
def row(table: Table, partition: Partition, key: Key, as_json: AsJson = False) -> None:
    """Print one row; secrets are masked."""
    found = _read_row(table, partition, key)
    properties = [f"{name} = {to_json(value)}" for name, value in masked(found).items()]
    show(_data(found), as_json, f"etag {found.etag}", *properties)


@app.command("delete-row")
def delete_row(
    table: Table, partition: Partition, key: Key, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete one row, unless it changed since it was shown. This repairs nothing by itself."""
    found = _read_row(table, partition, key)
    confirm(f"Delete from {table}: {_line(found)} ?", yes)
    work(lambda parts: parts.storage.tables.delete(table, partition, key, found.etag))
    data = {"table": table, "partition": partition, "key": key, "deleted": True}
    show(data, as_json, f"{partition} / {key} is deleted from {table}.")


@app.command("queues")
@with_parts
async def queues(parts: Parts, as_json: AsJson = False) -> None:
    """List the queues and how many items each has, claimed ones included."""
    lengths = {name: await parts.storage.queues.length(name) for name in QUEUES}
    show(lengths, as_json, *(f"{name:25} {count:>10,}" for name, count in lengths.items()))


@app.command("peek")
def peek(
    queue: Annotated[str, typer.Argument(metavar="QUEUE")],
    limit: Annotated[int, typer.Option(min=1, max=CLAIM_ITEMS_MAX, help="At most this many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Print the next items of a queue without claiming them."""
    _check_name(queue, QUEUES, "queue")
    items = work(lambda parts: parts.storage.queues.peek(queue, limit=limit))
    lines = [
        f"{item.body}  ({ngettext('claimed {count} time', 'claimed {count} times', item.taken)})"
        for item in items
    ]
    show([{"body": item.body, "taken": item.taken} for item in items], as_json, *lines)


@app.command("blobs")
@with_parts
async def blobs(
    parts: Parts,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]")] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Print the names of blobs."""
    names, after = await parts.storage.blobs.list(prefix)
    while after and len(names) < limit:
        page, after = await parts.storage.blobs.list(prefix, after=after)
        names += page
    show(names[:limit], as_json, *names[:limit])


@app.command("blob")
def blob(name: Annotated[str, typer.Argument(metavar="NAME")], as_json: AsJson = False) -> None:
    """Print a blob as it is, or with --json its name and size."""

    async def job(parts: Parts) -> bytes:
        content = await parts.storage.blobs.get(name)
        if content is None:
            raise NotFound(f"There is no blob {name}. “postroom storage blobs” lists them.")
        return content

    content = _query(job)
    if as_json:
        show({"name": name, "bytes": len(content)}, as_json)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def masked(row: Row) -> dict[str, Any]:
    """Return the properties, with secrets masked, so that none is read over a shoulder."""

    def is_secret(name: str) -> bool:
        is_marked = any(part in name.lower() for part in SECRET_NAMES)
        return name != "Format" and (row.partition == SECRET_PARTITION or is_marked)

    return {name: MASK if is_secret(name) else value for name, value in row.properties.items()}


def _query(job: Callable[[Parts], Awaitable[T]]) -> T:
    """Do the job; a key or name that storage cannot have is bad input, not a bug."""
    try:
        return work(job)
    except ValueError as error:
        raise BadInput(f"This cannot be in storage: {error}.") from error


async def _rows(parts: Parts, table: str, keys: Keys, limit: int) -> AsyncIterator[Row]:
    after: str | None = None
    while limit > 0:
        size = min(limit, SCAN_ROWS_MAX)
        page = await parts.storage.tables.scan(table, keys, limit=size, after=after)
        for found in page.rows:
            yield found
        limit -= len(page.rows)
        after = page.next
        if after is None:
            return


def _read_row(table: str, partition: str, key: str) -> Row:
    _check_name(table, TABLES, "table")

    async def job(parts: Parts) -> Row:
        found = await parts.storage.tables.get(table, partition, key)
        if found is None:
            raise NotFound(f"There is no row {partition} / {key} in {table}.")
        return found

    return _query(job)


def _check_name(name: str, names: tuple[str, ...], kind: str) -> None:
    if name not in names:
        raise BadInput(f"There is no {kind} {name}. There are {', '.join(names)}.")


def _data(row: Row) -> dict[str, Any]:
    names = {"partition": row.partition, "key": row.key, "etag": row.etag}
    return names | {"properties": masked(row)}


def _line(row: Row) -> str:
    return f"{row.partition} / {row.key}  {to_json(masked(row))}"
