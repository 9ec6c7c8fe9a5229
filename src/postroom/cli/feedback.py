"""`postroom feedback`: explain what incoming mails report. Needs neither storage nor settings."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated

import typer

from postroom.cli.output import AsJson, fields, print_json_array, show
from postroom.domain.errors import BadInput
from postroom.feedback.mail_parts import MAIL_BYTES_MAX
from postroom.feedback.report import Report, read_report

app = typer.Typer(help="Bounces, delays and complaints.", no_args_is_help=True)
Place = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|FOLDER", help="An email, or a folder of emails such as a Maildir."
    ),
]


@app.callback()
def group() -> None:
    """Bounces, delays and complaints."""


@app.command()
def explain(place: Place, as_json: AsJson = False) -> None:
    """Show what mails report: whose problem it is, why, and about which recipient."""
    if place.is_dir():
        _explain_folder(place, as_json)
        return
    data = _data(place.name, _read(place))
    show(data, as_json, *fields(data))


def _explain_folder(folder: Path, as_json: bool) -> None:
    if as_json:
        asyncio.run(print_json_array(_all_data(folder)))
        return
    classes: Counter[str] = Counter()
    for name, report in _reports(folder):
        found = report.classification
        classes[found.bounce_class] += 1
        recipient = report.recipient or "-"
        typer.echo(
            f"{found.bounce_class:10} {found.reason:17} {found.status:8} {recipient}  {name}"
        )
        typer.echo(f"           {found.words}")
    total = ", ".join(f"{count:,} {name}" for name, count in classes.most_common())
    typer.echo(total or "There are no emails in this folder.")


async def _all_data(folder: Path) -> AsyncIterator[dict[str, str]]:
    for name, report in _reports(folder):
        yield _data(name, report)


def _reports(folder: Path) -> Iterator[tuple[str, Report]]:
    """Read one mail after the other, in the order of their names; only one is in memory."""
    for path in _files(folder):
        yield path.relative_to(folder).as_posix(), _read(path)


def _files(folder: Path) -> Iterator[Path]:
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif path.is_file() and not name.startswith("."):
            yield path


def _read(path: Path) -> Report:
    try:
        with path.open("rb") as file:
            return read_report(file.read(MAIL_BYTES_MAX))
    except FileNotFoundError as error:
        raise BadInput(f"There is no file or folder {path}.") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from error


def _data(name: str, report: Report) -> dict[str, str]:
    found = report.classification
    return {
        "file": name,
        "kind": report.kind or "none",
        "class": found.bounce_class,
        "reason": found.reason,
        "status": found.status,
        "recipient": report.recipient,
        "delivery": report.delivery,
        "words": found.words,
    }
