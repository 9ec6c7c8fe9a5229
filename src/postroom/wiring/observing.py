"""How people see what a role does: its metrics, its traces, its spans."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import structlog

from postroom import metrics, spans, tracing
from postroom.storage.port import StorageError
from postroom.wiring.parts import Parts

log = structlog.get_logger("roles")
MAILS_LOGGED_EVERY_S = 60.0


@contextlib.asynccontextmanager
async def observed(role: str, parts: Parts) -> AsyncIterator[None]:
    """Within the block, metrics are served, traces written and spans sent."""
    storage = parts.storage
    collector = metrics.RoleCollector(
        role,
        calls=lambda: msgspec.structs.asdict(storage.calls),
        commits=lambda: {} if storage.commits is None else {"group": storage.commits},
        troubles=lambda: {
            "refused": storage.troubles.refused,
            "in_doubt": storage.troubles.in_doubt,
        },
        health=parts.health if role == "sender" else None,
        backups=lambda: parts.backups.record,
    )
    async with traced_role(role, parts) as counts, spans.sent(role, tracing.instance_name()):
        collector.traces = counts
        with metrics.shown(parts.settings.metrics_bind, collector, parts.registry):
            yield


@contextlib.asynccontextmanager
async def traced_role(role: str, parts: Parts) -> AsyncIterator[metrics.Counts]:
    """Within the block, the log of this process is also written to storage as traces.

    Yields what counts them.
    """
    async with tracing.traced(
        parts.storage.tables,
        parts.clock,
        role,
        every_s=parts.intervals.trace_s,
        rows_max=parts.settings.trace_rows_max,
    ) as writer:
        yield lambda: {"written": writer.written, "dropped": writer.dropped}


@contextlib.asynccontextmanager
async def sampled_service(parts: Parts) -> AsyncIterator[None]:
    """Within the block, if metrics are served, sample queues and messages at intervals."""
    service = metrics.ServiceCollector(parts.storage, parts.clock)

    async def keep_sampling() -> None:
        while True:
            with contextlib.suppress(StorageError):  # the roles notice, and say so
                await service.sample()
            await parts.clock.sleep(parts.intervals.metrics_s)

    if not parts.settings.metrics_bind:
        yield
        return
    parts.registry.register(service)
    sampling = asyncio.create_task(keep_sampling())
    try:
        yield
    finally:
        sampling.cancel()


async def log_mails(parts: Parts) -> None:
    """Log the outcomes of the emails once a minute, if there were any."""
    before = dict(parts.health.mails)
    while True:
        await parts.clock.sleep(MAILS_LOGGED_EVERY_S)
        mails = dict(parts.health.mails)
        counts = {kind: count - before.get(kind, 0) for kind, count in mails.items()}
        if any(counts.values()):
            log.info("emails_handed_over", seconds=round(MAILS_LOGGED_EVERY_S), **counts)
        before = mails
