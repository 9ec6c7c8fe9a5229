"""Spans for OpenTelemetry, if its SDK is installed and the environment names a collector.

The standard variables configure it: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER and so on.
Attributes are names and numbers: a route, not its path, which may have a token; no addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

log = structlog.get_logger("spans")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
FLUSH_S = 3.0  # when a role stops


class SpanMaker:
    """Creates spans while they are being sent."""

    tracer: Tracer | None = None


_maker = SpanMaker()


@contextlib.contextmanager
def span(name: str, **attributes: str | int) -> Iterator[dict[str, str | int]]:
    """A span around the block, which may add attributes to it; None if spans are not sent."""
    added: dict[str, str | int] = {}
    tracer = _maker.tracer
    if tracer is None:
        yield added
        return
    with tracer.start_as_current_span(
        name, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield added
        except BaseException as error:  # its text may have values of anything
            added["error.type"] = type(error).__name__
            raise
        finally:
            for key, value in (attributes | added).items():
                current.set_attribute(key, value)


def is_configured() -> bool:
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not is_disabled and any(os.environ.get(name) for name in ENDPOINTS)


@contextlib.asynccontextmanager
async def sent(role: str, instance: str) -> AsyncIterator[None]:
    """Within the block spans are sent, if that is configured."""
    provider = _provider(role, instance) if is_configured() else None
    if provider is None:
        yield
        return
    _maker.tracer = provider.get_tracer("postroom", version("postroom"))
    try:
        yield
    finally:
        _maker.tracer = None
        await asyncio.to_thread(provider.force_flush, int(FLUSH_S * 1000))
        await asyncio.to_thread(provider.shutdown)


def _provider(role: str, instance: str) -> TracerProvider | None:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("spans_not_sent", words="install “postroom[otel]”")
        return None
    names = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "postroom"}
    names |= {"service.instance.id": instance, "postroom.role": role}
    provider = TracerProvider(resource=Resource.create(names), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
