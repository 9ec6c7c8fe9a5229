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
from postroom.cli.session import act_of, interruptible, work
from postroom.domain.address import Address, parse_address
from postroom.domain.ask_job import AskJob
from postroom.domain.asking import CANNOT_ASK_TEXTS, CannotAsk
from postroom.domain.consent import COMMAND_LINE, source_text
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.job_status import JobStatus
from postroom.domain.mailing_list import check_list_name
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
        bool,
        typer.Option("--bring-back", help="Even if they unsubscribed; only on request."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add one person. Emails go only to verified people."""
    check_list_name(list_name)
    parsed = parse_address(address)
    attributes = clean_attributes(attributes_from(attribute or []))

    async def job(parts: Parts) -> Subscriber:
        return await subscribe.add(
            act_of(parts),
            list_name,
            parsed,
            attributes,
            verified=verified,
            bring_back=bring_back,
        )

    added = work(job)
    text = f"{added.address} is on {list_name}"
    if not verified:
        command = f"“postroom subscriber ask {list_name} {added.address}”"
        text += f" and has not confirmed. {command} sends a confirmation email"
    show(_data(added), as_json, f"{text}.")


@app.command("show")
def show_subscriber(list_name: ListName, address: AddressText, as_json: AsJson = False) -> None:
    """Show one person."""
    check_list_name(list_name)
    parsed = parse_address(address)

    async def job(parts: Parts) -> Subscriber:
        await lists.read(parts.storage.tables, list_name)
        found = await subscribers.find(parts.storage.tables, list_name, parsed.storage_key)
        if found is None:
            raise NotFound(f"{parsed.typed} has never been on {list_name}.")
        return found.value

    data = _data(work(job))
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
    check_list_name(list_name)
    if everybody == (address is not None):
        raise typer.BadParameter("name one person, or use --all", param_hint="ADDRESS")
    if address is not None:
        _ask_one(list_name, parse_address(address), as_json)
        return

    async def ask_all(parts: Parts) -> AskJob:
        tables = parts.storage.tables
        await lists.read(tables, list_name)
        tally = await ask_to_confirm.tally(tables, list_name, parts.clock)
        job, etag = await ask_to_confirm.start(
            tables,
            list_name,
            by=str(source_text(COMMAND_LINE.source)),
            total=tally.askable if tally.is_whole else 0,
            run=secrets.token_hex(8),
            now=parts.clock.now(),
        )
        with interruptible() as interrupt:
            act = act_of(parts)
            return await ask_to_confirm.run(act, job, etag, lambda: not interrupt.is_asked)

    job = work(ask_all)
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


def _ask_one(list_name: str, address: Address, as_json: bool) -> None:
    async def job(parts: Parts) -> CannotAsk | None:
        await lists.read(parts.storage.tables, list_name)
        return await ask_to_confirm.ask_one(act_of(parts), list_name, address.storage_key)

    why = work(job)
    if why:
        raise WrongState(f"{address.typed} was not asked. {CANNOT_ASK_TEXTS[why]}")
    data = {"list": list_name, "address": address.typed, "asked": True}
    show(data, as_json, f"{address.typed} will get a confirmation email.")


@app.command("remove")
def remove(list_name: ListName, address: AddressText, as_json: AsJson = False) -> None:
    """Remove one person from a list. They get no more emails, and imports do not re-add them."""
    check_list_name(list_name)
    parsed = parse_address(address)
    work(lambda parts: subscribe.remove(act_of(parts), list_name, parsed))
    data = {"list": list_name, "address": parsed.typed, "removed": True}
    show(data, as_json, f"{parsed.typed} is removed from {list_name}.")


@app.command("export")
def export(
    list_name: ListName,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: print.")] = None,
    gone: Annotated[bool, typer.Option("--gone", help="People who unsubscribed instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Export a list as CSV, or with --json and no file as one array."""
    check_list_name(list_name)
    path = None if file is None or str(file) == "-" else file
    chosen = SubscriberFilter.GONE if gone else SubscriberFilter.THERE

    async def job(parts: Parts) -> int:
        tables = parts.storage.tables
        await lists.read(tables, list_name)
        if as_json and path is None:
            people = subscribers.everyone(tables, list_name, chosen)
            return await print_json_array(_data(one) async for one in people)
        header = await export_people.columns(tables, list_name, chosen)
        rows = export_people.rows(tables, list_name, chosen, header)
        with csv_file(path) as out:
            return await write_csv(out, header, rows)

    count = work(job)
    if path is None:
        return
    show({"list": list_name, "file": str(path), "people": count}, as_json)
    if not as_json:
        text = ngettext(
            "{count} person of {name} is in {path}.",
            "{count:,} people of {name} are in {path}.",
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
