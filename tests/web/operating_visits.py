"""Somebody who opens the pages of operating, in every state that has words of its own."""

from __future__ import annotations

from typing import Any

import msgspec

from postroom.domain.instance import RunningInstance
from postroom.domain.scaling import ScalingCause, ScalingChange, ScalingReason, SenderLimits
from postroom.domain.user import Role
from postroom.records import instances
from tests.web.drafts import etag_of
from tests.web.office import NOW
from tests.web.signed_in import sign_in_as
from tests.web.visitor import Visit


async def at_instances(visit: Visit) -> None:
    await visit.get("/admin/instances")
    reasons = [ScalingReason(cause, 32, 7, 20.0, 50.0, 4) for cause in ScalingCause]
    common: dict[str, Any] = {"version": "0.1.0", "since": NOW, "seen_at": NOW, "lasts_s": 60.0}
    running = [
        RunningInstance(role=role, host=host, pid=pid, **common)
        for pid, role in enumerate(("web", "scheduler", "sender"))
        for host in ("mail1", "mail2")
    ]
    running[0] = msgspec.structs.replace(running[0], is_leading=True, is_held_back=True)
    changes = tuple(ScalingChange(NOW, 0, 4, reason) for reason in reasons)
    supervisors = [
        RunningInstance(
            role="supervisor",
            host=host,
            pid=9,
            limits=SenderLimits(0, 4),
            changes=changes,
            **common,
        )
        for host in ("mail1", "mail2")
    ]
    tables = visit.owner.office.storage.tables
    await instances.write(tables, [*running, *supervisors])
    await visit.get("/admin/instances")
    await visit.get("/admin")
    await visit.post("/admin/instances/senders", 422, senders_min="many", senders_max="0")
    await visit.post("/admin/instances/senders", 422, senders_min="5", senders_max="4")
    await visit.post("/admin/instances/senders", 303, senders_min="0", senders_max="4")
    await visit.post("/admin/instances/senders", 409, senders_min="1", senders_max="5")
    viewer = await sign_in_as(visit.owner.office, Role.VIEWER)
    async with viewer.browser:
        visit.read("as a viewer", (await viewer.get("/admin/instances")).text)


async def at_settings(visit: Visit) -> None:
    await visit.get("/admin/settings")
    bad = {"claim_s": "1", "retry_first_s": "0", "archive_days": "1e9", "items_ahead": "x"}
    await visit.post("/admin/settings", 422, **bad, log_level="loud", bounce_poll_s="x")
    page = await visit.get("/admin/settings")
    await visit.post("/admin/settings", 303, archive_days="30", etag=etag_of(page))
    await visit.get("/admin/settings")
    await visit.post("/admin/settings", 409, archive_days="31", etag="old")
