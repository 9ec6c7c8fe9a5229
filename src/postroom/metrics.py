"""Metrics of a role for Prometheus: storage calls, emails, and failures of either."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from postroom.domain.backup import BackupRecord
from postroom.domain.breaker import MailHealth
from postroom.domain.trouble import TroubleKind
from postroom.domain.web_address import host_and_port

log = structlog.get_logger("metrics")
Counts = Callable[[], Mapping[str, int]]  # since the start, by kind


@dataclass(eq=False)  # compared by identity, as the registry needs
class RoleCollector:
    """Reads existing counters at each scrape, so that counting costs nothing more."""

    role: str
    calls: Counts
    commits: Counts
    troubles: Counts
    health: MailHealth | None
    backups: Callable[[], BackupRecord | None] = lambda: None  # of the scheduler

    def collect(self) -> Iterator[Metric]:
        yield self._counter("storage_calls", "Storage calls.", self.calls())
        yield self._counter("storage_commits", "Transactions on disk.", self.commits())
        text = "Storage calls that were refused or not answered."
        yield self._counter("storage_troubles", text, self.troubles())
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
        trouble.add_metric([self.role], 1 if self.health.trouble else 0)
        yield trouble

    def _backup_metrics(self, record: BackupRecord) -> Iterator[Metric]:
        made_at = record.made_at.timestamp() if record.made_at else 0.0
        for name, text, value in (
            ("last_success_timestamp_seconds", "When the last whole backup was made.", made_at),
            ("failures", "Scheduled backups that failed since then.", record.failures),
            ("bytes", "The size of the last whole backup.", record.size_bytes),
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


@contextlib.contextmanager
def shown(bind: str, collector: RoleCollector) -> Iterator[None]:
    """Serve metrics at `bind`, unless it is empty, while a role runs; then log the totals."""
    server = _serve(bind, collector) if bind else None
    try:
        yield
    finally:
        if server:
            server.shutdown()
            server.server_close()
        log.info("storage_calls", role=collector.role, **collector.calls())


def _serve(bind: str, collector: RoleCollector) -> WSGIServer | None:
    """Return None if the port is in use, because that must not keep emails from being sent."""
    registry = CollectorRegistry()
    registry.register(collector)
    host, port = host_and_port(bind)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        log.error("metrics_not_shown", bind=bind, words=str(error))
        return None
    log.info("metrics_shown", bind=f"{host}:{server.server_port}")
    return server
