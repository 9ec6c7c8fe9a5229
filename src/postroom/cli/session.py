"""Runs a command: reads the settings, sets up logs, opens the storage and closes it again.

Slow imports are done here, when a command really runs, because `--help` must be quick.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import getpass
import inspect
import os
import platform
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar, cast

import typer

from postroom.act import Act
from postroom.domain.address import Address, parse_address
from postroom.domain.audit import ActorKind, AuditActor
from postroom.domain.consent import COMMAND_LINE, Trace
from postroom.domain.mailing_list import check_list_name

if TYPE_CHECKING:
    from postroom.settings import Settings
    from postroom.wiring import Parts

P = ParamSpec("P")
T = TypeVar("T")
# Checked by callbacks, before anything is opened. From a parser, BadInput would be wrong usage.
ListName = Annotated[str, typer.Argument(metavar="LIST", callback=check_list_name)]
ParsedAddress = Annotated[
    Address, typer.Argument(metavar="ADDRESS", parser=str, callback=parse_address)
]


def load_settings() -> Settings:
    """Read the settings and set up logs accordingly."""
    from postroom import logs, settings
    from postroom.wiring import check

    loaded = settings.load()
    if mistakes := check(loaded):
        raise settings.BadSettings(mistakes)
    logs.configure(loaded.log_level, loaded.trace_level)
    return loaded


def work(job: Callable[[Parts], Awaitable[T]], *, create: bool = False) -> T:
    """Do the job with the storage open and return its result; creates nothing unless asked."""
    from postroom.wiring import open_parts

    settings = load_settings()

    async def run() -> T:
        async with open_parts(settings, create_storage=create, create_folder=create) as parts:
            return await job(parts)

    return in_loop(run())


def with_parts(
    command: Callable[Concatenate[Parts, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Make a command from a coroutine; it gets the open storage, and Typer fills in the rest."""

    @functools.wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        work(lambda parts: command(parts, *args, **options))

    # Parts is imported only for type checks, so its name means nothing at run time.
    signature = inspect.signature(command, eval_str=True, locals={"Parts": object})
    _parts, *parameters = signature.parameters.values()
    cast(Any, run).__signature__ = signature.replace(parameters=parameters)
    run.__annotations__ = {}
    return run


def in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run in a new event loop: uvloop, which is faster, where it exists."""
    if sys.platform == "win32":
        return asyncio.run(coroutine)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


def act_of(parts: Parts, trace: Trace = COMMAND_LINE) -> Act:
    now = parts.clock.now()
    return Act(parts.storage, parts.clock, now, trace, parts.wakeups.ring, operator())


def operator() -> AuditActor:
    """Who runs the command, as far as the system knows; for the audit log."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        name = f"uid {os.getuid()}"
    return AuditActor(ActorKind.COMMAND_LINE, f"{name}@{platform.node()}")


@contextlib.contextmanager
def interruptible() -> Iterator[asyncio.Event]:
    """Within the block, Ctrl-C and SIGTERM set the event; long commands check it, and stop."""
    interrupt = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt.set)
    try:
        yield interrupt
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
