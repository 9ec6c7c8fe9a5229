"""Times every request until its answer begins, for metrics and spans."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroom import spans

Observe = Callable[[str, int, float], None]  # area, status, seconds
_AREAS = {"admin", "api", "static", "webhooks"}
_HEALTH = {"healthz", "readyz"}


class MeasuredApp:
    """The application around which requests are timed. A live page counts until its first byte."""

    def __init__(self, app: ASGIApp, observe: Observe) -> None:
        self._app = app
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        area = area_of(scope["path"])
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"

        async def send_timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._observe(area, message["status"], perf_counter() - began)
                added["http.response.status_code"] = message["status"]
            await send(message)

        with spans.span(f"{method} {area}") as added:
            await self._app(scope, receive, send_timed)
            added["http.request.method"] = method
            added["http.route"] = getattr(scope.get("route"), "path", "") or area


def area_of(path: str) -> str:
    """The part of the site, which has no token and no number in it."""
    first = path.split("/", 2)[1] if path.startswith("/") else ""
    if first in _HEALTH:
        return "health"
    return first if first in _AREAS else "public"
