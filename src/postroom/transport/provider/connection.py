"""Calls to a provider over HTTP: one connection per lane, and every failure is a value.

What matters after an accident is whether the server can have acted on the request. It cannot
before it has the whole body, so a call that broke earlier was not sent; after that, the reply is
lost and nobody knows.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import httpx2
import msgspec

from postroom.domain.trouble import Fault, TroubleKind, fault_of_error

REPLY_BYTES_MAX = 256 * 1024  # far more than 50 results of SES; the rest is not read
CHUNK_BYTES = 64 * 1024  # of a body that is written at a time
IDLE_S_MAX = 2.0  # a longer idle connection is replaced, because servers close them silently


class HttpTimeouts(msgspec.Struct, frozen=True):
    """How long to wait; a shorter `call_s` makes duplicates."""

    connect_s: float = 10.0
    silence_s: float = 60.0  # without a byte, either way
    call_s: float = 120.0  # for the whole call, even if bytes trickle in


class HttpRequest(msgspec.Struct, frozen=True):
    """A request; its headers may hold a secret, so it is never logged."""

    method: str
    path: str  # with its query
    headers: dict[str, str] = {}
    body: bytes = b""

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.path}, {len(self.body)} bytes)"


class HttpReply(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str] = {}  # names in lower case
    body: bytes = b""  # up to REPLY_BYTES_MAX, or up to where the connection broke

    def json(self) -> object:
        """The decoded body; None if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


class NotSent(msgspec.Struct, frozen=True):
    """The server cannot have acted, because it did not get the whole request."""

    fault: Fault


class ReplyLost(msgspec.Struct, frozen=True):
    """The whole request was written, but no answer was received."""

    words: str
    is_silent: bool = False  # no answer in time


class CallStopped(msgspec.Struct, frozen=True):
    """We were asked to stop just before the body was written."""


CallResult = HttpReply | NotSent | ReplyLost | CallStopped


@dataclass
class _WatchedBody:
    """The body in chunks; notes when the server may have all of it."""

    content: bytes
    may_write: Callable[[], bool]
    is_stopped: bool = False
    is_complete: bool = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if not self.may_write():
            self.is_stopped = True
            raise _StopWriting
        for start in range(0, len(self.content), CHUNK_BYTES):
            self.is_complete = start + CHUNK_BYTES >= len(self.content)
            yield self.content[start : start + CHUNK_BYTES]


class _StopWriting(Exception):
    """Leaves the HTTP library in the middle of a request; the connection is closed."""


@dataclass
class ProviderConnection:
    """One connection to a provider; it is opened when it is first used."""

    url: str  # scheme and host, without a slash at the end
    context: ssl.SSLContext | None = None
    timeouts: HttpTimeouts = field(default_factory=HttpTimeouts)
    secrets: Sequence[str] = field(default=(), repr=False)  # taken out of every reply
    _client: httpx2.AsyncClient | None = field(default=None, repr=False)

    async def call(
        self,
        request: HttpRequest,
        may_write: Callable[[], bool] = lambda: True,
        call_s: float | None = None,
    ) -> CallResult:
        """Make one call, once; `may_write` is asked just before the body is written."""
        body = _WatchedBody(request.body, may_write)
        headers = {**request.headers, "accept-encoding": "identity"}
        if request.body:
            headers["content-length"] = str(len(request.body))
        try:
            async with (
                asyncio.timeout(call_s or self.timeouts.call_s),
                self._opened().stream(
                    request.method,
                    self.url + request.path,
                    headers=headers,
                    content=body if request.body else None,
                ) as response,
            ):
                content = await _read(response)
                return self._reply(response.status_code, response.headers, content)
        except _StopWriting:
            return CallStopped()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as error:
            if body.is_complete:
                return ReplyLost(_words_of(error), is_silent=_is_silence(error))
            return NotSent(_fault_of(error))

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            seconds = self.timeouts.silence_s
            self._client = httpx2.AsyncClient(
                verify=self.context or ssl.create_default_context(),
                timeout=httpx2.Timeout(seconds, connect=self.timeouts.connect_s),
                limits=httpx2.Limits(max_connections=1, keepalive_expiry=IDLE_S_MAX),
                trust_env=self.url.startswith("https:"),  # no proxy for a stub on this machine
            )
        return self._client

    def _reply(self, status: int, headers: Mapping[str, str], content: bytes) -> HttpReply:
        for secret in self.secrets:
            content = content.replace(secret.encode(), b"...")
        return HttpReply(status, {name.lower(): value for name, value in headers.items()}, content)


async def _read(response: httpx2.Response) -> bytes:
    """Read a bounded body; the status counts even if the rest of the reply breaks off."""
    content = bytearray()
    try:
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) >= REPLY_BYTES_MAX:
                break
    except (httpx2.HTTPError, OSError):
        pass
    return bytes(content[:REPLY_BYTES_MAX])


def _is_silence(error: Exception) -> bool:
    return isinstance(error, (httpx2.TimeoutException, TimeoutError))


def _words_of(error: Exception) -> str:
    """Say what happened in our own words: those of a library may repeat a header."""
    if _is_silence(error):
        return "no answer in time"
    if isinstance(error, httpx2.ProtocolError):
        return "the answer was not HTTP, or the server closed the connection"
    return "the connection was lost"


def _fault_of(error: Exception) -> Fault:
    if _is_silence(error):
        return Fault(TroubleKind.SILENT)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (OSError, UnicodeError)):
            return fault_of_error(cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.ConnectError):
        return Fault(TroubleKind.CONNECT)
    return Fault(TroubleKind.BROKEN, _words_of(error))
