"""A storage account with bad days: it stands before Azurite and does to requests what Azure may do.

Every request takes the next fault of the plan, or passes if there is none left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from enum import StrEnum

import aiohttp
from aiohttp import web
from yarl import URL

from postroom.storage.azure.account import Account, parse_account
from tests.contract.azurite import azurite

REQUEST_BYTES_MAX = 8 * 1024 * 1024
HOP_BY_HOP = {"connection", "content-length", "keep-alive", "transfer-encoding", "date"}


SIGNED = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")  # to be passed as they came


class Fault(StrEnum):
    NONE = "none"
    BUSY = "busy"  # 503 ServerBusy
    THROTTLED = "throttled"  # 429, with a time to come back
    RESET = "reset"  # the line breaks before anything was done
    LOST = "lost"  # done, but the answer is lost
    HANGS = "hangs"  # neither done nor answered
    INNER = "inner"  # 500: who knows
    GATEWAY = "gateway"  # 503 of something on the way: who knows
    FORBIDDEN = "forbidden"  # 403
    EMPTY_PAGE = "empty page"  # no rows, and a continuation


class FaultyAzure:
    def __init__(self) -> None:
        self.plan: list[Fault] = []
        self.holds: Callable[[web.Request], bool] = lambda _request: False  # these hang as well
        self.seen: list[str] = []  # what arrived: the method and the last part of the path
        self._released = asyncio.Event()
        self._client = aiohttp.ClientSession(auto_decompress=False)

    def expect(self, *faults: Fault) -> None:
        self.plan = list(faults)
        self.seen.clear()

    async def answer(self, upstream: URL, request: web.Request) -> web.StreamResponse:
        self.seen.append(f"{request.method} {request.path.rpartition('/')[2]}")
        fault = self.plan.pop(0) if self.plan else Fault.NONE
        if self.holds(request):
            fault = Fault.HANGS
        match fault:
            case Fault.NONE:
                return await self._passed(upstream, request)
            case Fault.HANGS:
                await self._released.wait()
                return web.Response(status=500)
            case Fault.RESET:
                return _hang_up(request)
            case Fault.LOST:
                await self._passed(upstream, request)
                return _hang_up(request)
            case Fault.EMPTY_PAGE:
                return _empty_page(upstream)
        return REFUSALS[fault]()

    async def close(self) -> None:
        self._released.set()
        await self._client.close()

    async def _passed(self, upstream: URL, request: web.Request) -> web.Response:
        url = upstream.with_path(request.rel_url.raw_path, encoded=True)
        url = url.with_query(None).join(URL(request.rel_url.raw_path_qs, encoded=True))
        async with self._client.request(
            request.method,
            url,
            headers=request.headers,
            data=await request.read(),
            skip_auto_headers=SIGNED,
        ) as found:
            kept = {name: v for name, v in found.headers.items() if name.lower() not in HOP_BY_HOP}
            return web.Response(status=found.status, headers=kept, body=await found.read())


@contextlib.asynccontextmanager
async def faulty_azure() -> AsyncIterator[tuple[FaultyAzure, Account]]:
    """The faulty account before this process's Azurite, on ports of its own."""
    faulty, emulator = FaultyAzure(), azurite().account
    upstreams = {
        "blob": emulator.blob_url,
        "queue": emulator.queue_url,
        "table": emulator.table_url,
    }
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(faulty.close)
        ports = {name: await _serve(stack, faulty, URL(url)) for name, url in upstreams.items()}
        options = "&".join(f"{name}={port}" for name, port in ports.items())
        yield faulty, parse_account(f"emulator?{options}")


async def _serve(stack: contextlib.AsyncExitStack, faulty: FaultyAzure, upstream: URL) -> int:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, web.Request)
        return await faulty.answer(upstream, request)

    app = web.Application(client_max_size=REQUEST_BYTES_MAX)
    app.router.add_route("*", "/{rest:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return int(runner.addresses[0][1])


def _hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _empty_page(upstream: URL) -> web.Response:
    """As the service answers when it has looked long enough and found nothing yet."""
    body = json.dumps({"odata.metadata": f"{upstream}/$metadata#Tables", "value": []})
    return web.Response(
        text=body,
        content_type="application/json",
        headers={"x-ms-continuation-NextPartitionKey": "AA==", "x-ms-continuation-NextRowKey": ""},
    )


def _refusal(status: int, code: str, **headers: str) -> Callable[[], web.Response]:
    """The code in all the places where one of the three services has it."""
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'
    known = {"x-ms-error-code": code, **headers} if code else headers
    return lambda: web.Response(
        status=status, body=body.encode(), headers=known, content_type="application/xml"
    )


REFUSALS: dict[Fault, Callable[[], web.Response]] = {
    Fault.BUSY: _refusal(503, "ServerBusy"),
    Fault.THROTTLED: _refusal(429, "TooManyRequests", **{"Retry-After": "17"}),
    Fault.INNER: _refusal(500, "OperationTimedOut"),
    Fault.GATEWAY: _refusal(503, ""),
    Fault.FORBIDDEN: _refusal(403, "AuthorizationFailure"),
}
