"""The soak can fail: what it counts as wrong, and the log lines that it expects."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from postroom_bench.installation import Process
from postroom_soak.faults import FAULTS
from postroom_soak.report import as_text, memory_svg
from postroom_soak.roles import LogLine, MemorySample, RunningRole
from postroom_soak.verdict import (
    FaultTime,
    MemoryTrend,
    MessageVerdict,
    Verdict,
    memory_trends,
    unexpected,
)

SOURCE = Path(__file__).parents[2] / "src"
NOW = datetime(2026, 11, 18, tzinfo=UTC)
GOOD = MessageVerdict(
    ref="1",
    list_name="steady",
    on_doubt="hold",
    status="completed",
    audience=10,
    sent=9,
    failed=0,
    held=1,
    skipped=0,
    doubts=1,
    balances=True,
    lost=0,
    twice=0,
    after_leaving=0,
)
PASSED = Verdict(
    minutes=1,
    people=10,
    messages=[GOOD],
    faults=[],
    not_run=[],
    sign_ups=1,
    confirmations_lost=0,
    imported=1,
    imported_missing=0,
    unsubscribed=1,
    failed_calls=0,
    exits=[],
    memory=[],
    unexpected=[],
    log_events={},
)


def test_a_soak_without_mistakes_passes() -> None:
    assert PASSED.mistakes == []
    assert list(as_text(PASSED))[-1] == "PASSED"


@pytest.mark.parametrize(
    "change",
    [
        {"lost": 1},
        {"twice": 1},
        {"on_doubt": "resend", "twice": 2},
        {"balances": False},
        {"status": "processing"},
        {"after_leaving": 1},
    ],
)
def test_a_message_gone_wrong_fails_it(change: dict[str, Any]) -> None:
    bad = msgspec.structs.replace(GOOD, **change)
    verdict = msgspec.structs.replace(PASSED, messages=[GOOD, bad])
    assert len(verdict.mistakes) == 1
    assert list(as_text(verdict))[-1] == "FAILED"


@pytest.mark.parametrize(
    "change",
    [
        {"confirmations_lost": 1},
        {"imported_missing": 1},
        {"sign_ups": 0},
        {"messages": []},
        {"exits": ["web-0 ended by itself"]},
        {"memory": [MemoryTrend("web-0", 300.0, 60.0, 90.0)]},
        {"unexpected": ["web-0 error page_failed"]},
    ],
)
def test_anything_else_gone_wrong_fails_it(change: dict[str, Any]) -> None:
    assert msgspec.structs.replace(PASSED, **change).mistakes


def test_a_second_copy_of_a_delivery_in_doubt_is_no_mistake_under_resend() -> None:
    resent = msgspec.structs.replace(GOOD, on_doubt="resend", twice=1)
    assert msgspec.structs.replace(PASSED, messages=[resent]).mistakes == []


def test_a_log_line_is_expected_only_while_its_fault_can_be_heard() -> None:
    fault = next(each for each in FAULTS if each.name == "disk full")
    when = FaultTime(fault.name, NOW, NOW + timedelta(seconds=10))

    def line(event: str, after_s: float) -> LogLine:
        at = (NOW + timedelta(seconds=after_s)).isoformat()
        return LogLine(at, "web-0", "warning", event, "…")

    assert unexpected([line("storage_failed", 5)], [(fault, when)]) == []
    assert unexpected([line("storage_failed", -5)], [(fault, when)])
    assert unexpected([line("storage_failed", 500)], [(fault, when)])
    assert unexpected([line("page_failed", 5)], [(fault, when)])
    assert unexpected([LogLine("", "web-0", "unstructured", "Traceback", "…")], [(fault, when)])


def test_every_expected_event_exists() -> None:
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    logged = set(re.findall(r'log\.(?:warning|error|exception)\(\s*"(\w+)"', text))
    assert {event for fault in FAULTS for event in fault.events} <= logged


def test_memory_that_grows_is_found_and_memory_that_settles_is_not(tmp_path: Path) -> None:
    def role(grows_mb: float) -> RunningRole:
        samples = [MemorySample(at, 60 + grows_mb * at / 600) for at in range(0, 600, 2)]
        process = Process(None, tmp_path / "log")  # type: ignore[arg-type]
        return RunningRole("sender-2", "sender", process, 0.0, samples)

    [settles] = memory_trends([role(2)])
    [grows] = memory_trends([role(60)])
    assert not settles.is_growing
    assert grows.is_growing
    assert str(grows) == "sender-2, 598 s: 75 to 111 MB"
    assert "<polyline" in memory_svg([role(2)], [FaultTime("kill web", NOW, NOW)], NOW.timestamp())
