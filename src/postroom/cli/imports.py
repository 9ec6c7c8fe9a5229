"""`postroom subscriber import`: a CSV file of any length, read once, reported row by row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from postroom.cli.exit_codes import INTERRUPTED
from postroom.cli.output import AsJson, csv_file, echo_err, show
from postroom.cli.progress import Show, progress
from postroom.cli.session import Interrupt, act_of, interruptible, work
from postroom.domain.consent import ConsentSource, SourceKind, Trace
from postroom.domain.csv_rows import DELIMITER_NAMES, REPORT_COLUMNS, BadRow, csv_text
from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import check_list_name
from postroom.importing import import_people as importing
from postroom.importing.csv_people import People
from postroom.importing.csv_source import Source, opened
from postroom.importing.import_people import (
    BATCH_PEOPLE,
    GROUP_ROWS,
    ImportCounts,
    ImportTerms,
)
from postroom.importing.job import (
    BAD_ROWS_SHOWN,
    Existing,
    Purpose,
    check_basis,
    clean_file_name,
)
from postroom.storage.port import StorageError

if TYPE_CHECKING:
    from postroom.wiring import Parts


def import_people(
    list_name: Annotated[str, typer.Argument(metavar="LIST")],
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="With a header row.")],
    verified: Annotated[
        bool, typer.Option("--verified", help="All of them have confirmed.")
    ] = False,
    ask: Annotated[
        bool, typer.Option("--ask", help="Send a confirmation email to everybody unconfirmed.")
    ] = False,
    existing: Annotated[
        Existing, typer.Option(help="What to do with the fields of people on the list.")
    ] = Existing.LEAVE,
    basis: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Why you may email them; kept in each consent record."),
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
    check_list_name(list_name)
    if verified and ask:
        raise typer.BadParameter("not together with --verified", param_hint="--ask")
    declared = _parse_basis(basis)
    source = ConsentSource(
        SourceKind.IMPORT,
        clean_file_name(file.name),
        basis=declared,
        all_confirmed=verified and not declared,
    )
    columns = _parse_columns(column or [])

    def terms(parts: Parts) -> ImportTerms:
        return ImportTerms(
            act_of(parts, Trace(source=source)),
            list_name,
            verified,
            is_rehearsal=dry_run,
            existing=existing,
            ask=ask,
            # Rows that come through a pipe are stored as they come.
            group_rows=GROUP_ROWS if file.is_file() else BATCH_PEOPLE,
        )

    result = work(lambda parts: _run(terms(parts), file, columns, report, quiet=as_json))
    show(result.data(), as_json, *result.lines(report))
    if result.observer.interrupt.is_asked:
        echo_err("Interrupted. Run the same command again to do the rest.")
        raise typer.Exit(INTERRUPTED)


async def _run(
    terms: ImportTerms, file: Path, columns: dict[str, str], report: Path | None, *, quiet: bool
) -> _ImportResult:
    with interruptible() as interrupt, opened(file) as source, _report(report) as refusals:
        people = People(iter(source), columns)
        with progress(f"Importing {file.name}", quiet=quiet) as tick:
            observer = _Observer(interrupt, refusals, source, tick)
            try:
                counts = await importing.import_people(terms, people, observer)
            except StorageError:
                echo_err(
                    "The import stopped; everybody added so far stays. Run it again for the rest."
                )
                raise
        return _ImportResult(terms, counts, observer, source.encoding, people.delimiter)


@contextlib.contextmanager
def _report(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    with csv_file(path) as file:
        file.write(csv_text([REPORT_COLUMNS]))
        yield file


class _Observer:
    """Shows progress, writes refused rows, notices Ctrl-C."""

    def __init__(
        self, interrupt: Interrupt, refusals: TextIO | None, source: Source, tick: Show
    ) -> None:
        self.interrupt = interrupt
        self.first_bad: list[BadRow] = []
        self.first_noted: list[BadRow] = []
        self._refusals = refusals
        self._source = source
        self._tick = tick

    def may_go_on(self) -> bool:
        return not self.interrupt.is_asked

    def refused(self, row: BadRow) -> None:
        if len(self.first_bad) < BAD_ROWS_SHOWN:
            self.first_bad.append(row)
        if self._refusals:
            self._refusals.write(csv_text([(row.line, row.value, row.reason)]))

    def noted(self, row: BadRow) -> None:
        if len(self.first_noted) < BAD_ROWS_SHOWN:
            self.first_noted.append(row)

    def counted(self, counts: ImportCounts) -> None:
        text = f"{counts.rows:,} rows, {counts.added:,} added, {counts.bad:,} bad"
        self._tick(self._source.read_bytes, self._source.size or None, text)


@dataclass
class _ImportResult:
    terms: ImportTerms
    counts: ImportCounts
    observer: _Observer
    encoding: str
    delimiter: str

    def data(self) -> dict[str, Any]:
        return {
            "list": self.terms.list_name,
            "rows": self.counts.rows,
            **asdict(self.counts),
            "dry_run": self.terms.is_rehearsal,
            "complete": not self.observer.interrupt.is_asked,
            "encoding": self.encoding,
            "delimiter": self.delimiter,
        }

    def lines(self, report: Path | None) -> Iterator[str]:
        counts = self.counts
        terms = self.terms
        would = "would be " if terms.is_rehearsal else ""
        yield f"{counts.added:,} {would}added to {terms.list_name}"
        yield f"{counts.already:,} already there"
        changes = {
            f"{would}confirmed": counts.confirmed,
            f"{would}updated": counts.updated,
            f"{would}asked to confirm": counts.asked,
            "more than once in the file": counts.twice,
            "with a typing error in the address that was corrected": counts.mended,
            "with a domain that looks mistyped": counts.mistyped,
        }
        yield from (f"{count:,} {what}" for what, count in changes.items() if count)
        yield f"{counts.gone:,} unsubscribed earlier: not added again"
        yield f"{counts.bad:,} bad"
        delimiter = DELIMITER_NAMES.get(self.delimiter, self.delimiter)
        yield f"Read as {self.encoding}, delimiter {delimiter}."
        for row in self.observer.first_noted:
            yield f"  line {row.line}: {row.value}: {row.reason}"
        for row in self.observer.first_bad:
            yield f"  line {row.line}: {row.value or '(empty)'}: {row.reason}"
        hidden = counts.bad + counts.gone - len(self.observer.first_bad)
        if report:
            yield f"All refused rows are in {report}."
        elif hidden > 0:
            yield f"  and {hidden:,} more. See them all with --report FILE."
        if counts.added and not (terms.verified or terms.ask or terms.is_rehearsal):
            yield (
                "The people added have not confirmed, so they get no emails. Ask them with "
                f"“postroom subscriber ask {terms.list_name} --all”, or import them again with "
                "--verified."
            )


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
            raise BadInput(f"“{pair}” does not name a column. Write it as in email=Mail.")
        columns[name] = heading
    return columns
