"""The picture of a run: readable by any program that reads XML, and nothing outside its frame."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from postroom_bench.arrivals import sampled
from postroom_bench.installation import is_of_share
from postroom_bench.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Curve, Mark, plot, ticks

SVG = "{http://www.w3.org/2000/svg}"
RUNS = {
    "one mail": [(0.0, 0), (0.05, 1)],
    "a little more": [(0.0, 0), (3.0001, 20_001)],
    "slow": [(0.0, 0), (60.0, 3), (3599.0, 7)],
    "a million": [(0.0, 0), *((n / 10, n * 2500) for n in range(1, 401))],
}


def drawn(points: list[tuple[float, int]], completed_s: float) -> ElementTree.Element:
    curves = [
        Curve("mails <arrived>", "#1d4ed8", points),
        Curve("fanned out", "#b45309", points[:2], is_dashed=True),
    ]
    text = plot("Mails & more", "one < two", curves, Mark("completed", completed_s))
    return ElementTree.fromstring(text)


@pytest.mark.parametrize("points", RUNS.values(), ids=RUNS)
def test_all_points_lie_within_the_frame(points: list[tuple[float, int]]) -> None:
    picture = drawn(points, points[-1][0] * 1.1)
    shapes = [*picture.iter(f"{SVG}polyline"), *picture.iter(f"{SVG}polygon")]
    assert len(shapes) == 3
    for shape in shapes:
        for place in shape.attrib["points"].split():
            x, y = map(float, place.split(","))
            assert LEFT <= x <= RIGHT
            assert TOP <= y <= BOTTOM
    curve = next(picture.iter(f"{SVG}polyline")).attrib["points"].split()
    assert len(curve) == len(points)


@pytest.mark.parametrize("points", RUNS.values(), ids=RUNS)
def test_no_two_labels_of_an_axis_are_the_same(points: list[tuple[float, int]]) -> None:
    texts = list(drawn(points, points[-1][0]).iter(f"{SVG}text"))
    assert {"Mails & more", "one < two", "mails <arrived>", "completed"} < {t.text for t in texts}
    for text in texts:
        assert 0 < float(text.attrib["x"]) < WIDTH
        assert 0 < float(text.attrib["y"]) < HEIGHT
    for anchor in ("end", "middle"):
        labels = [str(t.text) for t in texts if t.get("text-anchor") == anchor]
        numbers = [label for label in labels if re.fullmatch(r"[\d,.]+", label)]
        assert len(numbers) == len(set(numbers)) >= 2


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (5, [0, 1, 2, 3, 4, 5]),
        (20_000, [0, 5000, 10_000, 15_000, 20_000]),
        (20_001, [0, 5000, 10_000, 15_000, 20_000, 25_000]),
        (0.3, pytest.approx([0, 0.1, 0.2, 0.3])),
    ],
)
def test_an_axis_is_marked_at_round_numbers(most: float, expected: list[float]) -> None:
    assert ticks(most) == expected


def test_a_time_line_has_its_first_and_its_last_point() -> None:
    moments = [n / 100 for n in range(95)]
    points = sampled(moments)
    assert (points[0], points[-1]) == ((0.0, 1), (0.94, 95))
    assert len(points) <= 11
    assert sampled([]) == []


@pytest.mark.parametrize("share", [0.0, 0.05, 0.1, 0.5])
def test_a_share_is_as_large_as_asked_and_evenly_spread(share: float) -> None:
    chosen = [number for number in range(1000) if is_of_share(number, share)]
    assert len(chosen) == 1000 * share
    gaps = [after - before for before, after in pairwise(chosen)]
    assert max(gaps, default=0) - min(gaps, default=0) <= 1
