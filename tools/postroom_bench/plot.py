"""A small picture of how numbers grew over time, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 450
LEFT, RIGHT, TOP, BOTTOM = 92, 732, 112, 388  # the frame that the curves stay in
TICKS_MAX = 6
NEARLY = 1 - 1e-9  # three tenths are not three times a tenth

STYLE = """
    text { font: 13px system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #4b5563;
           font-variant-numeric: tabular-nums }
    .title { font-size: 17px; font-weight: 600; fill: #111827 }
    .grid { stroke: #e5e7eb } .axis { stroke: #6b7280 }
    .curve { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }
    .dashed { stroke-dasharray: 6 5 }"""


class Curve(NamedTuple):
    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False


class Mark(NamedTuple):
    """A moment worth a line across the picture."""

    name: str
    at: float


class Frame(NamedTuple):
    """How much the picture shows: from nothing to these."""

    seconds: float
    number: float

    def place(self, at: float, number: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * at / self.seconds
        return x, BOTTOM - (BOTTOM - TOP) * number / self.number


def plot(title: str, subtitle: str, curves: Sequence[Curve], mark: Mark) -> str:
    """The curves in one frame, with seconds to the right and numbers upwards."""
    points = [point for curve in curves for point in curve.points]
    times = ticks(max(mark.at, *(at for at, _ in points)))
    numbers = ticks(max(TICKS_MAX - 1, *(number for _, number in points)))  # whole ones
    frame = Frame(times[-1], numbers[-1])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' width="{WIDTH}" height="{HEIGHT}">',
        f"<title>{escape(title)}</title>\n<style>{STYLE}\n</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text class="title" x="24" y="34">{escape(title)}</text>',
        f'<text x="24" y="56">{escape(subtitle)}</text>',
        *_axes(frame, times, numbers),
        *(line for curve in curves for line in _curve(frame, curve)),
        *_mark(frame, mark),
        *_legend(curves),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def ticks(most: float) -> list[float]:
    """Round numbers from nothing to at least the most there is."""
    rough = max(most, 1e-9) / (TICKS_MAX - 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * NEARLY)
    count = math.ceil(most / step * NEARLY) or 1
    return [step * number for number in range(count + 1)]


def _axes(frame: Frame, times: Sequence[float], numbers: Sequence[float]) -> Iterator[str]:
    for number in numbers:
        _, y = frame.place(0, number)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 10}" y="{y + 4.5:.1f}" text-anchor="end">{number:,.0f}</text>'
    for at in times:
        x, _ = frame.place(at, 0)
        yield f'<line class="axis" x1="{x:.1f}" y1="{BOTTOM}" x2="{x:.1f}" y2="{BOTTOM + 5}"/>'
        yield f'<text x="{x:.1f}" y="{BOTTOM + 22}" text-anchor="middle">{at:,.4g}</text>'
    yield f'<line class="axis" x1="{LEFT}" y1="{BOTTOM}" x2="{RIGHT}" y2="{BOTTOM}"/>'
    middle = (LEFT + RIGHT) / 2
    words = "seconds since the message was due"
    yield f'<text x="{middle}" y="{BOTTOM + 46}" text-anchor="middle">{words}</text>'
    yield f'<text x="{LEFT - 10}" y="{TOP - 18}" text-anchor="end">recipients</text>'


def _mark(frame: Frame, mark: Mark) -> Iterator[str]:
    x, _ = frame.place(mark.at, 0)
    yield f'<line class="axis" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{BOTTOM}"/>'
    yield f'<text x="{x - 8:.1f}" y="{BOTTOM - 12}" text-anchor="end">{escape(mark.name)}</text>'


def _curve(frame: Frame, curve: Curve) -> Iterator[str]:
    places = " ".join(
        f"{x:.1f},{y:.1f}" for x, y in (frame.place(*point) for point in curve.points)
    )
    if not curve.is_dashed:
        last, _ = frame.place(*curve.points[-1])
        area = f"{LEFT},{BOTTOM} {places} {last:.1f},{BOTTOM}"
        yield f'<polygon points="{area}" fill="{curve.colour}" fill-opacity="0.09"/>'
    kind = "curve dashed" if curve.is_dashed else "curve"
    yield f'<polyline class="{kind}" points="{places}" stroke="{curve.colour}"/>'


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    y = TOP - 22
    for place, curve in enumerate(curves):
        x = RIGHT - 140 * (len(curves) - place)
        kind = "curve dashed" if curve.is_dashed else "curve"
        yield f'<path class="{kind}" d="M{x},{y} h30" stroke="{curve.colour}"/>'
        yield f'<text x="{x + 38}" y="{y + 4.5}">{escape(curve.name)}</text>'
