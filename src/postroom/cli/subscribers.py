"""`postroom subscriber …`: the people on a list. Imports are in imports.py."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.actions import ask_to_confirm, export_people
from postroom.cli.exit_codes import INTERRUPTED
from postroom.cli.imports import import_people
from postroom.cli.output import (
    AsJson,
    csv_file,
    echo_err,
    fields,
    print_json_array,
    show,
    write_csv,
)
from postroom.cli.session import ListName, ParsedAddress, act_of, interruptible, with_parts
from postroom.domain.address import Address, parse_address
from postroom.domain.asking import CANNOT_ASK_TEXTS
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.consent import COMMAND_LINE, source_text
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.job_status import JobStatus
from postroom.domain.subscriber import (
    Subscriber,
    SubscriberFilter,
    attributes_from,
    clean_attributes,
    subscription,
)
from postroom.domain.texts import ngettext
from postroom.flow import subscribe
from postroom.records import lists, subscribers

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="The people on a list.")
app.command("import")(import_people)


@app.command("add")
@with_parts
async def add(
    parts: Parts,
    list_name: ListName,
    address: ParsedAddress,
    verified: Annotated[bool, typer.Option("--verified", help="They have confirmed.")] = False,
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be given several times.")
    ] = None,
    bring_back: Annotated[
        bool,
        typer.Option(
            "--bring-back", help="Add them even if they unsubscribed. Only if they asked for it."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add one person. Emails go only to verified people."""
    attributes = clean_attributes(attributes_from(attribute or []))
    act = act_of(parts)
    added = await subscribe.add(
        act, list_name, address, attributes, verified=verified, bring_back=bring_back
    )
    text = f"{added.address} is on {list_name}"
    if not verified:
        command = f"“postroom subscriber ask {list_name} {added.address}”"
        text += f" and has not confirmed. {command} sends a confirmation email"
    show(_data(added), as_json, f"{text}.")


@app.command("show")
@with_parts
async def show_subscriber(
    parts: Parts, list_name: ListName, address: ParsedAddress, as_json: AsJson = False
) -> None:
    """Show one person."""
    await lists.read(parts.storage.tables, list_name)
    found = await subscribers.find(parts.storage.tables, list_name, address.storage_key)
    if found is None:
        raise NotFound(f"{address.typed} has never been on {list_name}.")
    data = _data(found.value)
    show(data, as_json, *fields(data))


@app.command("ask")
def ask(
    list_name: ListName,
    address: Annotated[str | None, typer.Argument(metavar="[ADDRESS]")] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="Everybody on the list who has not confirmed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send a confirmation email to one person, or to everybody who has not confirmed.

    Everybody gets at most one such email in 24 hours, and three in 30 days. After an interruption,
    run it again: people who were asked are skipped.
    """
    if everybody == (address is not None):
        raise typer.BadParameter("name one person, or use --all", param_hint="ADDRESS")
    if address is None:
        _ask_everybody(list_name, as_json)
    else:
        _ask_one(list_name, parse_address(address), as_json)


@with_parts
async def _ask_one(parts: Parts, list_name: str, address: Address, as_json: bool) -> None:
    act = act_of(parts)
    await lists.read(act.tables, list_name)
    why = await ask_to_confirm.ask_one(act, list_name, address.storage_key)
    if why:
        raise WrongState(f"{address.typed} was not asked. {CANNOT_ASK_TEXTS[why]}")
    data = {"list": list_name, "address": address.typed, "asked": True}
    show(data, as_json, f"{address.typed} will get a confirmation email.")


@with_parts
async def _ask_everybody(parts: Parts, list_name: str, as_json: bool) -> None:
    act = act_of(parts)
    await lists.read(act.tables, list_name)
    tally = await ask_to_confirm.tally(act.tables, list_name, act.clock)
    async with act.audited(AuditKind.LIST, list_name, AuditAction.ASK):
        job, etag = await ask_to_confirm.start(
            act.tables,
            list_name,
            by=str(source_text(COMMAND_LINE.source)),
            total=tally.askable if tally.is_whole else 0,
            run=secrets.token_hex(8),
            now=act.clock.now(),
        )
    with interruptible() as interrupt:
        job = await ask_to_confirm.run(act, job, etag, lambda: not interrupt.is_set())
    data = {"list": list_name, "asked": job.asked, "skipped": job.skipped, "status": job.status}
    text = ngettext(
        "{count:,} person on {name} was asked to confirm.",
        "{count:,} people on {name} were asked to confirm.",
        job.asked,
        name=list_name,
    )
    show(data, as_json, text, f"{job.skipped:,} skipped: asked recently, or unsubscribed.")
    if job.mistake:
        raise WrongState(job.mistake)
    if job.status is JobStatus.STOPPED:
        echo_err("Interrupted. Run the same command again to ask the others.")
        raise typer.Exit(INTERRUPTED)


@app.command("remove")
@with_parts
async def remove(
    parts: Parts, list_name: ListName, address: ParsedAddress, as_json: AsJson = False
) -> None:
    """Remove one person from a list. They get no more emails, and imports do not re-add them."""
    await subscribe.remove(act_of(parts), list_name, address)
    data = {"list": list_name, "address": address.typed, "removed": True}
    show(data, as_json, f"{address.typed} was removed from {list_name}.")


@app.command("export")
@with_parts
async def export(
    parts: Parts,
    list_name: ListName,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: print.")] = None,
    inactive: Annotated[
        bool, typer.Option("--inactive", help="People who unsubscribed or were removed instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Export a list as CSV, or with --json and no file as one array."""
    path = None if file is None or str(file) == "-" else file
    chosen = SubscriberFilter.INACTIVE if inactive else SubscriberFilter.ACTIVE
    tables = parts.storage.tables
    async with act_of(parts).audited(AuditKind.LIST, list_name, AuditAction.EXPORT):
        await lists.read(tables, list_name)
    if as_json and path is None:
        people = subscribers.everyone(tables, list_name, chosen)
        await print_json_array(_data(one) async for one in people)
        return
    header = await export_people.columns(tables, list_name, chosen)
    rows = export_people.rows(tables, list_name, chosen, header)
    with csv_file(path) as out:
        count = await write_csv(out, header, rows)
    if path is None:
        return
    show({"list": list_name, "file": str(path), "people": count}, as_json)
    if not as_json:
        text = ngettext(
            "{count} person on {name} was exported to {path}.",
            "{count:,} people on {name} were exported to {path}.",
            count,
            name=list_name,
            path=path,
        )
        echo_err(text)


def _data(one: Subscriber) -> dict[str, Any]:
    return {
        "list": one.list_name,
        "address": one.address,
        "subscription": subscription(one),
        "verified": one.verified,
        "since": one.since,
        "attributes": one.attributes,
    }
