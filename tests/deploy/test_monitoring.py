"""The dashboard and the alerts: well-formed, and about metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from postroom import metrics
from postroom.domain.breaker import MailHealth
from postroom.domain.outcome import Deferred, Rejected, Sent, Unknown
from postroom.records.names import DEAD_LETTER_QUEUE, STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from tests.clock import MovableClock

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
DOCS = Path(__file__).parents[2] / "docs" / "monitoring.md"
SELECTOR = re.compile(r"\b(postroom_[a-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'([a-z_]+)\s*(=|!=|=~|!~)\s*"([^"]*)"')
BY = re.compile(r"by\s*\(([^)]*)\)")


async def existing() -> dict[str, dict[str, set[str]]]:
    """Every series that the roles serve: by name, the values of each label."""
    registry = CollectorRegistry()
    health = MailHealth("relay:25")
    health.note([Sent(), Deferred(), Rejected(), Unknown()])
    names = {"reads", "writes", "batches", "queue_calls", "blob_calls"}
    collector = metrics.RoleCollector(
        "sender",
        calls=lambda: dict.fromkeys(names, 1),
        commits=lambda: {"group": 1},
        troubles=lambda: {"refused": 1, "in_doubt": 1},
        health=health,
        traces=lambda: {"written": 1, "dropped": 0},
    )
    registry.register(collector)
    clock = MovableClock()
    service = metrics.ServiceCollector(MemoryStorage(clock, STORAGE_NAMES), clock)
    await service.sample()
    registry.register(service)
    observe = metrics.request_times(registry)
    for area in ("admin", "api", "public", "webhooks", "static", "health"):
        for status in (200, 302, 404, 503):
            observe(area, status, 0.01)
    found: dict[str, dict[str, set[str]]] = {}
    for family in registry.collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def complaints(expression: str, known: dict[str, dict[str, set[str]]]) -> Iterator[str]:
    for name, matchers in SELECTOR.findall(expression):
        if name not in known:
            yield f"there is no {name}"
            continue
        for label, _how, value in MATCHER.findall(matchers):
            if value not in known[name].get(label, set()):
                yield f"{name} has no {label}={value}"
        for group in BY.findall(expression):
            wanted = {each.strip() for each in group.split(",")}
            if not wanted <= known[name].keys():
                yield f"{name} has no labels {wanted}"


def alert_rules() -> list[dict[str, Any]]:
    content = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in content["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return found


async def test_alerts_are_about_metrics_that_exist() -> None:
    known = await existing()
    for rule in alert_rules():
        assert list(complaints(rule["expr"], known)) == [], rule["alert"]
        assert SELECTOR.search(rule["expr"])
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == {"summary", "action"}


async def test_the_dashboard_is_about_metrics_that_exist() -> None:
    known = await existing()
    for panel in panels():
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert list(complaints(target["expr"], known)) == [], panel["title"]
            assert SELECTOR.search(target["expr"])


def test_the_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


async def test_everything_people_watch_is_on_the_dashboard_and_in_the_docs() -> None:
    shown = {
        name
        for panel in panels()
        for target in panel["targets"]
        for name, _ in SELECTOR.findall(target["expr"])
    }
    suffix = re.compile("_(bucket|count|sum)$")
    families = {suffix.sub("", name) for name in await existing()}
    assert families - {suffix.sub("", name) for name in shown} == set()
    assert families - set(re.findall("`(postroom_[a-z_]+)`", DOCS.read_text())) == set()


@pytest.mark.parametrize(
    "expression",
    [
        "postroom_nothing > 0",
        'postroom_mails_total{outcome="lost"}',
        'postroom_mails_total{queue="x"}',
        "sum by (queue) (postroom_mails_total)",
    ],
)
async def test_a_wrong_expression_is_found(expression: str) -> None:
    assert list(complaints(expression, await existing()))


def test_the_dead_letter_queue_is_called_so() -> None:
    assert any(DEAD_LETTER_QUEUE in rule["expr"] for rule in alert_rules())
