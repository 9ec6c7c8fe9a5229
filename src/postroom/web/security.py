"""What stands around every answer: strict headers, a limit on what is read, a limit on waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger("web")
BODY_BYTES_MAX = 64 * 1024  # of a form or a call: they are all small
ANSWER_S_MAX = 8.0  # a page waits for storage so long, then says "try again"

# No script, nothing from elsewhere, nobody frames us: subscriber pages need a stylesheet alone.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",  # links carry tokens
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
ONE_YEAR = "max-age=31536000; includeSubDomains"


class TooLarge(Exception):
    """More was sent than anything here takes."""


class Guard:
    """The outermost layer; `too_late` answers for a path when the inner ones do not."""

    def __init__(
        self, app: ASGIApp, *, is_https: bool, too_late: Callable[[str], Response]
    ) -> None:
        self._app = app
        self._is_https = is_https
        self._too_late = too_late

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_started = False

        async def send_guarded(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                self._add_headers(scope, message["status"], MutableHeaders(scope=message))
            await send(message)

        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._app(scope, _limited(receive), send_guarded)
        except ClientDisconnect:
            return  # nobody is there to answer
        except TimeoutError:
            log.warning("page_too_late")
            if not is_started:
                await self._too_late(scope["path"])(scope, receive, send_guarded)

    def _add_headers(self, scope: Scope, status: int, headers: MutableHeaders) -> None:
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        is_static = scope["path"].startswith("/static/") and status == HTTPStatus.OK
        headers.setdefault("Cache-Control", "public, max-age=3600" if is_static else "no-store")
        if self._is_https:
            headers.setdefault("Strict-Transport-Security", ONE_YEAR)


def _limited(receive: Receive) -> Receive:
    """Counts while it reads: a Content-Length may lie."""
    room = BODY_BYTES_MAX

    async def limited() -> Message:
        nonlocal room
        message = await receive()
        room -= len(message.get("body", b""))
        if room < 0:
            raise TooLarge
        return message

    return limited
