"""Registers all commands, and turns failures into a sentence and an exit code."""

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
    audit,
    backup,
    dkim,
    doctor,
    exit_codes,
    feedback,
    instances,
    keys,
    limits,
    lists,
    media,
    messages,
    migrate,
    running,
    settings,
    storage,
    subscribers,
    suppressions,
    templates,
    trace,
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


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"postroom {version('postroom')}")
        raise typer.Exit


@app.callback()
def options(
    _version_option: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """The options of the program itself."""


app.command()(running.serve)
app.command()(running.web)
app.command()(running.scheduler)
app.command()(running.sender)
app.command()(running.drain)
app.command()(storage.init)
if find_spec("postroom_bench"):  # only in a checkout, not in the wheel or the image
    from postroom_bench.command import bench

    app.command()(bench)
app.add_typer(lists.app, name="list")
app.add_typer(subscribers.app, name="subscriber")
app.add_typer(suppressions.app, name="suppression")
app.add_typer(messages.app, name="message")
app.add_typer(media.app, name="media")
app.add_typer(templates.app, name="template")
app.add_typer(keys.app, name="key")
app.add_typer(limits.app, name="limit")
app.add_typer(users.app, name="user")
app.add_typer(settings.app, name="settings")
app.command()(instances.instances)
app.add_typer(feedback.app, name="feedback")
app.add_typer(storage.app, name="storage")
app.add_typer(dkim.app, name="dkim")
app.command()(audit.audit)
app.command()(migrate.migrate)
app.command()(trace.trace)
app.add_typer(backup.app, name="backup")
app.command()(backup.restore)
app.command()(doctor.doctor)


def main() -> None:
    """Run the program `postroom`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code, even when it fails."""
    try:
        code = app(list(arguments), prog_name="postroom", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # typer exits if it finds the pipe closed first
        # Nobody reads the output, so let Python's own flush at exit write to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.PIPE_CLOSED
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except typer.Abort:  # Ctrl-C or end of input at a prompt
        return exit_codes.fail(BadInput("Nothing was done."))
    except Exception as error:  # noqa: BLE001 - every failure ends as a sentence and a code
        return exit_codes.fail(error)
    return code if isinstance(code, int) else exit_codes.OK
