"""What a role counts, for Prometheus: calls of storage, mails, troubles with either."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from postroom.domain.breaker import MailHealth
from postroom.domain.trouble import TroubleKind
from postroom.domain.web_address import host_and_port

log = structlog.get_logger("metrics")
Counts = Callable[[], Mapping[str, int]]  # since the start, by kind


class RoleCollector:
    """Read when somebody asks, so that counting costs nothing more."""

    def __init__(
        self, role: str, calls: Counts, commits: Counts, troubles: Counts, health: MailHealth | None
    ) -> None:
        self._role = role
        self._calls = calls
        self._commits = commits
        self._troubles = troubles
        self._health = health

    def collect(self) -> Iterator[Metric]:
        yield self._family("storage_calls", "Calls of storage.", self._calls())
        yield self._family("storage_commits", "Transactions on the disk.", self._commits())
        words = "Calls that storage refused or left open."
        yield self._family("storage_troubles", words, self._troubles())
        if self._health:
            yield from self._of_mails(self._health)

    def _of_mails(self, health: MailHealth) -> Iterator[Metric]:
        words = "Mails handed to the transport, by outcome; one that is tried again counts again."
        yield self._family("mails", words, health.mails, "outcome")
        words = "Tries that failed because of the mail server, by kind of trouble."
        faults = {kind.value: health.faults[kind] for kind in TroubleKind}
        yield self._family("mail_server_faults", words, faults)
        words = "1 from the first such try until a mail goes through."
        trouble = GaugeMetricFamily("postroom_mail_server_trouble", words, labels=["role"])
        trouble.add_metric([self._role], 1 if health.trouble else 0)
        yield trouble

    def _family(
        self, name: str, words: str, counts: Mapping[str, int], label: str = "kind"
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(f"postroom_{name}", words, labels=["role", label])
        for kind, number in counts.items():
            family.add_metric([self._role, kind], number)
        return family


@contextlib.contextmanager
def shown(
    role: str,
    bind: str,
    *,
    calls: Counts,
    commits: Counts,
    troubles: Counts,
    health: MailHealth | None = None,
) -> Iterator[None]:
    """Metrics at `bind` while a role runs, unless that is empty; and the sum in the log."""
    counted = RoleCollector(role, calls, commits, troubles, health)
    server = _serve(bind, counted) if bind else None
    try:
        yield
    finally:
        if server:
            server.shutdown()
            server.server_close()
        log.info("storage_calls", role=role, **calls())


def _serve(bind: str, counted: RoleCollector) -> WSGIServer | None:
    """A port that is taken must not keep mails from going out."""
    registry = CollectorRegistry()
    registry.register(counted)
    host, port = host_and_port(bind)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        log.error("metrics_not_shown", bind=bind, words=str(error))
        return None
    log.info("metrics_shown", bind=f"{host}:{server.server_port}")
    return server
