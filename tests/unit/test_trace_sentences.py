"""Every event that is logged at info or above has a sentence for people."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.domain.message import Status
from postroom.domain.trace_entry import FieldValue
from postroom.domain.trace_sentences import SENTENCES, EventFields, trace_sentence
from tests import syntax

SOURCE = Path(__file__).parents[2] / "src" / "postroom"
LOGGED = {"info", "warning", "error", "exception", "critical"}
# What follows a beginning that is written out, where the rest is a value.
BEGINNINGS = {"message_": [Status.COMPLETED, Status.CANCELLED]}


def events_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[name, *_]
            ):
                if level in LOGGED:
                    yield from names(name)


def names(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(name)):
            yield name
        case ast.IfExp(body=body, orelse=orelse):
            yield from names(body)
            yield from names(orelse)
        case ast.BinOp(left=ast.Constant(value=str(beginning))) if beginning in BEGINNINGS:
            yield from (beginning + end for end in BEGINNINGS[beginning])
        case _:
            yield f"(a name that is not written out: {ast.unparse(node)})"


def logged_events() -> set[str]:
    return {
        event
        for path in SOURCE.rglob("*.py")
        for event in events_in(syntax.parse(path.read_text(encoding="utf-8")))
    }


@pytest.mark.slow
def test_every_event_has_a_sentence() -> None:
    assert logged_events() - SENTENCES.keys() == set()


@pytest.mark.slow
def test_every_sentence_has_an_event() -> None:
    assert SENTENCES.keys() - logged_events() == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('log.info("a", x=1)', {"a"}),
        ('log.debug("a")', set()),
        ('log.error("a" if x else "b")', {"a", "b"}),
        ('log.info("message_" + status)', {"message_completed", "message_cancelled"}),
        ("log.warning(name)", {"(a name that is not written out: name)"}),
    ],
)
def test_the_walk_finds_events(source: str, found: set[str]) -> None:
    assert set(events_in(ast.parse(source))) == found


@pytest.mark.parametrize("event", sorted(SENTENCES))
def test_a_sentence_can_be_read_without_any_field(event: str) -> None:
    """A trace of another version may lack fields."""
    text = str(trace_sentence(event, {}))
    assert text[0].isupper() or text[0] in "0–"
    assert "{" not in text


def test_a_sentence_has_the_values() -> None:
    died: dict[str, FieldValue] = {"role": "sender", "code": -9, "restart_s": 0.2}
    text = "The sender process exited with code -9. It restarts in 0.2 s."
    assert str(trace_sentence("role_died", died)) == text
    buried = str(trace_sentence("item_buried", {"reason": "no_batch"}))
    assert buried.startswith("A work item became a dead letter. It names a batch")
    trouble: dict[str, FieldValue] = {
        "kind": "login",
        "server": "relay:25",
        "words": "535 no",
        "pause_s": 2.0,
    }
    assert "rejects the login: 535 no" in str(trace_sentence("provider_in_trouble", trouble))


def test_an_unknown_event_shows_its_name_and_fields() -> None:
    assert str(trace_sentence("brand_new", {"a": 1, "b": "x"})) == "brand new a=1, b=x"
    assert EventFields({"a": "no number"}).count("a") == 0
