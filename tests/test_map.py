"""The map of the path is true: postroom/__init__.py and the stages in flow/ tell the same story.

What the map (the docstring of src/postroom/__init__.py) must hold: for every module of flow/ one
line with its number and its file, in the order of the path. Other lines are free.

    3   flow/fan_out.py   turns one page of the audience into deliveries
    4   flow/send.py      …
    4a  flow/render.py    …

What a stage's docstring must hold: it begins with `Stage 3 of 7, fan out:` (the name as in the
file, with blanks), and has a `Before:`, an `After:`, a `Dies half-way:` and a `Commit point:`.
`Stage 4a, render:` and `Stage ∞, sweep:` may go without the `of 7`.

A module of flow/ that is no stage begins with `Beside the path, steer:`, has the same four words,
and stands on the map with its file and without a number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import syntax

PACKAGE = Path(__file__).parents[1] / "src" / "postroom"

# The path in its order; a stage may be missing while it is not built.
STAGES = {
    "subscribe": "0",
    "compose": "1",
    "schedule": "2",
    "fan_out": "3",
    "send": "4",
    "render": "4a",
    "feedback": "5",
    "report": "6",
    "archive": "7",
    "sweep": "∞",
}
OFF_THE_COUNT = {"render", "sweep"}
WORDS = ["Before:", "After:", "Dies half-way:", "Commit point:"]

FILE = re.compile(r"flow/(\w+)\.py")
NUMBER = re.compile(r"(?<!\S)(\d+[a-z]?|∞)(?!\S)")


def untrue(package: Path) -> list[str]:
    """One sentence for every place where the map and the modules of flow/ differ."""
    names = sorted(path.stem for path in (package / "flow").glob("*.py") if path.stem != "__init__")
    stages = [name for name in STAGES if name in names]
    beside = [name for name in names if name not in STAGES]
    return [
        *wrong_on_the_map(docstring(package / "__init__.py"), stages, beside),
        *(what for name in names for what in wrong_in_module(package, name)),
    ]


def docstring(path: Path) -> str:
    return ast.get_docstring(syntax.parse(path.read_text(encoding="utf-8"))) or ""


def wrong_on_the_map(text: str, stages: list[str], beside: list[str]) -> Iterator[str]:
    lines = {found[1]: line for line in text.splitlines() if (found := FILE.search(line))}
    shown = [name for name in lines if name not in beside]
    if shown != stages:
        yield f"the map shows {', '.join(shown) or 'nothing'}; flow/ has {', '.join(stages)}"
    yield from (f"the map leaves out flow/{name}.py" for name in beside if name not in lines)
    for name in stages:
        number = NUMBER.search(lines.get(name, ""))
        if name in lines and (not number or number[1] != STAGES[name]):
            yield f"the map does not give flow/{name}.py the number {STAGES[name]}"


def wrong_in_module(package: Path, name: str) -> Iterator[str]:
    text = docstring(package / "flow" / f"{name}.py")
    if not re.match(rf"{opening(name)}, {name.replace('_', ' ')}: \S", text):
        yield f"flow/{name}.py does not begin with its place on the path"
    for word in WORDS:
        if not re.search(rf"{word}\s+\S", text):
            yield f"flow/{name}.py does not say “{word} …”"


def opening(name: str) -> str:
    """How the docstring of this module begins, as a pattern."""
    if name not in STAGES:
        return "Beside the path"
    return f"Stage {STAGES[name]}" + ("( of 7)?" if name in OFF_THE_COUNT else " of 7")


def test_the_map_and_the_stages_tell_the_same_story() -> None:
    found = untrue(PACKAGE)
    assert not found, "\n".join(found)


def test_the_path_has_stages() -> None:
    assert (PACKAGE / "flow" / "send.py").exists()


# --- The check can fail -----------------------------------------------------------------------

MAP = "The path:\n\n    3   flow/fan_out.py  deals\n    4   flow/send.py  sends\n"
FAN_OUT = (
    "Stage 3 of 7, fan out: deals.\n\nBefore: a.   After: b.\nDies half-way: c.\nCommit point: d."
)
SEND = FAN_OUT.replace("3", "4").replace("fan out", "send")


def build(tmp_path: Path, the_map: str, **stages: str) -> list[str]:
    (tmp_path / "flow").mkdir()
    (tmp_path / "__init__.py").write_text(f'"""{the_map}"""\n', encoding="utf-8")
    (tmp_path / "flow" / "__init__.py").write_text('"""The stages."""\n', encoding="utf-8")
    for name, text in stages.items():
        (tmp_path / "flow" / f"{name}.py").write_text(f'"""{text}"""\n', encoding="utf-8")
    return untrue(tmp_path)


def test_a_true_map_passes(tmp_path: Path) -> None:
    assert build(tmp_path, MAP, fan_out=FAN_OUT, send=SEND) == []


def test_a_stage_that_is_not_on_the_map_is_found(tmp_path: Path) -> None:
    stages = {"fan_out": FAN_OUT, "send": SEND, "report": SEND.replace("4", "7")}
    found = build(tmp_path, MAP, **stages)
    assert "the map shows fan_out, send; flow/ has fan_out, send, report" in found


def test_a_stage_on_the_map_without_a_file_is_found(tmp_path: Path) -> None:
    assert build(tmp_path, MAP, send=SEND) == ["the map shows fan_out, send; flow/ has send"]


def test_the_order_of_the_map_counts(tmp_path: Path) -> None:
    turned = "\n".join(reversed(MAP.splitlines()))
    (found,) = build(tmp_path, turned, fan_out=FAN_OUT, send=SEND)
    assert "the map shows send, fan_out" in found


def test_a_wrong_number_on_the_map_is_found(tmp_path: Path) -> None:
    wrong = MAP.replace("4   flow", "5   flow")
    (found,) = build(tmp_path, wrong, fan_out=FAN_OUT, send=SEND)
    assert found == "the map does not give flow/send.py the number 4"


STEER = SEND.replace("Stage 4 of 7, send", "Beside the path, steer")


def test_a_module_beside_the_path_stands_on_the_map_without_a_number(tmp_path: Path) -> None:
    the_map = MAP + "\n    flow/steer.py  pauses\n"
    assert build(tmp_path, the_map, fan_out=FAN_OUT, send=SEND, steer=STEER) == []


def test_a_module_beside_the_path_that_is_not_on_the_map_is_found(tmp_path: Path) -> None:
    (found,) = build(tmp_path, MAP, fan_out=FAN_OUT, send=SEND, steer=STEER)
    assert found == "the map leaves out flow/steer.py"


def test_a_module_without_a_place_is_found(tmp_path: Path) -> None:
    found = build(tmp_path, MAP, fan_out=FAN_OUT, send=SEND, shared="Things.")
    assert "flow/shared.py does not begin with its place on the path" in found


@pytest.mark.parametrize("word", [*WORDS, "Stage 4 of 7", "send:"])
def test_a_stage_that_leaves_out_a_word_is_found(tmp_path: Path, word: str) -> None:
    (found,) = build(tmp_path, MAP, fan_out=FAN_OUT, send=SEND.replace(word, ""))
    assert found.startswith("flow/send.py does not")


def test_a_stage_off_the_count_may_leave_out_of_seven(tmp_path: Path) -> None:
    sweep = SEND.replace("Stage 4 of 7, send", "Stage ∞, sweep")
    assert build(tmp_path, "∞ flow/sweep.py", sweep=sweep) == []
