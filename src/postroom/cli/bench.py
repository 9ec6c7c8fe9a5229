"""`postroom bench`: how fast this machine mails, everything included."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from postroom.cli.output import AsJson, show
from postroom.cli.session import in_loop


def bench(
    recipients: Annotated[int, typer.Option(min=1, help="People on the list.")] = 20_000,
    senders: Annotated[int, typer.Option(min=1, max=64, help="Sender processes.")] = 1,
    lanes: Annotated[int, typer.Option(min=1, max=256, help="Connections a sender.")] = 4,
    window: Annotated[int, typer.Option(min=1, max=100, help="Mails on a line (BDAT).")] = 8,
    chunking: Annotated[bool, typer.Option(help="The sink offers CHUNKING.")] = True,
    delay_ms: Annotated[float, typer.Option(min=0, help="Before every reply.")] = 0.0,
    pages: Annotated[bool, typer.Option("--pages", help="Time the web meanwhile.")] = False,
    as_json: AsJson = False,
) -> None:
    """Mail a message to a sink on this machine, in a temporary folder, and count.

    Every run also checks that nobody was lost and nobody was mailed twice. With --pages, the admin
    pages and the web service are timed instead, while such a message goes out.
    """
    if pages:
        _bench_pages(recipients, as_json)
        return
    from postroom.bench.measure import Plan, measure

    plan = Plan(
        recipients=recipients,
        senders=senders,
        lanes=lanes,
        window=window,
        chunking=chunking,
        delay_ms=delay_ms,
    )
    figures = in_loop(measure(plan, _say if not as_json else lambda _: None))
    show(msgspec.to_builtins(figures), as_json, _table(figures))
    if figures.lost or figures.twice:
        raise typer.Exit(1)


def _bench_pages(people: int, as_json: bool) -> None:
    from postroom.bench.pages import measure_pages

    figures = in_loop(measure_pages(people, _say if not as_json else lambda _: None))
    lines = [
        f"{each.what:>12}  {each.calls:>6,} calls  {each.per_s:>6,.0f}/s  median "
        f"{each.median_ms:>6.1f} ms  p95 {each.p95_ms:>6.1f} ms  worst {each.worst_ms:>6.1f} ms"
        for each in figures.timings
    ]
    load = f"{figures.sent_after - figures.sent_before:,} mails went out meanwhile"
    memory = f"the web role had at most {figures.web_peak_mb:.0f} MB"
    show(msgspec.to_builtins(figures), as_json, *lines, f"{load}; {memory}.")


def _say(words: str) -> None:
    typer.echo(words, err=True)


def _table(figures: object) -> str:
    rows = msgspec.to_builtins(figures)
    return "\n".join(f"{name.replace('_', ' '):>18}  {_figure(rows[name])}" for name in rows)


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
