"""All commands in one place, and what happens when one of them fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Annotated

import typer

from postroom.cli import (
    doctor,
    exit_codes,
    init,
    keys,
    limits,
    lists,
    messages,
    migrate,
    running,
    storage,
    subscribers,
    users,
)
from postroom.domain.errors import BadInput

app = typer.Typer(
    name="postroom",
    help="Send emails to mailing lists. Nothing is lost, and every recipient is accounted for.",
    epilog=exit_codes.MEANINGS,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, in half the time
)


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"postroom {version('postroom')}")
        raise typer.Exit


@app.callback()
def options(
    _version_option: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """The options of the program itself."""


app.command()(running.serve)
app.command()(running.web)
app.command()(running.scheduler)
app.command()(running.sender)
app.command()(running.drain)
app.command()(init.init)
if find_spec("postroom_bench"):  # a tool of the checkout: neither wheel nor image contains it
    from postroom_bench.command import bench

    app.command()(bench)
app.add_typer(lists.app, name="list")
app.add_typer(subscribers.app, name="subscriber")
app.add_typer(messages.app, name="message")
app.add_typer(keys.app, name="key")
app.add_typer(limits.app, name="limit")
app.add_typer(users.app, name="user")
app.add_typer(storage.app, name="storage")
app.command()(migrate.migrate)
app.command()(doctor.doctor)


def main() -> None:
    """The program `postroom`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """One command, whatever becomes of it; the exit code."""
    try:
        code = app(list(arguments), prog_name="postroom", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # typer exits so when it meets a closed pipe first
        _give_up_output()
        return exit_codes.PIPE_CLOSED
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except typer.Abort:  # Ctrl-C or the end of input at a question
        return exit_codes.fail(BadInput("Nothing was done."))
    except Exception as error:  # noqa: BLE001 - every failure ends as a sentence and a code
        return exit_codes.fail(error)
    return code if isinstance(code, int) else exit_codes.OK


def _give_up_output() -> None:
    """Nobody reads any more: let Python's own flush at the end find a place to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
