"""How often the roles poll for work, in seconds; each engine has its own (wiring/engines.py)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Intervals:
    """Longest pauses; a wake-up ends a pause early. The defaults are for a file on this machine."""

    poll_s: float = 1.0  # a sender, between two polls of the queues
    lease_s: float = 30.0  # a role may be silent this long before another one takes over
    schedule_s: float = 10.0  # the scheduler, between two polls for due messages
    sweep_s: float = 60.0  # looking for forgotten work items
    tidy_s: float = 60.0  # deleting what has expired
    room_s: float = 0.05  # while the mail queue is full
    report_s: float = 1.0  # adding up the books of a message
    last_report_s: float = 0.1  # the same when few recipients are left: the end shows at once
    feedback_s: float = 2.0  # looking for feedback while messages are sent; else as for imports
    imports_s: float = 10.0  # looking for imports; here the web role wakes the scheduler
    settings_s: float = 2.0  # reading changed settings while there is work
    idle_settings_s: float = 2.0  # the same while there is none
    instance_s: float = 10.0  # writing the rows of running instances
    trace_s: float = 1.0  # writing traces, if there are any
    metrics_s: float = 10.0  # sampling queues and messages, if metrics are served


LOCAL = Intervals()
# Every call is billed: an idle role makes at most ten a minute (docs/azure.md).
REMOTE = Intervals(
    poll_s=15.0,
    lease_s=60.0,
    schedule_s=15.0,
    sweep_s=120.0,
    tidy_s=1200.0,
    room_s=0.25,
    last_report_s=1.0,
    feedback_s=4.0,
    imports_s=60.0,
    settings_s=5.0,
    idle_settings_s=60.0,
    instance_s=180.0,
    trace_s=5.0,
    metrics_s=60.0,
)
