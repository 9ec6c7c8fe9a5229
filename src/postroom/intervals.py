"""How often the roles poll for work, in seconds; each engine has its own (wiring/engines.py)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Intervals:
    """Longest pauses; a wake-up ends a pause early."""

    poll_s: float  # a sender, between two polls of the queues
    lease_s: float  # a role may be silent this long before another one takes over
    schedule_s: float  # the scheduler, between two polls for due messages
    sweep_s: float  # looking for forgotten work items
    tidy_s: float  # deleting what has expired
    room_s: float  # while the mail queue is full
    report_s: float  # adding up the books of a message
    last_report_s: float  # the same when few recipients are left, so that the end shows at once
    feedback_s: float  # looking for events while messages are being sent; otherwise as for imports
    imports_s: float  # looking for imports to run; on one machine the web role wakes the scheduler


LOCAL = Intervals(
    poll_s=1.0,
    lease_s=30.0,
    schedule_s=10.0,
    sweep_s=60.0,
    tidy_s=60.0,
    room_s=0.05,
    report_s=1.0,
    last_report_s=0.1,
    feedback_s=2.0,
    imports_s=10.0,
)
# Every call is billed: an idle role makes at most ten a minute (docs/azure.md).
REMOTE = Intervals(
    poll_s=15.0,
    lease_s=60.0,
    schedule_s=15.0,
    sweep_s=120.0,
    tidy_s=1200.0,
    room_s=0.25,
    report_s=1.0,
    last_report_s=1.0,
    feedback_s=4.0,
    imports_s=60.0,
)
