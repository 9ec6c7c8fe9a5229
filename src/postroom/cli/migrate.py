"""`postroom migrate`: copy everything into another storage, and prove that it is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.cli.exit_codes import INTERRUPTED, REFUSED
from postroom.cli.output import AsJson, show, tell
from postroom.cli.progress import Show, progress
from postroom.cli.session import Interrupt, in_loop, interruptible, load_settings
from postroom.domain.errors import BadInput, WrongState
from postroom.migration import migrate as flow
from postroom.migration.comparison import Compared
from postroom.migration.migrate import Journey, Stopped
from postroom.migration.state import TakenOver
from postroom.storage.port import StorageError

if TYPE_CHECKING:
    from postroom.clock import Clock
    from postroom.settings import Settings
    from postroom.storage.port import Storage

SUM_CHARS_SHOWN = 12
_ADDRESS = "ADDRESS"


def migrate(
    source: Annotated[
        str | None,
        typer.Option("--from", metavar=_ADDRESS, help="What to copy. Default: POSTROOM_STORAGE."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--to", metavar=_ADDRESS, help="The storage to copy to. It must be empty."),
    ] = None,
    source_prefix: Annotated[
        str | None, typer.Option("--from-prefix", help="Instead of POSTROOM_AZURE_PREFIX.")
    ] = None,
    target_prefix: Annotated[
        str | None, typer.Option("--to-prefix", help="Instead of POSTROOM_AZURE_PREFIX.")
    ] = None,
    verify_only: Annotated[
        bool, typer.Option("--verify-only", help="Only compare the two.")
    ] = False,
    reopen: Annotated[
        bool, typer.Option("--reopen", help="Open the old storage again; copy nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy everything into another storage, compare, and close the old one.

    Stop all roles first. Interrupted or killed, the same command goes on. An ADDRESS is written as
    in POSTROOM_STORAGE, or env:NAME or file:PATH say where it stands, so that no key is typed.
    """
    settings = load_settings()
    here = _settings_of(settings, "--from", source, source_prefix, must_be_there=True)
    if reopen:
        in_loop(_reopen(here))
        show({"reopened": True}, as_json, f"{_name(here)} is open. Roles can start there.")
        return
    if target is None:
        raise BadInput("Name the storage to copy to with --to.")
    there = _settings_of(settings, "--to", target, target_prefix, must_be_there=verify_only)
    if _name(here) == _name(there):
        raise BadInput("--from and --to are the same storage.")
    found = in_loop(_run(here, there, verify_only=verify_only, as_json=as_json))
    _report(here, there, found, verify_only=verify_only, as_json=as_json)


def _settings_of(
    settings: Settings,
    option: str,
    address: str | None,
    prefix: str | None,
    *,
    must_be_there: bool,
) -> Settings:
    """The settings with the storage that the option names; opening would make one that is not."""
    from postroom.settings import BadSettings
    from postroom.wiring.engines import engine_of, with_storage

    typed = settings.storage.get_secret_value() if address is None else _read(option, address)
    try:
        other = with_storage(settings, typed, prefix)
    except ValueError as error:
        raise BadSettings([f"{option}: {error}"]) from None
    if must_be_there and not engine_of(other).may_exist():
        raise BadInput(f"There is no storage at {_name(other)}.")
    return other


def _read(option: str, address: str) -> str:
    """What stands in a variable or a file; arguments are seen by everybody on the machine."""
    kind, _, where = address.partition(":")
    if kind == "env":
        if where not in os.environ:
            raise BadInput(f"{option}: the environment has no {where}.")
        return os.environ[where].strip()
    if kind == "file":
        try:
            return Path(where).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{option}: {where} cannot be read ({_reason(error)}).") from None
    return address


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or "") if isinstance(error, OSError) else "it is not text"


def _name(settings: Settings) -> str:
    from postroom.wiring.engines import engine_of

    return engine_of(settings).name


async def _reopen(settings: Settings) -> None:
    async with _opened(settings) as (storage, _):
        await flow.reopen(storage.tables)


@contextlib.asynccontextmanager
async def _opened(
    settings: Settings, *, create: bool = False
) -> AsyncIterator[tuple[Storage, Clock]]:
    from postroom.clock import WallClock
    from postroom.wiring.engines import opened_storage

    clock = WallClock()
    async with opened_storage(settings, clock, create=create) as storage:
        yield storage, clock


async def _run(
    here: Settings, there: Settings, *, verify_only: bool, as_json: bool
) -> list[Compared]:
    async with (
        _opened(here) as (source, clock),
        _opened(there, create=not verify_only) as (target, _),
    ):
        with interruptible() as interrupt, progress("Migrating", quiet=as_json) as tick:
            watch = _Watch(interrupt, tick)
            journey = Journey(source, target, _name(here), _name(there), clock, watch)
            return await _travel(journey, verify_only=verify_only)


async def _travel(journey: Journey, *, verify_only: bool) -> list[Compared]:
    try:
        return await (flow.compare(journey) if verify_only else flow.migrate(journey))
    except TakenOver:
        raise WrongState("Another “postroom migrate” is filling the target.") from None
    except Stopped:
        tell("Interrupted. Run the same command again to continue.")
        raise typer.Exit(INTERRUPTED) from None
    except StorageError:
        tell("The migration stopped. Run the same command again to continue.")
        raise


class _Watch:
    """Watches progress and Ctrl-C."""

    def __init__(self, interrupt: Interrupt, tick: Show) -> None:
        self._interrupt = interrupt
        self._tick = tick

    def may_go_on(self) -> bool:
        return not self._interrupt.is_asked

    def reached(self, stage: str, done: int) -> None:
        self._tick(done, None, f"{stage}, {done:,}")


def _report(
    here: Settings, there: Settings, found: list[Compared], *, verify_only: bool, as_json: bool
) -> None:
    differences = sum(part.differences for part in found)
    has_moved = not differences and not verify_only
    data = {
        "from": _name(here),
        "to": _name(there),
        "equal": not differences,
        "moved": has_moved,
        "parts": found,
    }
    show(data, as_json, *map(_line, found))
    if differences:
        tell(_what_to_do(differences, verify_only=verify_only))
        raise typer.Exit(REFUSED)
    if not as_json:
        typer.echo("Both are equal." if verify_only else _farewell(here, there))


def _line(part: Compared) -> str:
    counts = f"{part.name:24} {part.source:>10,} → {part.target:>10,}"
    checksum = f"  {part.target_sum[:SUM_CHARS_SHOWN]}" if part.target_sum else ""
    if part.differences:
        return f"{counts}  {part.differences:,} differ, the first: {part.first}"
    return counts + checksum


def _farewell(here: Settings, there: Settings) -> str:
    return (
        f"Everything is in {_name(there)}. Set POSTROOM_STORAGE to it and start the roles. "
        f"{_name(here)} is kept, but closed."
    )


def _what_to_do(differences: int, *, verify_only: bool) -> str:
    if verify_only:
        return f"They are not equal: {differences:,} differences."
    return (
        f"Not moved: there are {differences:,} differences, because something still works on one "
        "of the two. Stop it, web role included, and run the same command again: it mends them."
    )
