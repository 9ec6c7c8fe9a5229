"""What commands print: text for people, or with --json one value and nothing else."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TextIO

import msgspec
import typer

from postroom.domain.csv_rows import REPORT_COLUMNS, csv_text
from postroom.domain.errors import BadInput
from postroom.domain.texts import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
KEPT_NOT_SENT = (
    "Test mode: no mail server was set up, so its emails were kept in the test mailbox, not sent."
)
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def show(
    data: Mapping[str, object] | Sequence[object],
    as_json: bool,
    *lines: str | Text,
    if_empty: str = "",
) -> None:
    """Print the data for a script, or the lines for a person, with a hint if there is nothing."""
    if as_json:
        typer.echo(to_json(data))
        return
    for line in lines:
        typer.echo(line)
    if if_empty and not data:
        echo_err(if_empty)


def to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def echo_err(text: str | Text) -> None:
    """Print on standard error, so that it does not mix with the result."""
    typer.echo(text, err=True)


def fields(data: Mapping[str, object]) -> list[str]:
    """Return one aligned line per field; empty ones are left out."""
    width = max(map(len, data), default=0)
    return [
        f"{name.replace('_', ' '):{width}}  {readable(value)}"
        for name, value in data.items()
        if value not in (None, "", {})
    ]


def readable(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S UTC")
        case dict():
            return ", ".join(f"{name}={each}" for name, each in value.items())
    return str(value)


async def print_json_array(values: AsyncIterator[object]) -> int:
    """Print one array, one element per line, as they arrive; return how many."""
    count = 0
    async for value in values:
        sys.stdout.write(("[" if count == 0 else ",\n") + to_json(value))
        count += 1
    sys.stdout.write("]\n" if count else "[]\n")
    return count


async def write_csv(file: TextIO, header: Sequence[str], rows: AsyncIterator[Sequence[Any]]) -> int:
    """Write rows as they arrive, safe to open in a spreadsheet; return how many."""
    count = 0
    file.write(csv_text([header]))
    async for row in rows:
        file.write(csv_text([row]))
        count += 1
    return count


@contextlib.contextmanager
def csv_file(path: Path | None) -> Iterator[TextIO]:
    """Open a file that appears only once it is complete; without a path, standard output."""
    if path is None or str(path) == "-":
        yield sys.stdout
        return
    try:
        with _opened(path) as file:
            yield file
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.") from error


@contextlib.contextmanager
def bad_row_report(path: Path | None) -> Iterator[TextIO | None]:
    """Open the report about the bad rows of an import, if one is wanted."""
    if path is None:
        yield None
        return
    with csv_file(path) as file:
        file.write(csv_text([REPORT_COLUMNS]))
        yield file


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(name, path)  # readable only by its owner, because it contains addresses
    except BaseException:
        os.unlink(name)
        raise


def confirm(question: str, yes: bool) -> None:
    """Continue only with a yes, typed on a terminal or given with --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(f"{question} There is no terminal to ask on: use --yes.")
    if not typer.confirm(question, err=True):
        raise BadInput("Nothing was done.")
