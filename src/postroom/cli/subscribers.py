"""`postroom subscriber …`: one person, or everyone, of a list. Imports are in imports.py."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.exit_codes import INTERRUPTED
from postroom.cli.imports import import_people
from postroom.cli.output import (
    AsJson,
    csv_file,
    fields,
    print_json_array,
    show,
    tell,
    write_csv,
)
from postroom.cli.session import interruptible, wake_senders, work
from postroom.domain.address import Address, parse_address
from postroom.domain.ask_job import AskJob
from postroom.domain.asking import CANNOT_ASK_TEXTS, CannotAsk
from postroom.domain.consent import COMMAND_LINE, source_text
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.import_job import Status
from postroom.domain.mailing_list import check_list_name
from postroom.domain.subscriber import Subscriber, SubscriberFilter, attributes_from, subscription
from postroom.domain.texts import ngettext
from postroom.flow import ask, subscribe, take_out
from postroom.records import lists, subscribers

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="The people of a list.")
app.command("import")(import_people)
ListName = Annotated[str, typer.Argument(metavar="LIST")]
AddressText = Annotated[str, typer.Argument(metavar="ADDRESS")]


@app.command("add")
def add(
    list_name: ListName,
    address: AddressText,
    verified: Annotated[bool, typer.Option("--verified", help="They have confirmed.")] = False,
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be given several times.")
    ] = None,
    bring_back: Annotated[
        bool, typer.Option("--bring-back", help="Also if they left: only if they asked for it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add one person. Who is not verified is not mailed."""
    check_list_name(list_name)
    parsed, attributes = parse_address(address), attributes_from(attribute or [])

    async def job(parts: Parts) -> Subscriber:
        return await subscribe.add(
            parts.storage.tables,
            list_name,
            parsed,
            attributes,
            verified=verified,
            now=parts.clock.now(),
            bring_back=bring_back,
        )

    added = work(job)
    words = f"{added.address} is on {list_name}"
    asking = f"“postroom subscriber ask {list_name} {added.address}” sends a confirmation email"
    unverified = "" if verified else f", and has not confirmed: {asking}"
    show(_data(added), as_json, f"{words}{unverified}.")


@app.command("show")
def show_subscriber(list_name: ListName, address: AddressText, as_json: AsJson = False) -> None:
    """Show what is known of one person."""
    check_list_name(list_name)
    parsed = parse_address(address)

    async def job(parts: Parts) -> Subscriber:
        await lists.read(parts.storage.tables, list_name)
        found = await subscribers.find(parts.storage.tables, list_name, parsed.storage_key)
        if found is None:
            raise NotFound(f"{parsed.typed} was never on {list_name}.")
        return found[0]

    data = _data(work(job))
    show(data, as_json, *fields(data))


@app.command("ask")
def ask_to_confirm(
    list_name: ListName,
    address: Annotated[str | None, typer.Argument(metavar="[ADDRESS]")] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="Everybody on the list who has not confirmed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send a confirmation email to one person, or to everybody who has not confirmed.

    Nobody is asked twice within 24 hours, or more than three times in 30 days. Interrupted, run it
    again: whoever was asked is skipped.
    """
    check_list_name(list_name)
    if everybody == (address is not None):
        raise typer.BadParameter("name one, or say --all", param_hint="ADDRESS")
    if address is not None:
        _ask_one(list_name, parse_address(address), as_json)
        return
    job = work(lambda parts: _ask_all(parts, list_name))
    data = {"list": list_name, "asked": job.asked, "skipped": job.skipped, "status": job.status}
    told = ngettext(
        "{count:,} person on {name} was asked to confirm.",
        "{count:,} people on {name} were asked to confirm.",
        job.asked,
        name=list_name,
    )
    show(data, as_json, str(told), f"{job.skipped:,} skipped: asked before, or left earlier.")
    if job.mistake:
        raise WrongState(job.mistake)
    if job.status is Status.STOPPED:
        tell("Interrupted: run the same command again to ask the others.")
        raise typer.Exit(INTERRUPTED)


def _ask_one(list_name: str, address: Address, as_json: bool) -> None:
    async def job(parts: Parts) -> CannotAsk | None:
        await lists.read(parts.storage.tables, list_name)
        return await ask.ask_one(_asker(parts), list_name, address.storage_key)

    why = work(job)
    if why:
        raise WrongState(f"{address.typed} was not asked. {CANNOT_ASK_TEXTS[why]}")
    data = {"list": list_name, "address": address.typed, "asked": True}
    show(data, as_json, f"{address.typed} will get a confirmation email.")


async def _ask_all(parts: Parts, list_name: str) -> AskJob:
    tables = parts.storage.tables
    await lists.read(tables, list_name)
    found = await ask.tally(tables, list_name, parts.clock)
    job, etag = await ask.start(
        tables,
        list_name,
        by=str(source_text(COMMAND_LINE.source)),
        total=found.askable if found.is_whole else 0,
        run=secrets.token_hex(8),
        now=parts.clock.now(),
    )
    with interruptible() as interrupt:
        return await ask.run(_asker(parts), job, etag, lambda: not interrupt.is_asked)


def _asker(parts: Parts) -> ask.Asker:
    return ask.Asker(parts.storage, parts.clock, COMMAND_LINE, partial(wake_senders, parts))


@app.command("remove")
def remove(list_name: ListName, address: AddressText, as_json: AsJson = False) -> None:
    """Take one person off a list; nobody mails them any more, and no import brings them back."""
    check_list_name(list_name)
    parsed = parse_address(address)

    async def job(parts: Parts) -> None:
        await subscribe.remove(parts.storage.tables, list_name, parsed, parts.clock.now())

    work(job)
    data = {"list": list_name, "address": parsed.typed, "removed": True}
    show(data, as_json, f"{parsed.typed} is off {list_name}.")


@app.command("export")
def export(
    list_name: ListName,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="- or none: print.")] = None,
    gone: Annotated[bool, typer.Option("--gone", help="Those who left instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write everyone of a list as CSV, or with --json and no file as one array."""
    check_list_name(list_name)
    path = None if file is None or str(file) == "-" else file
    standing = SubscriberFilter.GONE if gone else SubscriberFilter.THERE

    async def job(parts: Parts) -> int:
        await lists.read(parts.storage.tables, list_name)
        if as_json and path is None:
            return await print_json_array(_exported(parts, list_name, standing))
        return await _export_csv(parts, list_name, standing, path)

    count = work(job)
    if path is not None:
        data = {"list": list_name, "file": str(path), "people": count}
        show(data, as_json)
        if not as_json:
            told = ngettext(
                "{count} person of {name} is in {path}.",
                "{count:,} people of {name} are in {path}.",
                count,
                name=list_name,
                path=path,
            )
            tell(str(told))


async def _export_csv(
    parts: Parts, list_name: str, standing: SubscriberFilter, path: Path | None
) -> int:
    tables = parts.storage.tables
    header = await take_out.columns(tables, list_name, standing)
    rows = take_out.rows(tables, list_name, standing, header)
    with csv_file(path) as out:
        return await write_csv(out, header, rows)


async def _exported(
    parts: Parts, list_name: str, standing: SubscriberFilter
) -> AsyncIterator[dict[str, Any]]:
    async for one in subscribers.everyone(parts.storage.tables, list_name, standing):
        yield _data(one)


def _data(one: Subscriber) -> dict[str, Any]:
    return {
        "list": one.list_name,
        "address": one.address,
        "subscription": subscription(one),
        "verified": one.verified,
        "since": one.since,
        "attributes": one.attributes,
    }
