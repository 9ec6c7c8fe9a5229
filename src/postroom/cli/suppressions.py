"""`postroom suppression …`: addresses that get no more email, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from postroom.actions import manage_suppressions
from postroom.actions.manage_suppressions import (
    EXPORT_COLUMNS,
    AddedSuppression,
    SuppressionCause,
    suppression_data,
)
from postroom.cli.exit_codes import INTERRUPTED
from postroom.cli.output import (
    AsJson,
    Yes,
    bad_row_report,
    confirm,
    csv_file,
    echo_err,
    fields,
    print_json_array,
    readable,
    show,
    write_csv,
)
from postroom.cli.progress import Show, progress
from postroom.cli.session import act_of, interruptible, work
from postroom.domain.address import Address, parse_address
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.consent import ConsentSource, SourceKind, Trace
from postroom.domain.csv_rows import BadRow, csv_text
from postroom.domain.mailing_list import check_list_name
from postroom.domain.suppression import (
    REASON_TEXTS,
    SCOPE_TEXTS,
    Suppression,
    SuppressionScope,
    check_lists,
    check_note,
    suppression_source_text,
)
from postroom.domain.texts import ngettext
from postroom.importing.csv_source import Source, opened
from postroom.importing.import_suppressions import (
    SuppressionCounts,
    SuppressionTerms,
    import_suppressions,
)
from postroom.importing.job import BAD_ROWS_SHOWN, clean_file_name
from postroom.importing.suppression_rows import SuppressionRows
from postroom.records import suppressions
from postroom.records.secrets import installation_secret
from postroom.storage.port import StorageError

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Addresses that get no more email.")
AddressText = Annotated[str, typer.Argument(metavar="ADDRESS")]
Scope = Annotated[
    SuppressionScope,
    typer.Option(
        help="What is stopped: messages to some lists, messages to all lists (bulk), or all email."
    ),
]
Lists = Annotated[
    list[str] | None,
    typer.Option("--list", metavar="LIST", help="For --scope list; may be given several times."),
]


@app.command("add")
def add(
    address: AddressText,
    scope: Scope = SuppressionScope.BULK,
    list_name: Lists = None,
    note: Annotated[str, typer.Option(help="Why, for anyone who looks it up.")] = "",
    as_json: AsJson = False,
) -> None:
    """Suppress an address, or widen its entry. They stay on their lists, but get no email."""
    parsed = parse_address(address)
    names = [check_list_name(name) for name in list_name or []]
    check_lists(scope, names)
    check_note(note)

    async def job(parts: Parts) -> AddedSuppression:
        secret = await installation_secret(parts.storage.tables)
        return await manage_suppressions.add(
            act_of(parts), secret, parsed, scope, list_names=names, note=note
        )

    added = work(job)
    what = _scope_text(added.entry)
    text = f"{parsed.typed} is suppressed for {what}."
    if not added.is_changed:
        text = f"{parsed.typed} was already suppressed for {what}. Nothing was changed."
    show(suppression_data(added.entry, parsed) | {"changed": added.is_changed}, as_json, text)


@app.command("show")
def show_suppression(address: AddressText, as_json: AsJson = False) -> None:
    """Explain why an address gets no email: which message, when, and the server's response."""
    parsed = parse_address(address)

    async def job(parts: Parts) -> tuple[Suppression, SuppressionCause | None]:
        tables = parts.storage.tables
        secret = await installation_secret(tables)
        entry, _etag = await manage_suppressions.read(tables, secret, parsed)
        return entry, await manage_suppressions.find_cause(tables, secret, entry)

    entry, cause = work(job)
    show(
        suppression_data(entry, parsed) | manage_suppressions.cause_data(cause),
        as_json,
        *fields(_readable(entry, parsed, cause)),
    )


@app.command("remove")
def remove(address: AddressText, as_json: AsJson = False) -> None:
    """Remove an entry. The address is mailed again, starting with the next message."""
    parsed = parse_address(address)

    async def job(parts: Parts) -> Suppression:
        secret = await installation_secret(parts.storage.tables)
        return await manage_suppressions.remove(act_of(parts), secret, parsed)

    removed = work(job)
    data = suppression_data(removed, parsed) | {"removed": True}
    show(data, as_json, f"{parsed.typed} is no longer suppressed.")


@app.command("erase")
def erase(address: AddressText, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a person from all lists. Only a hash of the address is kept, which is never mailed."""
    parsed = parse_address(address)
    question = (
        f"Delete {parsed.typed} from all lists, with the consent record? This cannot be undone."
    )

    async def job(parts: Parts) -> list[str]:
        confirm(question, yes)
        secret = await installation_secret(parts.storage.tables)
        return await manage_suppressions.erase(act_of(parts), secret, parsed)

    names = work(job)
    text = f"Erased; deleted from {', '.join(names)}." if names else "Erased; they were on no list."
    data = {"address": parsed.typed, "erased": True, "lists": names}
    show(
        data, as_json, f"{text} Messages that were sent to them keep the address until they expire."
    )


@app.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, or one address per line.")],
    scope: Scope = SuppressionScope.BULK,
    list_name: Lists = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write bad rows to this CSV file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Suppress everybody in a file of any length.

    Addresses are taken from the column named email, or else from the first. No header row is
    needed. The columns scope, lists, reason, since, source, status, words and note are read if
    present.
    """
    names = tuple(check_list_name(name) for name in list_name or [])
    check_lists(scope, names)
    trace = Trace(source=ConsentSource(SourceKind.IMPORT, clean_file_name(file.name)))

    async def job(parts: Parts) -> tuple[SuppressionCounts, _ImportObserver]:
        secret = await installation_secret(parts.storage.tables)
        terms = SuppressionTerms(act_of(parts, trace), secret, scope, names)
        return await _run(terms, file, report, quiet=as_json)

    counts, observer = work(job)
    data = {"rows": counts.rows, **asdict(counts), "complete": not observer.interrupt.is_set()}
    show(data, as_json, *_lines(counts, observer, report))
    if observer.interrupt.is_set():
        echo_err("Interrupted. Run the same command again to do the rest.")
        raise typer.Exit(INTERRUPTED)


@app.command("export")
def export(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: print.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export all entries as CSV, or with --json and no file as one array; without erased people."""
    path = None if file is None or str(file) == "-" else file

    async def job(parts: Parts) -> int:
        async with act_of(parts).audited(AuditKind.SUPPRESSION, "", AuditAction.EXPORT):
            return await write(parts)

    async def write(parts: Parts) -> int:
        tables = parts.storage.tables
        if as_json and path is None:
            everyone = suppressions.everyone(tables)
            return await print_json_array(
                suppression_data(entry) async for _name, (entry, _etag) in everyone if entry.key
            )
        with csv_file(path) as out:
            return await write_csv(out, EXPORT_COLUMNS, manage_suppressions.export_rows(tables))

    count = work(job)
    if path is None:
        return
    show({"file": str(path), "addresses": count}, as_json)
    if not as_json:
        many = "{count:,} addresses were exported to {path}."
        echo_err(ngettext("{count} address was exported to {path}.", many, count, path=path))


async def _run(
    terms: SuppressionTerms, file: Path, report: Path | None, *, quiet: bool
) -> tuple[SuppressionCounts, _ImportObserver]:
    with (
        interruptible() as interrupt,
        opened(file) as source,
        bad_row_report(report) as refusals,
        progress(f"Importing {file.name}", quiet=quiet) as tick,
    ):
        observer = _ImportObserver(interrupt, refusals, source, tick)
        try:
            rows = SuppressionRows(iter(source))
            return await import_suppressions(terms, rows, observer), observer
        except StorageError:
            echo_err(
                "The import stopped. Addresses added so far stay suppressed. Run the same "
                "command again."
            )
            raise


@dataclass
class _ImportObserver:
    """Shows progress, writes bad rows, notices Ctrl-C."""

    interrupt: asyncio.Event
    refusals: TextIO | None
    source: Source
    tick: Show
    first_bad: list[BadRow] = field(default_factory=list)

    def may_go_on(self) -> bool:
        return not self.interrupt.is_set()

    def refused(self, row: BadRow) -> None:
        if len(self.first_bad) < BAD_ROWS_SHOWN:
            self.first_bad.append(row)
        if self.refusals:
            self.refusals.write(csv_text([(row.line, row.value, row.reason)]))

    def counted(self, counts: SuppressionCounts) -> None:
        text = f"{counts.rows:,} rows, {counts.added:,} added, {counts.bad:,} bad"
        self.tick(self.source.read_bytes, self.source.size or None, text)


def _lines(
    counts: SuppressionCounts, observer: _ImportObserver, report: Path | None
) -> Iterator[str]:
    yield f"{counts.added:,} added"
    if counts.widened:
        yield f"{counts.widened:,} suppressed further than before"
    yield f"{counts.already:,} already suppressed, or more than once in the file"
    yield f"{counts.bad:,} bad"
    for row in observer.first_bad:
        yield f"  line {row.line}: {row.value or '(empty)'}: {row.reason}"
    if report:
        yield f"All bad rows are in {report}."
    elif counts.bad > len(observer.first_bad):
        more = counts.bad - len(observer.first_bad)
        yield f"  and {more:,} more. See them all with --report FILE."


def _scope_text(entry: Suppression) -> str:
    if entry.scope is SuppressionScope.LIST:
        return entry.lists.replace(",", ", ")
    return str(SCOPE_TEXTS[entry.scope])


def _readable(
    entry: Suppression, address: Address, cause: SuppressionCause | None
) -> dict[str, object]:
    return {
        "address": address.typed,
        "suppressed for": _scope_text(entry),
        "reason": str(REASON_TEXTS[entry.reason]),
        "since": entry.since,
        "reported by": str(suppression_source_text(entry.source)),
        "message": _cause_text(cause),
        "server's words": entry.words,
        "status": entry.status,
        "note": entry.note,
    }


def _cause_text(cause: SuppressionCause | None) -> str:
    if cause is None:
        return ""
    if cause.is_confirmation:
        return f"the confirmation email for {cause.list_name or 'a list'}"
    if cause.message is None:
        return f"{cause.ref}, which is deleted"
    sent = f", sent {readable(cause.sent_at)}" if cause.sent_at else ""
    return f"{cause.ref} “{cause.message.subject}” to {cause.message.list_name}{sent}"
