"""What a command's exit code means, and the sentence that goes with a failure."""

from __future__ import annotations

import os
import sys
import traceback

import typer

from postroom.domain.errors import PostroomError
from postroom.storage.port import Conflict, StorageError

OK = 0
REFUSED = 1  # it cannot be done: no such list, a bad address, or the doctor found a problem
USAGE = 2  # the command or the settings are not right
STORAGE = 3  # storage is missing, unreachable, locked or full
BUG = 70  # EX_SOFTWARE
INTERRUPTED = 130  # as a shell reports SIGINT
PIPE_CLOSED = 141  # as a shell reports SIGPIPE: the reader, such as head, closed our output

MEANINGS = (
    "Exit codes: 0 done, 1 refused, 2 wrong usage or settings, "
    "3 storage unavailable or full, 70 a bug, 130 interrupted, 141 output closed."
)


def fail(error: BaseException) -> int:
    """Explain the error on standard error; return the exit code."""
    from postroom.cli.hints import hint  # slow to import, and seldom needed

    code, sentence = explain(error)
    typer.echo(f"{sentence} {hint(error)}".rstrip(), err=True)
    if code == BUG and os.environ.get("POSTROOM_LOG_LEVEL") == "debug":
        traceback.print_exception(error, file=sys.stderr)
    return code


def explain(error: BaseException) -> tuple[int, str]:
    from postroom.settings import BadSettings  # slow to import, and seldom needed

    match error:
        case BadSettings():
            return USAGE, str(error)
        case PostroomError():
            return REFUSED, str(error)
        case Conflict():
            return REFUSED, "Somebody else changed it at the same moment. Try again."
        case StorageError():
            return STORAGE, str(error)
        case typer.TyperException():
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "postroom"
            return USAGE, f"{error.format_message().rstrip('.')}. See “{command} --help”."
    name = f"{type(error).__name__}: {error}".rstrip(": ")
    how = "Run it with POSTROOM_LOG_LEVEL=debug to see where, and report it."
    return BUG, f"A bug in Postroom stopped this ({name}). {how}"
