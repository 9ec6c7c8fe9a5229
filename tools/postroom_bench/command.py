"""`postroom bench`: how fast this machine mails, everything included."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from postroom.cli.output import AsJson, show
from postroom.cli.session import in_loop
from postroom.domain.attachment import ATTACHED_BYTES_MAX
from postroom.domain.errors import BadInput
from postroom_bench.plan import MAIL_BYTES_MIN, TEMPFAIL_SHARE_MAX, Plan, Way, WrittenAs

if TYPE_CHECKING:
    from postroom_bench.baselines import Baseline

Recipients = Annotated[int, typer.Option(min=1, help="People on the list.")]
Senders = Annotated[int, typer.Option(min=1, max=64, help="Sender processes.")]
Lanes = Annotated[int, typer.Option(min=1, max=256, help="Connections a sender.")]
Window = Annotated[int, typer.Option(min=1, max=100, help="Mails on a line (BDAT).")]
Chunking = Annotated[bool, typer.Option(help="The sink offers CHUNKING.")]
Pipelining = Annotated[bool, typer.Option(help="The sink offers PIPELINING.")]
DelayMs = Annotated[float, typer.Option(min=0, help="Before every reply.")]
Storage = Annotated[
    str, typer.Option(help="Such as azure:emulator. Default: SQLite in a temporary folder.")
]
Transport = Annotated[Way, typer.Option(help="Where mails go: to the sink, or into storage.")]
TempfailShare = Annotated[
    float,
    typer.Option(min=0, max=TEMPFAIL_SHARE_MAX, help="Of the recipients, refused once by 450."),
]
Tls = Annotated[bool, typer.Option("--tls", help="STARTTLS, with a certificate of this run.")]
Size = Annotated[
    int, typer.Option("--size", min=MAIL_BYTES_MIN, max=1 << 20, help="Bytes of a mail.")
]
Traces = Annotated[str, typer.Option(help="The level of traces; off for none.")]
Written = Annotated[
    WrittenAs, typer.Option(help="The body: HTML, a newsletter in blocks, one with a condition.")
]
AttachmentBytes = Annotated[
    int, typer.Option(min=0, max=ATTACHED_BYTES_MAX, help="Of one attached file; 0 for none.")
]
Baselines = Annotated[
    bool, typer.Option(help="Then drive smtp-source, if it is here, and a plain script.")
]
Svg = Annotated[Path | None, typer.Option(help="Draw the timeline of the run into this file.")]
CountCalls = Annotated[
    bool, typer.Option("--count-calls", help="Show the calls of storage by kind.")
]
Lists = Annotated[
    int, typer.Option(min=1, max=1000, help="Divide the recipients: a message each, at once.")
]
Archived = Annotated[
    int, typer.Option(min=0, max=100_000, help="Send this many small messages first.")
]
Suppressed = Annotated[
    int, typer.Option(min=0, help="Other addresses that are on the suppression list.")
]
Attributes = Annotated[
    int, typer.Option(min=0, max=50, help="Of each person; the first is the name in every mail.")
]
Beside = Annotated[
    bool, typer.Option("--beside", help="Time a small message that is due meanwhile.")
]
FanOutFirst = Annotated[
    bool, typer.Option("--fan-out-first", help="Senders start when all is fanned out.")
]
Limited = Annotated[float, typer.Option(min=0, help="Mails a second, by a rate limit.")]
DomainLimited = Annotated[
    float, typer.Option(min=0, help="The same, for the domain of the recipients.")
]
Pages = Annotated[bool, typer.Option("--pages", help="Time the web meanwhile.")]
SignUps = Annotated[
    bool, typer.Option("--sign-ups", help="Time confirmations, idle and meanwhile.")
]


def bench(
    context: typer.Context,
    recipients: Recipients = 20_000,
    lists: Lists = 1,
    archived: Archived = 0,
    suppressed: Suppressed = 0,
    attributes: Attributes = 1,
    beside: Beside = False,
    fan_out_first: FanOutFirst = False,
    senders: Senders = 1,
    lanes: Lanes = 4,
    window: Window = 8,
    chunking: Chunking = True,
    pipelining: Pipelining = True,
    delay_ms: DelayMs = 0.0,
    storage: Storage = "",
    transport: Transport = Way.SMTP,
    tempfail_share: TempfailShare = 0.0,
    tls: Tls = False,
    mail_bytes: Size = 4096,
    written_as: Written = WrittenAs.HTML,
    attachment_bytes: AttachmentBytes = 0,
    limit: Limited = 0.0,
    domain_limit: DomainLimited = 0.0,
    traces: Traces = "info",
    baselines: Baselines = True,
    svg: Svg = None,
    count_calls: CountCalls = False,
    pages: Pages = False,
    sign_ups: SignUps = False,
    as_json: AsJson = False,
) -> None:
    """Mail a message to a sink on this machine, in a temporary folder, and count.

    Every run also checks that nobody was lost and nobody was mailed twice. With --pages, the admin
    pages and the web service are timed instead, while such a message goes out. With --sign-ups, 500
    people a second sign up for 20 seconds, and the time until each has a confirmation is measured,
    first with nothing else to do and then while such a message goes out.
    """
    if sign_ups:
        _bench_sign_ups(recipients, as_json)
        return
    if pages:
        _bench_pages(recipients, as_json)
        return
    # The options of a plan have the names of its fields.
    plan = Plan(**{name: context.params[name] for name in Plan.__struct_fields__})
    _bench_mails(plan, svg, count_calls, as_json)


def _bench_mails(plan: Plan, svg: Path | None, count_calls: bool, as_json: bool) -> None:
    from postroom_bench.measure import measure

    report = in_loop(measure(plan, _say if not as_json else lambda _: None))
    figures = report.figures
    rows = msgspec.to_builtins(figures)
    calls = rows.pop("calls")
    if count_calls:
        rows |= calls
    show(rows, as_json, *_table(rows), *map(_compared, figures.baselines))
    if svg:
        _write(svg, report.picture)
    if figures.lost or figures.twice:
        raise typer.Exit(1)


def _bench_pages(people: int, as_json: bool) -> None:
    from postroom_bench.pages import measure_pages

    figures = in_loop(measure_pages(people, _say if not as_json else lambda _: None))
    lines = [
        f"{each.what:>12}  {each.calls:>6,} calls  {each.per_s:>6,.0f}/s  median "
        f"{each.median_ms:>6.1f} ms  p95 {each.p95_ms:>6.1f} ms  worst {each.worst_ms:>6.1f} ms"
        for each in figures.timings
    ]
    load = f"{figures.sent_after - figures.sent_before:,} mails went out meanwhile"
    peaks = ", ".join(f"{role} {peak:.0f}" for role, peak in figures.peaks_mb)
    memory = f"At most {figures.together_mb:.0f} MB of memory together: {peaks}."
    show(msgspec.to_builtins(figures), as_json, *lines, f"{load}.", memory)


def _bench_sign_ups(people: int, as_json: bool) -> None:
    from postroom_bench.sign_ups import measure_sign_ups

    found = in_loop(measure_sign_ups(people, _say if not as_json else lambda _: None))
    lines = [
        f"beside {each.beside}: {each.answered_per_s:,.0f} sign-ups/s; {each.handed_over:,} of "
        f"{each.sign_ups:,} confirmations, median {each.median_s:.1f} s, p95 {each.p95_s:.1f} s, "
        f"worst {each.worst_s:.1f} s, {each.twice:,} twice"
        for each in found
    ]
    show(msgspec.to_builtins(found), as_json, *lines)
    if any(each.handed_over < each.sign_ups for each in found):
        raise typer.Exit(1)


def _say(words: str) -> None:
    typer.echo(words, err=True)


def _write(path: Path, picture: str) -> None:
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.") from error


def _table(rows: dict[str, Any]) -> list[str]:
    return [
        f"{name.replace('_', ' '):>18}  {_figure(value)}"
        for name, value in rows.items()
        if isinstance(value, int | float)
    ]


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _compared(other: Baseline) -> str:
    return (
        f"{other.ratio:,.2f} times {other.name}: {other.mails_per_s:,.0f} mails/s, "
        f"{other.connections} connections, {other.mails:,} mails of {other.mail_bytes:,} bytes"
    )
