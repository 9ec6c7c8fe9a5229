"""`postroom list …`: create, show, edit and delete mailing lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from postroom.actions import manage_lists
from postroom.actions.manage_lists import ListChanges
from postroom.cli.exit_codes import INTERRUPTED
from postroom.cli.output import AsJson, Yes, confirm, echo_err, fields, show
from postroom.cli.progress import progress
from postroom.cli.session import act_of, interruptible, load_settings, with_parts, work
from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import check_list_name, list_data
from postroom.domain.texts import ngettext
from postroom.flow import sweep
from postroom.records import lists, subscribers
from postroom.storage.port import Conflict, Tables

if TYPE_CHECKING:
    from postroom.wiring import Parts

DELETE_BATCHES = 20  # between two updates of the progress
COUNT_PROGRESS_EVERY = 5000

app = typer.Typer(no_args_is_help=True, help="Mailing lists.")
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Letters, digits and underscores.", callback=check_list_name
    ),
]
SENDER = typer.Option("--from", metavar="MAILBOX", help="From address of its emails.")
DESCRIPTION = typer.Option(help="Shown in its emails.")
POSTAL_ADDRESS = typer.Option(help="Shown at the end of its emails.")
PUBLIC_FORM = typer.Option(help="Whether it has a public sign-up page.")


@app.command("create")
def create(
    name: Name,
    sender: Annotated[str, SENDER],
    description: Annotated[str, DESCRIPTION] = "",
    postal_address: Annotated[str, POSTAL_ADDRESS] = "",
    public_form: Annotated[bool, PUBLIC_FORM] = False,
    as_json: AsJson = False,
) -> None:
    """Create a list, and storage if there is none yet."""
    from postroom.wiring.engines import engine_of

    checked = manage_lists.checked(name, sender, description, postal_address, public_form)
    engine = engine_of(load_settings())
    is_new = not engine.may_exist()
    created = work(lambda parts: manage_lists.create(act_of(parts), checked), create=True)
    lines = [f"Created a new storage at {engine.description}."] if is_new else []
    lines.append(f"List {name} was created. Its emails are sent from {created.sender}.")
    show(list_data(created), as_json, *lines)


@app.command("edit")
@with_parts
async def edit(
    parts: Parts,
    name: Name,
    sender: Annotated[str | None, SENDER] = None,
    description: Annotated[str | None, DESCRIPTION] = None,
    postal_address: Annotated[str | None, POSTAL_ADDRESS] = None,
    public_form: Annotated[bool | None, PUBLIC_FORM] = None,
    as_json: AsJson = False,
) -> None:
    """Change a list. Options you leave out stay as they are; an empty text removes one."""
    changes = ListChanges(
        sender=sender,
        description=description,
        postal_address=postal_address,
        public_form=public_form,
    )
    if changes == ListChanges():
        raise BadInput("Nothing to change. Use --from, --description, --postal-address, …")
    found = await lists.read_with_etag(parts.storage.tables, name)
    edited = await manage_lists.edit(act_of(parts), name, changes, found.etag)
    data = list_data(edited.value)
    show(data, as_json, f"List {name} was changed.", *fields(data))


@app.command("show")
@with_parts
async def show_list(parts: Parts, name: Name, as_json: AsJson = False) -> None:
    """Show a list and count its subscribers."""
    data = list_data(await lists.read(parts.storage.tables, name))
    data |= await _count_people(parts, name, quiet=as_json)
    show(data, as_json, *fields(data))


@app.command("all")
@with_parts
async def all_lists(parts: Parts, as_json: AsJson = False) -> None:
    """Show all lists by name."""
    found = [list_data(each) async for each in lists.every_list(parts.storage.tables)]
    lines = [f"{each['name']:20}  {each['from']:40}  {each['description']}" for each in found]
    hint = "There are no lists yet. Create one with “postroom list create NAME --from ADDRESS”."
    show(found, as_json, *(line.rstrip() for line in lines), if_empty=hint)


@app.command("delete")
@with_parts
async def delete(parts: Parts, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a list and all its subscribers."""
    tables = parts.storage.tables
    if not await lists.is_being_deleted(tables, name):  # otherwise continue deleting it
        await lists.read(tables, name)
        if not yes:
            people = await _count_people(parts, name, quiet=as_json)
            total = people["verified"] + people["unverified"]
            confirm(
                f"Delete {name} with {ngettext('{count} person', '{count:,} people', total)} "
                f"({people['verified']:,} verified)? "
                "Messages that are being sent to it skip everybody still queued. A later "
                "import can add people who unsubscribed. This cannot be undone.",
                yes,
            )
        await lists.start_deleting(tables, name)
    rows, is_done = await _delete_rows(tables, name, quiet=as_json)
    if not is_done:
        echo_err(f"Interrupted. {name} was deleted; the scheduler deletes the rest of its rows.")
        raise typer.Exit(INTERRUPTED)
    count = ngettext("{count} row", "{count:,} rows", rows)
    show({"name": name, "rows_deleted": rows}, as_json, f"{name} was deleted ({count}).")


async def _count_people(parts: Parts, name: str, *, quiet: bool) -> dict[str, int]:
    counts = {"verified": 0, "unverified": 0, "inactive": 0}
    with progress(f"Counting {name}", quiet=quiet) as tick:
        async for one in subscribers.everyone(parts.storage.tables, name):
            counts[
                "inactive" if one.inactive_reason else "verified" if one.verified else "unverified"
            ] += 1
            if (seen := sum(counts.values())) % COUNT_PROGRESS_EVERY == 0:
                tick(seen, None, f"{seen:,} people")
    return counts


async def _delete_rows(tables: Tables, name: str, *, quiet: bool) -> tuple[int, bool]:
    """Return how many rows were deleted, and whether none are left."""
    deleted = 0
    with progress(f"Deleting {name}", quiet=quiet) as tick, interruptible() as interrupt:
        while not interrupt.is_set() and await lists.is_being_deleted(tables, name):
            try:
                deleted += await sweep.delete_rows_of(tables, name, at_most=DELETE_BATCHES)
            except Conflict:  # the scheduler is deleting the same rows
                continue
            tick(deleted, None, f"{deleted:,} rows")
    return deleted, not interrupt.is_set() or not await lists.is_being_deleted(tables, name)
