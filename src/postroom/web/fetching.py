"""Fetches a page of Amazon SNS: a certificate, or the confirmation of a subscription.

The caller checks the host. No redirect is followed, so nobody can lead us to another one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

FETCH_S_MAX = 5.0
FETCHED_BYTES_MAX = 64 * 1024

# The body of the page; None if it cannot be fetched now.
Fetch = Callable[[str], Awaitable[bytes | None]]


async def fetch_page(url: str) -> bytes | None:
    """GET the page with verified TLS, within seconds and up to a size; None if that fails."""
    import httpx2

    try:
        async with (
            httpx2.AsyncClient(timeout=FETCH_S_MAX, follow_redirects=False) as client,
            client.stream("GET", url) as answer,
        ):
            return await _body(answer) if answer.status_code == httpx2.codes.OK else None
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return None


async def _body(answer: httpx2.Response) -> bytes | None:
    body = b""
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > FETCHED_BYTES_MAX:
            return None
    return body
