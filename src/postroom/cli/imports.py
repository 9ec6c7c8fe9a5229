"""`postroom subscriber import`: a CSV file of any length, read once, reported row by row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from postroom.cli.exit_codes import INTERRUPTED
from postroom.cli.output import AsJson, csv_file, show, tell
from postroom.cli.progress import Show, progress
from postroom.cli.session import Interrupt, act_of, interruptible, work
from postroom.domain.consent import ConsentSource, SourceKind, Trace
from postroom.domain.csv_people import People
from postroom.domain.csv_rows import DELIMITER_NAMES, REPORT_COLUMNS, BadRow, csv_text
from postroom.domain.csv_source import Source, opened
from postroom.domain.errors import BadInput
from postroom.domain.import_job import (
    BAD_ROWS_SHOWN,
    Existing,
    Purpose,
    check_basis,
    clean_file_name,
)
from postroom.domain.mailing_list import check_list_name
from postroom.flow.bring_in import BATCH_PEOPLE, CROWD_PEOPLE, Counts, Intake, bring_in
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
    declared = _declared(basis)
    order = _Order(
        list_name,
        file,
        verified=verified,
        ask=ask,
        existing=existing,
        source=ConsentSource(
            SourceKind.IMPORT,
            clean_file_name(file.name),
            basis=declared,
            all_confirmed=verified and not declared,
        ),
        is_rehearsal=dry_run,
        columns=_wanted(column or []),
    )
    order.check()
    result = work(lambda parts: _followed(parts, order, report, quiet=as_json))
    lines = [*result.lines(list_name, dry_run, report), *order.next_steps(result.counts)]
    show(result.data(list_name, dry_run), as_json, *lines)
    _leave_if_interrupted(result.watch.interrupt)


def _leave_if_interrupted(interrupt: Interrupt) -> None:
    if interrupt.is_asked:
        tell("Interrupted. Run the same command again to do the rest.")
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True)
class _Order:
    """What was typed."""

    list_name: str
    file: Path
    verified: bool
    ask: bool
    existing: Existing
    source: ConsentSource  # for the consent record
    is_rehearsal: bool
    columns: dict[str, str]

    def check(self) -> None:
        if self.verified and self.ask:
            raise typer.BadParameter("not together with --verified", param_hint="--ask")

    def intake(self, parts: Parts) -> Intake:
        return Intake(
            parts.storage.tables,
            self.list_name,
            self.verified,
            parts.clock.now(),
            is_rehearsal=self.is_rehearsal,
            source=self.source,
            existing=self.existing,
            asker=act_of(parts, Trace(source=self.source)) if self.ask else None,
            # What comes through a pipe is stored as it comes.
            crowd=CROWD_PEOPLE if self.file.is_file() else BATCH_PEOPLE,
        )

    def next_steps(self, counts: Counts) -> Iterator[str]:
        if counts.added and not (self.verified or self.ask or self.is_rehearsal):
            yield (
                "The people added have not confirmed, so they get no emails. Ask them with "
                f"“postroom subscriber ask {self.list_name} --all”, or import them again with "
                "--verified."
            )


async def _followed(parts: Parts, order: _Order, report: Path | None, *, quiet: bool) -> _Result:
    with interruptible() as interrupt, opened(order.file) as source, _report(report) as refusals:
        people = People(iter(source), order.columns)
        with progress(f"Importing {order.file.name}", quiet=quiet) as tick:
            watch = _Watch(interrupt, refusals, source, tick)
            counts = await _bring_in(order.intake(parts), people, watch)
        return _Result(counts, watch, source.encoding, people.delimiter)


async def _bring_in(intake: Intake, people: People, watch: _Watch) -> Counts:
    try:
        return await bring_in(intake, people, watch)
    except StorageError:
        tell("The import stopped. Everybody added so far stays. Run it again to add the rest.")
        raise


@contextlib.contextmanager
def _report(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    with csv_file(path) as file:
        file.write(csv_text([REPORT_COLUMNS]))
        yield file


class _Watch:
    """Watches progress, refused rows and Ctrl-C."""

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

    def counted(self, counts: Counts) -> None:
        words = f"{counts.rows:,} rows, {counts.added:,} added, {counts.bad:,} bad"
        self._tick(self._source.read_bytes, self._source.size or None, words)


@dataclass
class _Result:
    counts: Counts
    watch: _Watch
    encoding: str
    delimiter: str

    def data(self, list_name: str, dry_run: bool) -> dict[str, Any]:
        return {
            "list": list_name,
            "rows": self.counts.rows,
            **asdict(self.counts),
            "dry_run": dry_run,
            "complete": not self.watch.interrupt.is_asked,
            "encoding": self.encoding,
            "delimiter": self.delimiter,
        }

    def lines(self, list_name: str, dry_run: bool, report: Path | None) -> Iterator[str]:
        counts = self.counts
        would = "would be " if dry_run else ""
        yield f"{counts.added:,} {would}added to {list_name}"
        yield f"{counts.already:,} already there"
        yield from self._changes(would)
        yield f"{counts.gone:,} unsubscribed earlier: not added again"
        yield f"{counts.bad:,} bad"
        delimiter = DELIMITER_NAMES.get(self.delimiter, self.delimiter)
        yield f"Read as {self.encoding}, delimiter {delimiter}."
        for row in self.watch.first_noted:
            yield f"  line {row.line}: {row.value}: {row.reason}"
        for row in self.watch.first_bad:
            yield f"  line {row.line}: {row.value or '(empty)'}: {row.reason}"
        hidden = counts.bad + counts.gone - len(self.watch.first_bad)
        if report:
            yield f"All refused rows are in {report}."
        elif hidden > 0:
            yield f"  and {hidden:,} more. See them all with --report FILE."

    def _changes(self, would: str) -> Iterator[str]:
        """What there is something to say about."""
        counts = self.counts
        lines = {
            "confirmed": counts.confirmed,
            "updated": counts.updated,
            "asked to confirm": counts.asked,
        }
        yield from (f"{count:,} {would}{what}" for what, count in lines.items() if count)
        if counts.twice:
            yield f"{counts.twice:,} more than once in the file"
        if counts.mended:
            yield f"{counts.mended:,} with a typing error in the address that was corrected"
        if counts.mistyped:
            yield f"{counts.mistyped:,} with a domain that looks mistyped"


def _declared(basis: str) -> str:
    try:
        return check_basis(basis, Purpose.KEEP)
    except BadInput as error:
        raise typer.BadParameter(str(error), param_hint="--basis") from error


def _wanted(pairs: list[str]) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for pair in pairs:
        name, _, heading = pair.partition("=")
        if not name or not heading:
            raise BadInput(f"“{pair}” does not name a column. Write it as in email=Mail.")
        wanted[name] = heading
    return wanted
