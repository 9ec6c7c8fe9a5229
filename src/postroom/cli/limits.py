"""`postroom limit …`: rate limits for all senders combined; applied within seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.output import AsJson, show
from postroom.cli.session import act_of, work
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.errors import NotFound
from postroom.domain.rate_limit import (
    RateLimit,
    check_limit,
    limit_name,
    limit_text,
    rate_text,
    whom,
)
from postroom.domain.texts import ngettext
from postroom.records import rate_limits
from postroom.records.rate_limits import LimitRow

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Rate limits for all senders combined.")

Domain = Annotated[
    str,
    typer.Option(metavar="DOMAIN", help="Only emails to this domain. Default: all emails."),
]


@app.command("set")
def set_(
    domain: Domain = "",
    mails_per_second: Annotated[
        float | None, typer.Option("--mails-per-second", help="0.01 or more.")
    ] = None,
    connections: Annotated[
        int | None, typer.Option("--connections", help="Connections open at the same time.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set the limit, replacing the previous one."""
    limit = check_limit(limit_name(domain), mails_per_second, connections)

    async def job(parts: Parts) -> None:
        after = values_text({"limit": limit_text(limit)})
        act = act_of(parts)
        async with act.audited(AuditKind.LIMIT, limit.name, AuditAction.CHANGE, after=after):
            await rate_limits.set_limit(act.tables, limit)

    work(job)
    show(_data(limit), as_json, f"{_text(limit)}. Senders apply it within a few seconds.")


@app.command("show")
def show_(as_json: AsJson = False) -> None:
    """Show all limits and how many senders share each."""
    found = work(lambda parts: rate_limits.all_limits(parts.storage.tables))
    data = [_data(row.limit(name)) | {"senders": len(row.shares)} for name, row in found.items()]
    lines = [_line(row.limit(name), row) for name, row in found.items()]
    hint = "There are no limits. Emails are sent as fast as the server accepts them."
    show(data, as_json, *lines, if_empty=hint)


@app.command("clear")
def clear(domain: Domain = "", as_json: AsJson = False) -> None:
    """Remove the limit."""
    name = limit_name(domain)

    async def job(parts: Parts) -> None:
        act = act_of(parts)
        async with act.audited(AuditKind.LIMIT, name, AuditAction.CLEAR):
            if not await rate_limits.clear_limit(act.tables, name):
                text = f"There is no limit for {whom(name)}. “postroom limit show” lists all."
                raise NotFound(text)

    work(job)
    show({"name": name}, as_json, f"The limit for {whom(name)} was removed.")


def _line(limit: RateLimit, row: LimitRow) -> str:
    if not row.is_readable:
        advice = "cannot be read, so no email is sent. Set it again, or clear it."
        return f"{whom(limit.name)}: {advice}".capitalize()
    senders = ngettext("{count} sender now", "{count} senders now", len(row.shares))
    return f"{_text(limit)} ({senders})"


def _text(limit: RateLimit) -> str:
    parts = [f"{rate_text(limit.mails_per_s)} a second"] * bool(limit.mails_per_s)
    parts += [f"{limit.connections:,} connections"] * bool(limit.connections)
    return f"{whom(limit.name)}: {' over at most '.join(parts)}".capitalize()


def _data(limit: RateLimit) -> dict[str, Any]:
    return {
        "name": limit.name,
        "mails_per_second": limit.mails_per_s or None,
        "connections": limit.connections or None,
    }
