"""Spans: none unless OpenTelemetry is configured, and no token in any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from postroom import spans
from postroom.web.measured import MeasuredApp, area_of

TOKEN = "a-secret-token"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(spans._maker, "tracer", provider.get_tracer("tests"))
    yield exporter
    provider.shutdown()


def test_a_span_has_its_attributes_and_nothing_of_an_exception(
    exported: InMemorySpanExporter,
) -> None:
    def fail() -> None:
        with spans.span("send batch", batch=3) as added:
            added["outcome"] = "done"
            raise KeyError(TOKEN)

    with pytest.raises(KeyError):
        fail()
    (span,) = exported.get_finished_spans()
    assert span.name == "send batch"
    assert dict(span.attributes or {}) == {
        "batch": 3,
        "outcome": "done",
        "error.type": "KeyError",
    }
    assert TOKEN not in span.to_json()


def test_a_request_is_named_by_its_route_and_timed(exported: InMemorySpanExporter) -> None:
    seen: list[tuple[str, int]] = []

    def answer(_request: object) -> PlainTextResponse:
        return PlainTextResponse("ok", 202)

    app = Starlette(routes=[Route("/u/{token}", answer)])
    observe = lambda area, status, seconds: seen.append((area, status))  # noqa: E731
    client = TestClient(MeasuredApp(app, observe))
    assert client.get(f"/u/{TOKEN}").status_code == 202
    assert client.get(f"/admin/{TOKEN}").status_code == 404
    assert seen == [("public", 202), ("admin", 404)]
    found = exported.get_finished_spans()
    assert [span.name for span in found] == ["GET public", "GET admin"]
    assert all(TOKEN not in span.to_json() for span in found)
    assert (found[0].attributes or {})["http.response.status_code"] == 202


@pytest.mark.parametrize(
    ("path", "area"),
    [
        ("/admin/lists", "admin"),
        ("/api/v1/subscribe", "api"),
        ("/readyz", "health"),
        ("/static/a.css", "static"),
        ("/webhooks/ses", "webhooks"),
        ("/", "public"),
        ("", "public"),
        (f"/{TOKEN}", "public"),
    ],
)
def test_an_area_has_no_token_in_it(path: str, area: str) -> None:
    assert area_of(path) == area


async def test_without_configuration_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in spans.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    async with spans.sent("web", "host.1"):
        assert spans._maker.tracer is None
        with spans.span("x") as added:
            added["a"] = 1


async def test_the_environment_turns_it_on_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spans.ENDPOINTS[0], "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not spans.is_configured()
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mail")
    async with spans.sent("web", "host.1"):
        assert spans._maker.tracer is not None
    assert spans._maker.tracer is None
