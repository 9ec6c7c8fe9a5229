"""`postroom migrate`: copy everything into another storage, and verify the copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.cli.exit_codes import REFUSED
from postroom.cli.filling import explain_stop
from postroom.cli.output import AsJson, echo_err, show
from postroom.cli.progress import progress
from postroom.cli.session import in_loop, interruptible, load_settings
from postroom.domain.errors import BadInput
from postroom.domain.texts import ngettext
from postroom.migration import migrate as migration
from postroom.migration.comparison import Comparison
from postroom.migration.migrate import MigrationContext

if TYPE_CHECKING:
    from postroom.settings import Settings

CHECKSUM_CHARS_SHOWN = 12
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

    Stop all roles first. If it is interrupted or killed, run the same command again. An ADDRESS is
    written as in POSTROOM_STORAGE. With env:NAME or file:PATH it is read from a variable or a file,
    so that no key is typed.
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
    settings: Settings, option: str, address: str | None, prefix: str | None, *, must_be_there: bool
) -> Settings:
    """Return the settings with the storage of the option; opening a missing one would create it."""
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
    """Read env:NAME or file:PATH, because everybody on the machine can see arguments."""
    kind, _, where = address.partition(":")
    if kind == "env":
        if where not in os.environ:
            raise BadInput(f"{option}: the environment has no {where}.")
        return os.environ[where].strip()
    if kind == "file":
        try:
            return Path(where).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise BadInput(f"{option}: {where} cannot be read ({why}).") from None
    return address


def _name(settings: Settings) -> str:
    from postroom.wiring.engines import engine_of

    return engine_of(settings).name


async def _reopen(settings: Settings) -> None:
    from postroom.clock import WallClock
    from postroom.wiring.engines import opened_storage

    async with opened_storage(settings, WallClock(), create=False) as storage:
        await migration.reopen(storage.tables)


async def _run(
    here: Settings, there: Settings, *, verify_only: bool, as_json: bool
) -> list[Comparison]:
    from postroom.clock import WallClock
    from postroom.wiring.engines import opened_storage

    clock = WallClock()
    async with (
        opened_storage(here, clock, create=False) as source,
        opened_storage(there, clock, create=not verify_only) as target,
    ):
        with interruptible() as interrupt, progress("Migrating", quiet=as_json) as tick:
            context = MigrationContext(
                source,
                target,
                _name(here),
                _name(there),
                clock,
                may_go_on=lambda: not interrupt.is_set(),
                on_progress=lambda stage, done: tick(done, None, f"{stage}, {done:,}"),
            )
            with explain_stop(
                "The migration stopped.", "Another “postroom migrate” is filling the target."
            ):
                return await (migration.compare if verify_only else migration.migrate)(context)


def _report(
    here: Settings, there: Settings, found: list[Comparison], *, verify_only: bool, as_json: bool
) -> None:
    differences = sum(part.differences for part in found)
    data = {
        "from": _name(here),
        "to": _name(there),
        "equal": not differences,
        "moved": not differences and not verify_only,
        "parts": found,
    }
    show(data, as_json, *map(_line, found))
    if differences:
        count = ngettext("{count} difference", "{count:,} differences", differences)
        echo_err(
            f"The two storages are not equal: {count}."
            if verify_only
            else f"Not moved: {count} found, because one of the two storages is still in use. "
            "Stop every role there, the web role too, and run the same command again."
        )
        raise typer.Exit(REFUSED)
    if not as_json:
        typer.echo(
            "Both storages are equal."
            if verify_only
            else f"Everything is in {_name(there)}. Set POSTROOM_STORAGE to it and start the "
            f"roles. {_name(here)} is kept, but closed."
        )


def _line(part: Comparison) -> str:
    counts = f"{part.name:24} {part.source:>10,} → {part.target:>10,}"
    if part.differences:
        return f"{counts}  {part.differences:,} differ, the first: {part.first}"
    return f"{counts}  {part.target_sum[:CHECKSUM_CHARS_SHOWN]}".rstrip()
