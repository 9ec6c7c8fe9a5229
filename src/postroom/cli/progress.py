"""Progress of a long command: a bar on a terminal, elsewhere one plain line per second."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import typer

Show = Callable[[int, int | None, str], None]
"""Called with how much is done, the total (None if unknown), and a text."""

LINE_EVERY_S = 1.0


@contextlib.contextmanager
def progress(label: str, *, quiet: bool) -> Iterator[Show]:
    if quiet:
        yield lambda _done, _total, _text: None
    elif sys.stderr.isatty():
        with _bar(label) as show:
            yield show
    else:
        yield _Lines(label)


@contextlib.contextmanager
def _bar(label: str) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, text="")
        yield lambda done, total, text: bar.update(task, completed=done, total=total, text=text)


class _Lines:
    """Prints the first line after a second, because quicker commands need none."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._next_at = time.monotonic() + LINE_EVERY_S

    def __call__(self, done: int, total: int | None, text: str) -> None:
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + LINE_EVERY_S
        share = f" {done * 100 // total} %," if total else ""
        typer.echo(f"{self._label}:{share} {text}", err=True)
