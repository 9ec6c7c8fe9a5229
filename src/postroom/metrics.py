"""What a role counts, for Prometheus: calls of storage by kind, commits, and troubles with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily

from postroom.domain.web_address import host_and_port

log = structlog.get_logger("metrics")
Counts = Callable[[], Mapping[str, int]]  # since the start, by kind


class _Counted:
    """Read when somebody asks, so that counting costs nothing more."""

    def __init__(self, role: str, calls: Counts, commits: Counts, troubles: Counts) -> None:
        self._role = role
        self._calls = calls
        self._commits = commits
        self._troubles = troubles

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield self._family("calls", "Calls of storage.", self._calls())
        yield self._family("commits", "Transactions on the disk.", self._commits())
        yield self._family("troubles", "Calls that storage refused or left open.", self._troubles())

    def _family(self, name: str, words: str, counts: Mapping[str, int]) -> CounterMetricFamily:
        family = CounterMetricFamily(f"postroom_storage_{name}", words, labels=["role", "kind"])
        for kind, number in counts.items():
            family.add_metric([self._role, kind], number)
        return family


@contextlib.contextmanager
def shown(
    role: str, bind: str, *, calls: Counts, commits: Counts, troubles: Counts
) -> Iterator[None]:
    """Metrics at `bind` while a role runs, unless that is empty; and the sum in the log."""
    server = _serve(bind, _Counted(role, calls, commits, troubles)) if bind else None
    try:
        yield
    finally:
        if server:
            server.shutdown()
            server.server_close()
        log.info("storage_calls", role=role, **calls())


def _serve(bind: str, counted: _Counted) -> WSGIServer | None:
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
