"""Metrics of a role for Prometheus: storage calls, emails, requests, queues, and their failures.

deploy/monitoring/ has a dashboard and alerts that use them; a test compares the names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import (
    CollectorRegistry,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from postroom.clock import Clock
from postroom.domain.backup import BackupRecord
from postroom.domain.breaker import MailHealth
from postroom.domain.message import Status
from postroom.domain.trouble import TroubleKind
from postroom.domain.web_address import host_and_port
from postroom.records import messages
from postroom.records.names import QUEUES
from postroom.storage.port import Storage

log = structlog.get_logger("metrics")
disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each, of no use here
LATENCIES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10)
DUE_READ_MAX = 50  # messages, to find the one that is due longest
MESSAGES_READ_MAX = 500  # that are not archived: a few milliseconds
Counts = Callable[[], Mapping[str, int]]  # since the start, by kind


@dataclass(eq=False)  # compared by identity, as the registry needs
class RoleCollector:
    """Reads existing counters at each scrape, so that counting costs nothing more."""

    role: str
    calls: Counts
    commits: Counts
    troubles: Counts
    health: MailHealth | None
    traces: Counts = dict
    backups: Callable[[], BackupRecord | None] = lambda: None  # of the scheduler

    def collect(self) -> Iterator[Metric]:
        yield self._counter("storage_calls", "Storage calls.", self.calls())
        yield self._counter("storage_commits", "Transactions on disk.", self.commits())
        text = "Storage calls that were refused or not answered."
        yield self._counter("storage_troubles", text, self.troubles())
        text = "Traces that were written to storage, and those left out."
        yield self._counter("traces", text, self.traces())
        if record := self.backups():
            yield from self._backup_metrics(record)
        if not self.health:
            return
        text = "Emails handed to the transport, by outcome; every attempt counts."
        yield self._counter("mails", text, self.health.mails, "outcome")
        text = "Attempts that failed because of the mail server, by kind of trouble."
        faults = {kind.value: self.health.faults[kind] for kind in TroubleKind}
        yield self._counter("mail_server_faults", text, faults)
        text = "1 from the first such attempt until an email is accepted."
        trouble = GaugeMetricFamily("postroom_mail_server_trouble", text, labels=["role"])
        now = self.health.trouble
        trouble.add_metric([self.role], 1 if now else 0)
        yield trouble
        text = "Failed attempts in a row; the breaker pauses longer with each."
        breaker = GaugeMetricFamily("postroom_breaker_faults", text, labels=["role"])
        breaker.add_metric([self.role], now.faults if now else 0)
        yield breaker

    def _backup_metrics(self, record: BackupRecord) -> Iterator[Metric]:
        made_at = record.made_at.timestamp() if record.made_at else 0.0
        for name, text, value in (
            ("last_success_timestamp_seconds", "When the last complete backup was made.", made_at),
            ("failures", "Scheduled backups that failed since then.", record.failures),
            ("bytes", "The size of the last complete backup.", record.size_bytes),
            ("duration_seconds", "How long it took to write and verify it.", record.took_s),
        ):
            gauge = GaugeMetricFamily(f"postroom_backup_{name}", text, labels=["role"])
            gauge.add_metric([self.role], value)
            yield gauge

    def _counter(
        self, name: str, text: str, counts: Mapping[str, int], label: str = "kind"
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(f"postroom_{name}", text, labels=["role", label])
        for kind, number in counts.items():
            family.add_metric([self.role, kind], number)
        return family


def request_times(registry: CollectorRegistry) -> Callable[[str, int, float], None]:
    """Return a function that records a request: area, status, and time until the first byte."""
    times = Histogram(
        "postroom_web_request_seconds",
        "Time until the answer to a request begins.",
        ["area", "status"],
        buckets=LATENCIES_S,
        registry=registry,
    )

    def observe(area: str, status: int, seconds: float) -> None:
        times.labels(area, f"{status // 100}xx").observe(seconds)

    return observe


@dataclass(eq=False)
class ServiceCollector:
    """Queues and messages of the whole service, as last sampled by the scheduler."""

    storage: Storage
    clock: Clock
    items: dict[str, int] = field(default_factory=dict)  # by queue
    ages_s: dict[str, float] = field(default_factory=dict)
    deliveries: dict[str, int] = field(default_factory=dict)  # by state
    due_lag_s: float = 0.0
    _heads: dict[str, tuple[str, float]] = field(default_factory=dict)  # first item, and since when

    async def sample(self) -> None:
        """Sample everything again; reads a bounded number of rows."""
        await self._sample_queues()
        await self._sample_due()
        live, _has_more = await messages.first_live(self.storage.tables, limit=MESSAGES_READ_MAX)
        names = ("queued", "sending", "held", "doubts")
        self.deliveries = {
            name: sum(getattr(message.books, name) for message in live) for name in names
        }

    async def _sample_queues(self) -> None:
        queues = self.storage.queues
        now_s = self.clock.monotonic()
        for name in QUEUES:
            self.items[name] = await queues.length(name)
            first = await queues.peek(name, limit=1) if self.items[name] else []
            body = first[0].body if first else ""
            if self._heads.get(name, ("", 0.0))[0] != body:
                self._heads[name] = body, now_s
            self.ages_s[name] = now_s - self._heads[name][1] if body else 0.0

    async def _sample_due(self) -> None:
        now = self.clock.now()
        self.due_lag_s = 0.0
        read = 0
        async for entry in messages.due_entries(self.storage.tables, now):
            read += 1
            if entry.due_at > now or read > DUE_READ_MAX:
                break
            found = await messages.find_live(self.storage.tables, entry.ref)
            if found and found.value.status is Status.PENDING:
                late_s = (now - entry.due_at).total_seconds()
                self.due_lag_s = max(self.due_lag_s, late_s)

    def collect(self) -> Iterator[Metric]:
        text = "Items of a queue, including those that are claimed or not due yet."
        yield _gauge("queue_items", text, "queue", self.items)
        text = "How long the first item that could be claimed has been waiting, as sampled."
        yield _gauge("queue_wait_seconds", text, "queue", self.ages_s)
        text = "Deliveries of messages being sent, by state; doubts are counted since the start."
        yield _gauge("deliveries", text, "state", self.deliveries)
        text = "How long the oldest message that is due has been waiting to be started."
        yield GaugeMetricFamily("postroom_due_lag_seconds", text, value=self.due_lag_s)


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"postroom_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


@contextlib.contextmanager
def shown(
    bind: str, collector: RoleCollector, registry: CollectorRegistry | None = None
) -> Iterator[None]:
    """Serve metrics at `bind`, unless it is empty, while a role runs; then log the totals."""
    registry = registry or CollectorRegistry()
    registry.register(collector)
    server = _serve(bind, registry) if bind else None
    try:
        yield
    finally:
        if server:
            server.shutdown()
            server.server_close()
        log.info("storage_calls", role=collector.role, **collector.calls())


def _serve(bind: str, registry: CollectorRegistry) -> WSGIServer | None:
    """Return None if the port is in use, because that must not keep emails from being sent."""
    host, port = host_and_port(bind)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        log.error("metrics_not_shown", bind=bind, words=str(error))
        return None
    log.info("metrics_shown", bind=f"{host}:{server.server_port}")
    return server
