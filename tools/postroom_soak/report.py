"""The report of a soak: JSON for programs, text and curves for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from postroom_bench.plot import ticks
from postroom_soak.roles import RunningRole
from postroom_soak.verdict import FaultTime, Verdict

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 360, 60, 40, 300
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed")


def write_report(folder: Path, verdict: Verdict, roles: Sequence[RunningRole], began: float) -> str:
    """Write soak.json, soak.txt and memory.svg; return the text."""
    text = "\n".join(as_text(verdict)) + "\n"
    (folder / "soak.txt").write_text(text)
    data = msgspec.to_builtins(verdict) | {"mistakes": verdict.mistakes}
    (folder / "soak.json").write_bytes(msgspec.json.format(msgspec.json.encode(data)))
    (folder / "memory.svg").write_text(memory_svg(roles, verdict.faults, began))
    return text


def as_text(verdict: Verdict) -> Iterator[str]:
    yield f"Soak of {verdict.minutes:g} minutes, {verdict.people:,} people."
    yield (
        f"{verdict.sign_ups:,} sign-ups, {verdict.unsubscribed:,} unsubscribed, "
        f"{verdict.imported:,} imported, {verdict.failed_calls:,} calls failed and were repeated."
    )
    yield "Faults: " + (", ".join(each.name for each in verdict.faults) or "none")
    for name in verdict.not_run:
        yield f"Not run: {name}"
    yield ""
    yield f"{'message':19} list    doubt    audience    sent  held failed skipped doubts lost twice"
    for each in verdict.messages:
        yield (
            f"{each.ref:19} {each.list_name:7} {each.on_doubt:7} {each.audience:>9,} "
            f"{each.sent:>7,} {each.held:>5} {each.failed:>6} {each.skipped:>7} {each.doubts:>6} "
            f"{each.lost:>4} {each.twice:>5}"
        )
    sent = sum(each.sent for each in verdict.messages)
    held = sum(each.held for each in verdict.messages)
    twice = sum(each.twice for each in verdict.messages)
    lost = sum(each.lost for each in verdict.messages)
    yield ""
    yield f"In all: {sent:,} sent, {lost:,} lost, {twice:,} second copies (resend), {held:,} held."
    for trend in verdict.memory:
        yield f"Memory of {trend}"
    yield "Logged: " + ", ".join(f"{name} {n}" for name, n in sorted(verdict.log_events.items()))
    yield ""
    for mistake in verdict.mistakes:
        yield f"WRONG  {mistake}"
    yield "FAILED" if verdict.mistakes else "PASSED"


def memory_svg(roles: Sequence[RunningRole], faults: Sequence[FaultTime], began: float) -> str:
    """The memory of every process over time, one colour a role."""
    points = [sample for each in roles for sample in each.memory]
    times = ticks(max((sample.at_s for sample in points), default=1.0))
    sizes = ticks(max((sample.mb for sample in points), default=1.0))

    def place(at_s: float, mb: float) -> str:
        x = LEFT + (WIDTH - LEFT - 20) * at_s / times[-1]
        y = BOTTOM - (BOTTOM - TOP) * mb / sizes[-1]
        return f"{x:.1f},{y:.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>Memory of each role</title>",
        "<style>text { font: 12px system-ui, sans-serif; fill: #4b5563 }</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for mb in sizes:
        y = place(0, mb).split(",")[1]
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y}" y2="{y}" stroke="#e5e7eb"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y}" text-anchor="end">{mb:,.0f} MB</text>')
    for at_s in times:
        x = place(at_s, 0).split(",")[0]
        lines.append(f'<text x="{x}" y="{BOTTOM + 18}" text-anchor="middle">{at_s:,.0f} s</text>')
    for fault in faults:
        x = place(fault.begun_at.timestamp() - began, 0).split(",")[0]
        lines.append(f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{BOTTOM}" stroke="#fca5a5"/>')
    names = sorted({each.name for each in roles})
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        lines.append(f'<text x="{LEFT + 140 * number}" y="20" style="fill:{colour}">{name}</text>')
        for each in roles:
            if each.name == name and each.memory:
                curve = " ".join(place(*sample) for sample in each.memory)
                lines.append(f'<polyline points="{curve}" fill="none" stroke="{colour}"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"
