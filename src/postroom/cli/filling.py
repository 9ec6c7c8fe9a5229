"""What `restore` and `migrate` say when they stop half-way: how to continue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import typer

from postroom.cli.exit_codes import INTERRUPTED
from postroom.cli.output import echo_err
from postroom.domain.errors import WrongState
from postroom.migration.filling import Stopped
from postroom.migration.state import TakenOver
from postroom.storage.port import StorageError

_CONTINUE = "Run the same command again to continue."


@contextlib.contextmanager
def explain_stop(stopped: str, taken_over: str) -> Iterator[None]:
    """Within the block, a storage is filled; the two sentences say what may go wrong with it."""
    try:
        yield
    except TakenOver:
        raise WrongState(taken_over) from None
    except Stopped:
        echo_err(f"Interrupted. {_CONTINUE}")
        raise typer.Exit(INTERRUPTED) from None
    except StorageError:
        echo_err(f"{stopped} {_CONTINUE}")
        raise
