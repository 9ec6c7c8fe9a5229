"""`postroom init` and `postroom storage …`: create a storage; inspect and edit any engine's."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from postroom.actions import edit_storage
from postroom.cli.dead_letters import dead_letters_command
from postroom.cli.output import (
    AsJson,
    Yes,
    confirm,
    print_json_array,
    readable,
    show,
    to_json,
)
from postroom.cli.session import act_of, load_settings, with_parts, work
from postroom.domain.errors import AlreadyThere, BadInput, NotFound, WrongState
from postroom.domain.texts import ngettext
from postroom.domain.typed_value import Value, ValueType, parse_value
from postroom.records.names import QUEUES, TABLES
from postroom.records.secret_rows import is_secret, masked_key, masked_properties, row_data
from postroom.storage.port import (
    CLAIM_ITEMS_MAX,
    SCAN_ROWS_MAX,
    Conflict,
    Keys,
    KeysAcross,
    KeysWithin,
    Properties,
    Row,
)

if TYPE_CHECKING:
    from postroom.wiring import Parts

T = TypeVar("T")
CHANGED = "The row changed at the same time. Check it and try again."

app = typer.Typer(no_args_is_help=True, help="View and edit tables, queues and blobs.")
app.command("dead-letters")(dead_letters_command)
Table = Annotated[str, typer.Argument(metavar="TABLE")]
Partition = Annotated[str, typer.Argument(metavar="PARTITION")]
Key = Annotated[str, typer.Argument(metavar="KEY")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE")]
ItemId = Annotated[str, typer.Argument(metavar="ID", help="As “peek” shows it.")]
Body = Annotated[str, typer.Argument(metavar="TEXT")]
BlobName = Annotated[str, typer.Argument(metavar="NAME")]


def init(as_json: AsJson = False) -> None:
    """Create an empty storage, unless there is one. “postroom serve” does this automatically."""
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
    stop: Annotated[
        str, typer.Option("--to", metavar="KEY", help="Keys, or partitions, before this one.")
    ] = "",
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Keys, or partitions, that start with this.")
    ] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only rows with this property; see “set-row”."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Print rows in key order; secrets are masked."""
    _check_name(table, TABLES, "table")
    start = max(start, prefix)
    stop = min(filter(None, (stop, prefix and prefix + "~~~~")), default="")
    keys = KeysAcross(start, stop) if partition is None else KeysWithin(partition, start, stop)
    values = dict(map(_parse_property, where or []))

    async def job(parts: Parts) -> None:
        found = _rows(parts, table, keys, values, limit)
        if as_json:
            await print_json_array(row_data(table, row) async for row in found)
            return
        async for row in found:
            typer.echo(_line(table, row))

    _query(job)


@app.command("row")
def row(table: Table, partition: Partition, key: Key, as_json: AsJson = False) -> None:
    """Print one row; secrets are masked."""
    found = _read_row(table, partition, key)
    values = masked_properties(table, found)
    lines = [f"{name} = {to_json(value)}" for name, value in values.items()]
    show(row_data(table, found), as_json, f"etag {found.etag}", *lines)


@app.command("set-row")
@with_parts
async def set_row(
    parts: Parts,
    table: Table,
    partition: Partition,
    key: Key,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help="Text; or with a type, as in Verified:bool=true (int, float, bool, time, text). "
            "NAME= alone removes the property.",
        ),
    ],
    etag: Annotated[str, typer.Option(help="Only if the row still has this etag.")] = "",
    create: Annotated[bool, typer.Option("--create", help="Insert a new row.")] = False,
    as_json: AsJson = False,
) -> None:
    """Change properties of a row, or insert one. Secrets and the audit log cannot be changed."""
    _check_name(table, TABLES, "table")
    act = act_of(parts)
    changes = dict(map(_parse_property, values))
    given = {name: value for name, value in changes.items() if value != ""}
    if create:
        await edit_storage.insert_row(act, table, partition, key, given)
    else:
        seen = await _read_from(parts, table, partition, key)
        if etag and etag != seen.etag:
            raise WrongState(
                f"The row has changed: its etag is now {seen.etag}. Check the row again."
            )
        kept = {
            name: value
            for name, value in seen.properties.items()
            if name not in changes and not is_secret(table, partition, name)
        }
        try:
            await edit_storage.replace_row(act, table, seen, kept | given)
        except Conflict:
            raise WrongState("The row changed at the same time. Check it and try again.") from None
    found = await _read_from(parts, table, partition, key)
    show(row_data(table, found), as_json, f"{partition} / {key} was changed in {table}.")


@app.command("delete-row")
def delete_row(
    table: Table, partition: Partition, key: Key, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete one row, unless it has changed since it was shown. Related rows are not touched."""
    found = _read_row(table, partition, key)
    confirm(f"Delete from {table}: {_line(table, found)} ?", yes)
    try:
        work(lambda parts: edit_storage.delete_row(act_of(parts), table, found))
    except Conflict:
        raise WrongState(CHANGED) from None
    data = {"table": table, "partition": partition, "key": key, "deleted": True}
    show(data, as_json, f"{partition} / {key} was deleted from {table}.")


@app.command("queues")
@with_parts
async def queues(parts: Parts, as_json: AsJson = False) -> None:
    """List the queues and how many items each has, including claimed ones."""
    lengths = {name: await parts.storage.queues.length(name) for name in QUEUES}
    show(lengths, as_json, *(f"{name:25} {count:>10,}" for name, count in lengths.items()))


@app.command("peek")
def peek(
    queue: Queue,
    limit: Annotated[
        int, typer.Option(min=1, max=CLAIM_ITEMS_MAX, help="Show at most this many.")
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Print the next items of a queue without claiming them, with their ids."""
    _check_name(queue, QUEUES, "queue")
    items = work(lambda parts: parts.storage.queues.peek(queue, limit=limit))
    lines = [
        f"{item.id}  {readable(item.put_at)}  {item.body}  "
        f"({ngettext('claimed {count} time', 'claimed {count} times', item.taken)})"
        for item in items
    ]
    show([msgspec.structs.asdict(item) for item in items], as_json, *lines)


@app.command("put-item")
@with_parts
async def put_item(parts: Parts, queue: Queue, body: Body, as_json: AsJson = False) -> None:
    """Add an item to a queue. It is processed like any other."""
    _check_name(queue, QUEUES, "queue")
    await edit_storage.put_item(act_of(parts), queue, body)
    show({"queue": queue, "body": body}, as_json, f"The item was added to {queue}.")


@app.command("delete-item")
@with_parts
async def delete_item(parts: Parts, queue: Queue, id_: ItemId, as_json: AsJson = False) -> None:
    """Delete one of the next items. It counts as a claim of those before it."""
    _check_name(queue, QUEUES, "queue")
    gone = await edit_storage.delete_item(act_of(parts), queue, id_)
    show({"queue": queue, "id": id_, "body": gone.body}, as_json, f"{gone.body} was deleted.")


@app.command("move-item")
@with_parts
async def move_item(
    parts: Parts,
    queue: Queue,
    id_: ItemId,
    to: Annotated[str, typer.Argument(metavar="TO", help="The other queue.")],
    as_json: AsJson = False,
) -> None:
    """Move one of the next items to another queue. It counts as a claim of those before it."""
    for name in (queue, to):
        _check_name(name, QUEUES, "queue")
    moved = await edit_storage.move_item(act_of(parts), queue, id_, to)
    data = {"queue": queue, "id": id_, "to": to, "body": moved.body}
    show(data, as_json, f"{moved.body} was moved to {to}.")


@app.command("blobs")
@with_parts
async def blobs(
    parts: Parts,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Print the names of blobs."""
    names, after = await parts.storage.blobs.list(prefix)
    while after and len(names) < limit:
        page, after = await parts.storage.blobs.list(prefix, after=after)
        names += page
    show(names[:limit], as_json, *names[:limit])


@app.command("blob")
def blob(name: BlobName, as_json: AsJson = False) -> None:
    """Print a blob as it is, or with --json its name and size."""
    content = _read_blob(name)
    if as_json:
        show({"name": name, "bytes": len(content)}, as_json)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


@app.command("put-blob")
def put_blob(
    name: BlobName,
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing one.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a file as a blob."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}.") from error

    async def job(parts: Parts) -> None:
        current = await parts.storage.blobs.get(name)
        if current is not None and not replace:
            raise AlreadyThere(
                f"There is already a blob {name}. Use --replace to replace its content."
            )
        seen = "" if current is None else edit_storage.digest(current)
        await edit_storage.put_blob(act_of(parts), name, content, seen=seen)

    _query(job)
    show(
        {"name": name, "bytes": len(content)},
        as_json,
        f"{name} was stored ({len(content):,} bytes).",
    )


@app.command("delete-blob")
def delete_blob(name: BlobName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a blob. A message without its body is not sent."""
    content = _read_blob(name)
    confirm(f"Delete the blob {name} of {len(content):,} bytes?", yes)
    seen = edit_storage.digest(content)
    work(lambda parts: edit_storage.delete_blob(act_of(parts), name, seen=seen))
    show({"name": name, "deleted": True}, as_json, f"{name} was deleted.")


def _read_blob(name: str) -> bytes:
    async def job(parts: Parts) -> bytes:
        content = await parts.storage.blobs.get(name)
        if content is None:
            raise NotFound(f"There is no blob {name}. “postroom storage blobs” lists them.")
        return content

    return _query(job)


def _parse_property(text: str) -> tuple[str, Value]:
    """Read NAME=VALUE or NAME:TYPE=VALUE."""
    place, equals, value = text.partition("=")
    name, _colon, type_ = place.partition(":")
    if not equals or not name:
        raise BadInput(f"{text} is not NAME=VALUE or NAME:TYPE=VALUE.")
    if type_ and type_ not in set(ValueType):
        raise BadInput(f"{type_} is not a type. Types are {', '.join(ValueType)}.")
    return name, parse_value(ValueType(type_ or ValueType.TEXT), value)


def _query(job: Callable[[Parts], Awaitable[T]]) -> T:
    """Do the job; a key or name that storage cannot have is bad input, not a bug."""
    try:
        return work(job)
    except ValueError as error:
        raise BadInput(f"This cannot be stored: {error}.") from error


async def _rows(
    parts: Parts, table: str, keys: Keys, where: Properties, limit: int
) -> AsyncIterator[Row]:
    after: str | None = None
    while limit > 0:
        size = min(limit, SCAN_ROWS_MAX)
        page = await parts.storage.tables.scan(table, keys, where=where, limit=size, after=after)
        for found in page.rows:
            yield found
        limit -= len(page.rows)
        after = page.next
        if after is None:
            return


def _read_row(table: str, partition: str, key: str) -> Row:
    _check_name(table, TABLES, "table")

    return _query(lambda parts: _read_from(parts, table, partition, key))


async def _read_from(parts: Parts, table: str, partition: str, key: str) -> Row:
    try:
        found = await parts.storage.tables.get(table, partition, key)
    except ValueError as error:
        raise BadInput(f"This cannot be stored: {error}.") from error
    if found is None:
        raise NotFound(f"There is no row {partition} / {key} in {table}.")
    return found


def _check_name(name: str, names: tuple[str, ...], kind: str) -> None:
    if name not in names:
        raise BadInput(f"There is no {kind} {name}. There are {', '.join(names)}.")


def _line(table: str, row: Row) -> str:
    key = masked_key(table, row.partition, row.key)
    return f"{row.partition} / {key}  {to_json(masked_properties(table, row))}"
