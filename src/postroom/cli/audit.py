"""`postroom audit`: who changed what, newest first."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from postroom.cli.output import AsJson, csv_file, echo_err, print_json_array, readable, write_csv
from postroom.cli.session import with_parts
from postroom.domain.audit import (
    ACTION_TEXTS,
    ACTOR_TEXTS,
    AUDIT_COLUMNS,
    KIND_TEXTS,
    OUTCOME_TEXTS,
    AuditEntry,
    AuditKind,
    AuditOutcome,
)
from postroom.domain.errors import BadInput
from postroom.records import audit as records
from postroom.records.audit import AuditFilter

if TYPE_CHECKING:
    from postroom.wiring import Parts

_AGO = re.compile(r"(\d{1,6})([mhd])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


@with_parts
async def audit(
    parts: Parts,
    person: Annotated[str, typer.Option(help="Part of a name, a key id or an IP address.")] = "",
    kind: Annotated[AuditKind | None, typer.Option(help="What was changed.")] = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="7d, 12h, 30m, or a date or time in UTC.")
    ] = "",
    before: Annotated[
        str, typer.Option(metavar="TIME", help="End of the period, in the same format.")
    ] = "",
    text: Annotated[str, typer.Option(help="Part of what was changed, or of its values.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 50,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write all of them to a file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who changed what, when and from where, including sign-ins. Newest first."""
    now = parts.clock.now()
    wanted = AuditFilter(
        person=person,
        kind=kind,
        since=parse_moment(since, now),
        before=parse_moment(before, now),
        text=text,
    )
    found = records.everything(parts.storage.tables, parts.clock, wanted)
    if csv:
        with csv_file(csv) as out:
            await write_csv(out, list(AUDIT_COLUMNS), _cells(found))
    elif as_json:
        await print_json_array(_limited(found, limit))
    else:
        is_empty = True
        async for entry in _limited(found, limit):
            is_empty = False
            for line in _lines(entry):
                typer.echo(line)
        if is_empty:
            echo_err("No entry matches.")


async def _limited(found: AsyncIterator[AuditEntry], limit: int) -> AsyncIterator[AuditEntry]:
    async for entry in found:
        yield entry
        limit -= 1
        if limit == 0:
            return


async def _cells(found: AsyncIterator[AuditEntry]) -> AsyncIterator[list[object]]:
    async for entry in found:
        values = msgspec.structs.asdict(entry)
        yield [values[name] for name in AUDIT_COLUMNS]


def _lines(entry: AuditEntry) -> list[str]:
    who = entry.actor or str(ACTOR_TEXTS[entry.actor_kind])
    place = f" ({entry.client})" if entry.client else ""
    what = f"{KIND_TEXTS[entry.kind]} {entry.name}".rstrip()
    lines = [f"{readable(entry.at)}  {who}{place}  {what}: {ACTION_TEXTS[entry.action]}"]
    if entry.outcome is not AuditOutcome.DONE:
        lines.append(f"  {OUTCOME_TEXTS[entry.outcome]}")
    if entry.before:
        lines.append(f"  before  {entry.before}")
    if entry.after:
        lines.append(f"  after   {entry.after}")
    return lines


def parse_moment(text: str, now: datetime) -> datetime | None:
    """A time in UTC, or how long ago; None if the text is empty."""
    text = text.strip()
    if not text:
        return None
    try:
        if ago := _AGO.fullmatch(text):
            return now - int(ago[1]) * _UNITS[ago[2]]
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise BadInput(f"{text} is not a time. Write 7d, 12h, 30m or 2026-11-20 09:00.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
