"""`postroom serve | web | scheduler | sender | drain`: run the roles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.cli.exit_codes import INTERRUPTED, OK, fail
from postroom.cli.output import AsJson, echo_err, show
from postroom.cli.session import in_loop, load_settings, work
from postroom.domain.texts import ngettext
from postroom.flow.schedule import waits_for_scheduler
from postroom.records.names import DEAD_LETTER_QUEUE, QUEUES

if TYPE_CHECKING:
    from postroom.nursery import Nursery
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
        _warn_of_wrong_url(settings)
        if first:
            echo_err(f"Create your account at {first} (works once).")
    in_loop(run_web(settings, supervised=supervised))


def drain(as_json: AsJson = False) -> None:
    """Do everything that is due (imports, the bounce mailbox, emails), then exit."""
    from postroom.wiring import roles
    from postroom.wiring.transports import transport_of

    settings = load_settings()
    in_loop(roles.drain(settings))

    async def count_rest(parts: Parts) -> tuple[dict[str, int], bool]:
        queues = parts.storage.queues
        lengths = {name: await queues.length(name) for name in QUEUES}
        names = [name for name in QUEUES if name != DEAD_LETTER_QUEUE]
        is_due = any([await queues.peek(name, limit=1) for name in names])
        return lengths, is_due or await waits_for_scheduler(parts.storage.tables, parts.clock.now())

    lengths, is_anything_due = work(count_rest)
    if is_anything_due:
        echo_err("Interrupted. Some work is still due. Run the same command again.")
        raise typer.Exit(INTERRUPTED)
    dead_letters = lengths.pop(DEAD_LETTER_QUEUE)
    waiting = sum(lengths.values())
    later = ngettext(
        "; {count} work item is waiting to be retried",
        "; {count:,} work items are waiting to be retried",
        waiting,
    )
    is_test = not transport_of(settings).leaves_the_machine
    data = {"waiting": waiting, "dead_letters": dead_letters, "test_mode": is_test}
    text = f"Nothing else is due now{later if waiting else ''}."
    show(data, as_json, text, *([TEST_MODE] if is_test else []))


def serve() -> None:
    """Run all roles on this machine until SIGTERM or Ctrl-C."""
    from postroom.supervisor import Supervisor
    from postroom.wiring.dkim import dkim_keys_of
    from postroom.wiring.engines import engine_of
    from postroom.wiring.roles import listening
    from postroom.wiring.transports import transport_of

    settings = load_settings()
    dkim_keys_of(settings)  # a sender that cannot read them would be restarted forever
    engine = engine_of(settings)
    nursery = _fork_nursery()  # before anything is opened
    if hint := engine.start_hint():
        echo_err(hint)
    first, now = work(_read_at_start, create=True)  # fails before anything is printed
    with listening(settings):
        pass
    _warn_of_wrong_url(settings)
    transport = transport_of(settings)
    to = "" if transport.leaves_the_machine else "to "
    start = f"create your account at {first}" if first else f"open {settings.url}/admin"
    lines = [
        f"Postroom runs on {settings.bind}; {start}",
        f"  storage    {engine.description}",
        f"  emails go  {to}{transport.description}",
        f"  senders    {now.senders_min} to {now.senders_max}, as the queues grow",
        "  stop       Ctrl-C, or SIGTERM: work in progress is finished",
    ]

    async def run() -> None:
        running = asyncio.create_task(Supervisor(settings, nursery).run())
        await asyncio.sleep(0)  # it handles signals from its first step on
        typer.echo("\n".join(lines))
        await running

    in_loop(run())


def _fork_nursery() -> Nursery | None:
    """Import what the roles need, and fork the process from which they are forked."""
    import uvloop  # noqa: F401

    import postroom.web.measured
    import postroom.web.server
    import postroom.wiring.roles  # noqa: F401
    from postroom.nursery import fork_nursery
    from postroom.web.app import analysed_routes

    analysed_routes()
    return fork_nursery(_run_forked)


def _run_forked(role: str) -> int:
    """Run a role without parsing a command line, which would write to 4 MB of shared pages."""
    try:
        {"web": web, "scheduler": scheduler, "sender": sender}[role](supervised=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - as `run` does for a command
        return fail(error)
    return OK


def _warn_of_wrong_url(settings: Settings) -> None:
    from postroom.domain.web_address import mismatch

    if why := mismatch(settings.url, settings.bind, is_given=settings.is_url_given):
        echo_err(why)


async def _read_at_start(parts: Parts) -> tuple[str | None, Settings]:
    """Return the link to create the first account, and the settings as people changed them."""
    from postroom.actions.change_settings import merged
    from postroom.records import setting_changes

    changes, _etag = await setting_changes.read(parts.storage.tables)
    return await _first_link(parts), merged(parts.settings, changes)


async def _first_link(parts: Parts) -> str | None:
    """Return the link to create the first account; None once there is one."""
    from postroom.actions import sign_in

    token = await sign_in.first_link(parts.storage.tables, parts.clock.now())
    return f"{parts.settings.url}/admin/welcome/{token}" if token else None
