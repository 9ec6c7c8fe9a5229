"""`postroom subscriber import`: a CSV file of any length, read once, reported row by row."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import msgspec
import typer

from postroom.cli.exit_codes import INTERRUPTED
from postroom.cli.output import AsJson, bad_row_report, echo_err, show
from postroom.cli.progress import Show, progress
from postroom.cli.session import ListName, act_of, interruptible, work
from postroom.domain.consent import ConsentSource, SourceKind, Trace
from postroom.domain.csv_rows import DELIMITER_NAMES, BadRow, csv_text
from postroom.domain.errors import BadInput
from postroom.importing import import_people as importing
from postroom.importing.csv_people import People
from postroom.importing.csv_source import Source, opened
from postroom.importing.import_people import (
    BATCH_PEOPLE,
    GROUP_ROWS,
    ImportObserver,
    ImportTerms,
)
from postroom.importing.job import (
    ExistingFields,
    ImportCounts,
    Purpose,
    check_basis,
    clean_file_name,
)
from postroom.storage.port import StorageError

if TYPE_CHECKING:
    from postroom.wiring import Parts


def import_people(
    list_name: ListName,
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="With a header row.")],
    verified: Annotated[
        bool, typer.Option("--verified", help="All of them have confirmed.")
    ] = False,
    ask: Annotated[
        bool, typer.Option("--ask", help="Send a confirmation email to the unconfirmed in FILE.")
    ] = False,
    existing: Annotated[
        ExistingFields,
        typer.Option(help="What to do with the attributes of people already on the list."),
    ] = ExistingFields.LEAVE,
    basis: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Why you are allowed to email them; kept in each consent record."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, only count.")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write refused rows to this CSV file.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COLUMN", help="Use COLUMN as NAME, as in email=Mail."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import people from a CSV file; other columns become attributes.

    --verified also confirms people who are already on the list. People who unsubscribed are not
    added again. After an interruption, run it again: it does only what is missing.
    """
    if verified and ask:
        raise typer.BadParameter("cannot be combined with --verified", param_hint="--ask")
    declared = _parse_basis(basis)
    consent = ConsentSource(
        SourceKind.IMPORT,
        clean_file_name(file.name),
        basis=declared,
        all_confirmed=verified and not declared,
    )
    columns = _parse_columns(column or [])

    def terms(parts: Parts) -> ImportTerms:
        return ImportTerms(
            act_of(parts, Trace(source=consent)),
            list_name,
            verified,
            is_rehearsal=dry_run,
            existing=existing,
            ask=ask,
            # Rows that come through a pipe are stored as they come.
            group_rows=GROUP_ROWS if file.is_file() else BATCH_PEOPLE,
        )

    work(lambda parts: _import(terms(parts), file, columns, report, as_json=as_json))


async def _import(
    terms: ImportTerms, file: Path, columns: dict[str, str], report: Path | None, *, as_json: bool
) -> None:
    with (
        interruptible() as interrupt,
        opened(file) as source,
        bad_row_report(report) as refusals,
        progress(f"Importing {file.name}", quiet=as_json) as tick,
    ):
        people = People(iter(source), columns)
        observer = _Observer(interrupt, refusals, source, tick)
        try:
            counts = await importing.import_people(terms, people, observer)
        except StorageError:
            echo_err(
                "The import stopped. People added so far stay on the list. Run the same "
                "command again to import the rest."
            )
            raise
    data = {
        "list": terms.list_name,
        "rows": counts.rows,
        **msgspec.structs.asdict(counts),
        "dry_run": terms.is_rehearsal,
        "complete": not interrupt.is_set(),
        "encoding": source.encoding,
        "delimiter": people.delimiter,
    }
    delimiter = DELIMITER_NAMES.get(people.delimiter, people.delimiter)
    lines = [
        *_count_lines(terms, counts),
        f"Read as {source.encoding}, delimiter {delimiter}.",
        *_row_lines(observer, counts, report),
    ]
    if counts.added and not (terms.verified or terms.ask or terms.is_rehearsal):
        lines.append(
            "The people added have not confirmed, so they get no emails. Ask them with “postroom "
            f"subscriber ask {terms.list_name} --all”, or import them again with --verified."
        )
    show(data, as_json, *lines)
    if interrupt.is_set():
        echo_err("Interrupted. Run the same command again to do the rest.")
        raise typer.Exit(INTERRUPTED)


class _Observer(ImportObserver):
    """Shows progress, writes refused rows, notices Ctrl-C."""

    def __init__(
        self, interrupt: asyncio.Event, refusals: TextIO | None, source: Source, tick: Show
    ) -> None:
        super().__init__()
        self._interrupt = interrupt
        self._refusals = refusals
        self._source = source
        self._tick = tick

    def may_go_on(self) -> bool:
        return not self._interrupt.is_set()

    def refused(self, row: BadRow) -> None:
        super().refused(row)
        if self._refusals:
            self._refusals.write(csv_text([(row.line, row.value, row.reason)]))

    def counted(self, counts: ImportCounts) -> None:
        text = f"{counts.rows:,} rows, {counts.added:,} added, {counts.bad:,} bad"
        self._tick(self._source.read_bytes, self._source.size or None, text)


def _count_lines(terms: ImportTerms, counts: ImportCounts) -> Iterator[str]:
    would = "would be " if terms.is_rehearsal else ""
    yield f"{counts.added:,} {would}added to {terms.list_name}"
    yield f"{counts.already:,} already there"
    changes = {
        f"{would}confirmed": counts.confirmed,
        f"{would}updated": counts.updated,
        f"{would}asked to confirm": counts.asked,
        "more than once in the file": counts.duplicates,
        "with a typo in the address that was corrected": counts.corrected,
        "with a domain that looks mistyped": counts.mistyped,
    }
    yield from (f"{count:,} {what}" for what, count in changes.items() if count)
    yield f"{counts.unsubscribed:,} unsubscribed earlier: not added again"
    yield f"{counts.bad:,} bad"


def _row_lines(observer: _Observer, counts: ImportCounts, report: Path | None) -> Iterator[str]:
    for row in observer.first_noted:
        yield f"  line {row.line}: {row.value}: {row.reason}"
    for row in observer.first_bad:
        yield f"  line {row.line}: {row.value or '(empty)'}: {row.reason}"
    hidden = counts.bad + counts.unsubscribed - len(observer.first_bad)
    if report:
        yield f"All refused rows are in {report}."
    elif hidden > 0:
        yield f"  and {hidden:,} more. See them all with --report FILE."


def _parse_basis(basis: str) -> str:
    try:
        return check_basis(basis, Purpose.KEEP)
    except BadInput as error:
        raise typer.BadParameter(str(error), param_hint="--basis") from error


def _parse_columns(pairs: list[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for pair in pairs:
        name, _, heading = pair.partition("=")
        if not name or not heading:
            raise BadInput(f"“{pair}” is not NAME=COLUMN, as in email=Mail.")
        columns[name] = heading
    return columns
