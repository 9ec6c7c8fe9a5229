"""`postroom instances`: which processes run where, and why the number of senders changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.cli.output import AsJson, show
from postroom.cli.session import work
from postroom.domain.instance import instance_data

if TYPE_CHECKING:
    from postroom.domain.instance import RunningInstance
    from postroom.wiring import Parts


def instances(as_json: AsJson = False) -> None:
    """Show all running processes, on all machines."""

    async def read(parts: Parts) -> list[RunningInstance]:
        from postroom.records import instances as rows

        return await rows.running(parts.storage.tables, parts.clock.now())

    found = work(read)
    lines = [_line(each) for each in found]
    for each in found:
        for change in each.changes:
            at = change.at.isoformat(timespec="seconds")
            reason = change.reason.sentence
            lines.append(f"{at}  {each.host}: {change.before} → {change.after} senders. {reason}")
    show([instance_data(each) for each in found], as_json, *lines, if_empty="Nothing is running.")


def _line(instance: RunningInstance) -> str:
    since = instance.since.isoformat(timespec="seconds")
    states = ["active"] * instance.is_leading + ["held back"] * instance.is_held_back
    if instance.role in ("sender", "web"):
        states.append(f"{instance.busy} in progress, {instance.per_s:g} per second")
    if instance.limits:
        states.append(f"{instance.limits.minimum} to {instance.limits.maximum} senders")
    about = f"  {', '.join(states)}" if states else ""
    return f"{instance.role:10}  {instance.id}  {instance.version}  since {since}{about}"
