"""Strict headers, and limits on body and time, for every request."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

import msgspec
import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger("web")
OWN_CODE = str(Path(__file__).parent.parent)


class RequestLimits(msgspec.Struct, frozen=True):
    body_bytes: int = 64 * 1024  # nearly all forms and API calls are small
    answer_s: float | None = 8.0  # then the response is "try again"; None for a stream


ORDINARY = RequestLimits()
_MEGABYTE = 1024 * 1024
_STREAM = RequestLimits(answer_s=None)
_MESSAGE = RequestLimits(body_bytes=10 * _MEGABYTE, answer_s=30.0)  # two bodies
# The same, typed or uploaded: larger, so that a file that is too large gets its own error.
_MESSAGE_FORM = RequestLimits(body_bytes=32 * _MEGABYTE, answer_s=30.0)
_ATTACHMENT = RequestLimits(body_bytes=16 * _MEGABYTE, answer_s=30.0)  # ten of them, in base64
# By the whole path, so that a caller who chooses a part of a path cannot choose its limits.
REQUEST_LIMITS = [
    (re.compile(r"/admin/live|/admin/imports/[\w-]+/live|/admin/messages/\d+/live"), _STREAM),
    (re.compile(r"/admin/subscribers/export|/admin/imports/[\w-]+/report/export"), _STREAM),
    (
        re.compile(r"/admin/messages/\d+/(people|feedback)/export|/admin/suppression/export"),
        _STREAM,
    ),
    (
        re.compile(r"/admin/audit/export|/admin/storage/tables/\w+/export"),
        _STREAM,
    ),
    # Longer than the longest wait for an answer of a mail server.
    (re.compile(r"/admin/sending/test"), RequestLimits(answer_s=60.0)),
    (re.compile(r"/admin/messages/(\d+/)?(write|autosave)|/admin/messages/blocks"), _MESSAGE_FORM),
    (re.compile(r"/admin/templates/[a-z0-9-]{1,40}(/blocks|/preview)?"), _MESSAGE_FORM),
    (re.compile(r"/admin/messages/(mail/)?preview"), _MESSAGE_FORM),
    (re.compile(r"/admin/rich-text"), RequestLimits(body_bytes=_MEGABYTE)),
    (re.compile(r"/api/v1/messages(/\d+)?(/preview)?"), _MESSAGE),
    (re.compile(r"/api/v1/messages/\d+/attachments"), _ATTACHMENT),
    (re.compile(r"/api/v1/templates(/[a-z0-9-]{1,40})?"), _MESSAGE),
    # A zip with pictures, each of which is encoded anew.
    (re.compile(r"/admin/messages/import"), RequestLimits(32 * _MEGABYTE, answer_s=180.0)),
    (re.compile(r"/api/v1/messages/import"), RequestLimits(42 * _MEGABYTE, answer_s=180.0)),
    (re.compile(r"/webhooks/\w+"), RequestLimits(body_bytes=2 * _MEGABYTE)),
    (re.compile(r"/admin/imports/upload"), RequestLimits(1024 * _MEGABYTE, answer_s=None)),
    # Larger than a blob may be, so that one that is too large gets its own error.
    (re.compile(r"/admin/storage/blobs/upload"), RequestLimits(65 * _MEGABYTE, answer_s=60.0)),
    (re.compile(r"/admin/storage/tables/\w+/(new|rows/[\w-]+)"), RequestLimits(12 * _MEGABYTE)),
    # Twenty pictures are encoded one after the other.
    (re.compile(r"/admin/media/upload"), RequestLimits(128 * _MEGABYTE, answer_s=120.0)),
    (re.compile(r"/api/v1/media"), RequestLimits(28 * _MEGABYTE, answer_s=60.0)),
    (re.compile(r"/admin/suppression/import"), RequestLimits(5 * _MEGABYTE, answer_s=None)),
]

# No scripts, nothing from elsewhere, no framing: subscriber pages only need a stylesheet.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
# The admin pages have scripts, all of them our own files, and frames with emails in them.
ADMIN_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# An email in a frame: no scripts, no forms, not our origin, but its own styles and images.
MAIL_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; "
    "style-src 'unsafe-inline'; img-src data: http: https:; frame-ancestors 'self'"
)
# The same as a page of its own, which nobody may frame.
VIEW_POLICY = MAIL_POLICY.replace("frame-ancestors 'self'", "frame-ancestors 'none'")
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",  # links carry tokens
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_BEGUN = "is_body_begun"
ONE_YEAR = "max-age=31536000; includeSubDomains"
TooLate = Callable[[Scope, Receive], Awaitable[Response]]


class TooLarge(Exception):
    """The body of a request is larger than its limit."""


class SecurityMiddleware:
    """The middleware around all others; `too_late` responds when the time limit is over.

    Of an unexpected error it logs the type and place, but neither the text nor a traceback, which
    may quote an address or a token; the server would log all of it.
    """

    def __init__(self, app: ASGIApp, *, is_https: bool, too_late: TooLate) -> None:
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

        limits = limits_for(scope["path"])
        read = _limited(scope, receive, limits.body_bytes)
        try:
            async with asyncio.timeout(limits.answer_s):
                await self._app(scope, read, send_guarded)
        except ClientDisconnect:
            return  # there is nobody to answer
        except TimeoutError:
            log.warning("page_too_late")
            if not is_started:
                answer = await self._too_late(scope, read)
                await answer(scope, receive, send_guarded)
        except Exception as error:  # noqa: BLE001 - the application has answered it
            cause = error.__cause__ or error
            log.error("page_failed", error=type(cause).__name__, at=_place(cause))

    def _add_headers(self, scope: Scope, status: int, headers: MutableHeaders) -> None:
        if scope["path"].startswith("/admin"):
            headers.setdefault("Content-Security-Policy", ADMIN_POLICY)
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        is_file = scope["path"].startswith("/static/")
        is_cached = is_file and status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED)
        headers.setdefault("Cache-Control", "public, max-age=3600" if is_cached else "no-store")
        if self._is_https:
            headers.setdefault("Strict-Transport-Security", ONE_YEAR)


def _place(error: BaseException) -> str:
    """File and line of the innermost frame in our code."""
    frames = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    own = [(file, line) for file, line in frames if file.startswith(OWN_CODE)]
    file, line = (own or frames)[-1]
    return f"{file.removeprefix(OWN_CODE).lstrip('/')}:{line}"


def limits_for(path: str) -> RequestLimits:
    return next((each for path_re, each in REQUEST_LIMITS if path_re.fullmatch(path)), ORDINARY)


def is_body_begun(scope: Scope) -> bool:
    """Whether part of the body was read, so that it cannot be read from its beginning."""
    return _BEGUN in scope.get("state", {})


def _limited(scope: Scope, receive: Receive, bytes_left: int) -> Receive:
    """Count while reading, because Content-Length may be wrong."""
    state = scope.setdefault("state", {})

    async def limited() -> Message:
        nonlocal bytes_left
        state[_BEGUN] = True
        message = await receive()
        bytes_left -= len(message.get("body", b""))
        if bytes_left < 0:
            raise TooLarge
        return message

    return limited
