"""The figures of a run, worked out from what was seen of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from postroom_bench.arrivals import Arrivals, Point
from postroom_bench.baselines import Baseline
from postroom_bench.installation import Process
from postroom_bench.plan import Plan, Way
from postroom_bench.plot import Curve, Mark, plot
from postroom_bench.run_timeline import RunTimeline

INSTANT_S = 0.001  # a rate needs a duration


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    recipients: int
    arrived: int
    lost: int
    twice: int
    mail_bytes: int
    connections: int  # the most that brought mails at the same time
    first_mail_s: float
    fanned_out_s: float
    completed_s: float
    fan_out_per_s: float
    send_per_s: float  # from the first mail to the last
    mails_per_s: float  # from due to completed, everything included
    scheduler_cpu_us: float  # per mail
    sender_cpu_us: float
    scheduler_peak_mb: float
    sender_peak_mb: float  # of the largest
    small_completed_s: float | None  # of the small message, since it was due
    of_limit: float | None  # the rate from the first mail to the last
    worst_second: int | None  # the most mails that arrived in one, if there is a limit
    commits: int | None  # by all roles; None of an engine that has no such thing
    calls_per_mail: float  # of storage, from due to archived, by all roles
    calls: dict[str, int]
    baselines: list[Baseline] = []


class Used(NamedTuple):
    """What a role has used up so far."""

    cpu_s: float
    peak_mb: float
    commits: int | None
    calls: Counter[str]

    def since(self, before: Used) -> Used:
        commits = None if self.commits is None else self.commits - (before.commits or 0)
        calls = self.calls - before.calls
        return Used(self.cpu_s - before.cpu_s, self.peak_mb, commits, calls)


async def used_by(role: Process) -> Used:
    calls, commits = await role.storage_calls(), await role.commits()
    return Used(role.cpu_s(), role.peak_mb(), commits, calls)


def work_out(
    plan: Plan, timeline: RunTimeline, arrivals: Arrivals, scheduler: Used, senders: Sequence[Used]
) -> Figures:
    people, arrived = plan.mails, arrivals.counts.total()
    first, last = _ends(arrivals.timeline)
    calls = sum([role.calls for role in (scheduler, *senders)], Counter[str]())
    limit = min(filter(None, (plan.limit, plan.domain_limit)), default=None)
    send_per_s = arrived / max(last - first, INSTANT_S)
    commits = [role.commits for role in (scheduler, *senders) if role.commits is not None]
    return Figures(
        recipients=people,
        arrived=len(arrivals.counts),
        lost=people - len(arrivals.counts),
        twice=arrived - len(arrivals.counts),
        mail_bytes=round(arrivals.octets / max(arrived, 1)),
        connections=arrivals.connections,
        first_mail_s=first - timeline.started,
        fanned_out_s=timeline.fanned_out_s,
        completed_s=timeline.completed_s,
        fan_out_per_s=people / timeline.fanned_out_s,
        send_per_s=send_per_s,
        mails_per_s=people / timeline.completed_s,
        scheduler_cpu_us=scheduler.cpu_s / people * 1e6,
        sender_cpu_us=sum(role.cpu_s for role in senders) / people * 1e6,
        scheduler_peak_mb=scheduler.peak_mb,
        sender_peak_mb=max(role.peak_mb for role in senders),
        small_completed_s=timeline.small_completed_s,
        of_limit=send_per_s / limit if limit else None,
        worst_second=worst_second(arrivals.timeline) if limit else None,
        commits=sum(commits) if commits else None,
        calls_per_mail=calls.total() / people,
        calls=dict(calls),
    )


def draw(plan: Plan, figures: Figures, run: RunTimeline, arrivals: Sequence[Point]) -> str:
    """The timeline of the run as SVG."""
    arrived = [(0.0, 0), *((at - run.started, count) for at, count in arrivals)]
    fan_out = [(0.0, 0), *run.fan_out]
    line = "into the outbox"
    if plan.transport is Way.SMTP:
        line = f"over {plan.connections} connections{' with TLS' if plan.tls else ''}"
    return plot(
        f"{figures.recipients:,} mails: {figures.mails_per_s:,.0f} a second, due to completed",
        f"{figures.mail_bytes:,} bytes a mail, {line}, the first at {figures.first_mail_s:.2f} s",
        [
            Curve("mails arrived", "#1d4ed8", arrived),
            Curve("fanned out", "#b45309", fan_out, is_dashed=True),
        ],
        Mark("completed", run.completed_s),
    )


def worst_second(timeline: Sequence[Point]) -> int:
    """The most that arrived within a second, wherever between two samples it begins."""
    worst = start = 0
    for at, count in timeline:
        while timeline[start][0] < at - 1.0:
            start += 1
        worst = max(worst, count - timeline[start][1])
    return worst


def _ends(timeline: Sequence[Point]) -> tuple[float, float]:
    return (timeline[0][0], timeline[-1][0]) if timeline else (0.0, 0.0)
