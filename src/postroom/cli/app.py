"""All commands in one place, and what happens when one of them fails."""

from __future__ import annotations

import typer

from postroom import roles, settings
from postroom.supervisor import Supervisor

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def scheduler() -> None:
    """Run a scheduler until SIGTERM. Any number may run; one acts."""
    roles.run(roles.run_scheduler(settings.load()))


@app.command()
def sender() -> None:
    """Run a sender until SIGTERM. Any number may run, on any number of machines."""
    roles.run(roles.run_sender(settings.load()))


@app.command()
def drain() -> None:
    """Do everything that is due, then exit."""
    roles.run(roles.drain(settings.load()))


@app.command()
def serve() -> None:
    """Run all roles on this machine."""

    async def run() -> None:
        await Supervisor(settings.load()).run()

    roles.run(run())


def main() -> None:
    app()
