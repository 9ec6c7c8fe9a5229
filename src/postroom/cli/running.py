"""`postroom serve | web | scheduler | sender | drain`: the roles at work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from postroom.cli.due import waits_for_scheduler
from postroom.cli.exit_codes import INTERRUPTED
from postroom.cli.output import AsJson, show, tell
from postroom.cli.session import in_loop, load_settings, work
from postroom.domain.texts import ngettext
from postroom.records.names import DEAD_LETTER_QUEUE, QUEUES

if TYPE_CHECKING:
    from postroom.settings import Settings
    from postroom.wiring import Parts


TEST_MODE = "Test mode: no mail server is set up, so emails are kept in the test mailbox, not sent."
Supervised = Annotated[bool, typer.Option("--supervised", hidden=True)]


def scheduler(supervised: Supervised = False) -> None:
    """Run a scheduler until SIGTERM. Any number may run; one is active."""
    from postroom.wiring.roles import run_scheduler

    in_loop(run_scheduler(load_settings(), supervised=supervised))


def sender(supervised: Supervised = False) -> None:
    """Run a sender until SIGTERM. Any number may run, on any number of machines."""
    from postroom.wiring.roles import run_sender

    in_loop(run_sender(load_settings(), supervised=supervised))


def web(supervised: Supervised = False) -> None:
    """Run the web role until SIGTERM: the pages and the web service."""
    from postroom.wiring.roles import run_web

    settings = load_settings()
    if not supervised:
        first = work(_first_link, create=True)
        if why := _mismatch(settings):
            tell(why)
        if first:
            tell(f"Make your account at {first} (works once).")
    in_loop(run_web(settings, supervised=supervised))


def drain(as_json: AsJson = False) -> None:
    """Send everything that is due, then exit."""
    from postroom.wiring import roles
    from postroom.wiring.transports import transport_of

    settings = load_settings()
    in_loop(roles.drain(settings))
    rest = work(_look_around)
    if rest.is_anything_due:
        tell("Interrupted. Something is still due: run it again.")
        raise typer.Exit(INTERRUPTED)
    waiting = ngettext(
        "; {count} work item waits for a later try",
        "; {count:,} work items wait for a later try",
        rest.waiting,
    )
    later = waiting if rest.waiting else ""
    is_test = not transport_of(settings).leaves_the_machine
    data = {"waiting": rest.waiting, "dead_letters": rest.dead_letters, "test_mode": is_test}
    lines = [f"Nothing else is due now{later}.", *([TEST_MODE] if is_test else [])]
    show(data, as_json, *lines)


def serve() -> None:
    """Run all roles on this machine until SIGTERM or Ctrl-C."""
    from postroom.supervisor import Supervisor
    from postroom.wiring.engines import engine_of
    from postroom.wiring.roles import listening

    settings = load_settings()
    if hint := engine_of(settings).start_hint():
        tell(hint)
    first = work(_first_link, create=True)  # fails before anything is printed
    with listening(settings):
        pass
    if why := _mismatch(settings):
        tell(why)

    async def run() -> None:
        running = asyncio.create_task(Supervisor(settings).run())
        await asyncio.sleep(0)  # it listens to signals from its first step on
        for line in _welcome(settings, first):
            typer.echo(line)
        await running

    in_loop(run())


def _mismatch(settings: Settings) -> str:
    """A warning, if links may lead nowhere."""
    from postroom.domain.web_address import mismatch

    return str(mismatch(settings.url, settings.bind, is_given=settings.is_url_given) or "")


async def _first_link(parts: Parts) -> str | None:
    """Where the first administrator makes their account; None once somebody has."""
    from postroom.actions import sign_in

    token = await sign_in.first_link(parts.storage.tables, parts.clock.now())
    return f"{parts.settings.url}/admin/welcome/{token}" if token else None


class _Rest(NamedTuple):
    """What is left after a drain."""

    waiting: int  # work items, for a later try
    dead_letters: int
    is_anything_due: bool


async def _look_around(parts: Parts) -> _Rest:
    queues = parts.storage.queues
    lengths = {name: await queues.length(name) for name in QUEUES}
    dead_letters = lengths.pop(DEAD_LETTER_QUEUE)
    is_due = any([await queues.peek(name, limit=1) for name in lengths])
    is_due |= await waits_for_scheduler(parts.storage.tables, parts.clock.now())
    return _Rest(sum(lengths.values()), dead_letters, is_due)


def _welcome(settings: Settings, first: str | None) -> list[str]:
    from postroom.wiring.engines import engine_of
    from postroom.wiring.transports import transport_of

    transport = transport_of(settings)
    to = "" if transport.leaves_the_machine else "to "
    start = f"make your account at {first}" if first else f"open {settings.url}/admin"
    return [
        f"Postroom runs on {settings.bind}; {start}",
        f"  storage    {engine_of(settings).description}",
        f"  mails go   {to}{transport.description}",
        f"  senders    {settings.senders_min} to {settings.senders_max}, as the queue grows",
        "  stop       Ctrl-C, or SIGTERM: work in hand is finished",
    ]
