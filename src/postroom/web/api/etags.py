"""Versions: ETag in responses, If-Match in requests (RFC 9110, 13.1.1).

A call that changes or deletes something names the version it expects. If that is not the current
one, nothing is overwritten and the response shows the current one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from postroom.domain.texts import _
from postroom.records.stored import Stored
from postroom.storage.port import Conflict
from postroom.web.api.problems import ApiProblem

_TAG = re.compile(r'(W/)?"[\x21\x23-\x7e\x80-\xff]*"')
Representation = Stored[dict[str, Any]]  # a row as callers see it, and its etag in storage


def entity_tag(etag: str) -> str:
    """An etag of storage as an entity tag, because engines use characters no header may have."""
    return f'"{hashlib.sha256(etag.encode()).hexdigest()[:24]}"'


def respond(current: Representation, **headers: str) -> Response:
    content = msgspec.json.encode(current.value)
    headers["ETag"] = entity_tag(current.etag)
    return Response(content, HTTPStatus.OK, headers, "application/json")


@asynccontextmanager
async def expected_version(
    if_match: str | None, read: Callable[[], Awaitable[Representation]]
) -> AsyncIterator[str]:
    """The etag of the version to change; if it is not the current one, refuse and show that one.

    The body raises Conflict if somebody else changes the row after `read`.
    """
    if if_match is None:
        raise ApiProblem(
            428,
            _("Send the ETag of your last GET as “If-Match”, or “*” for any version."),
            field="If-Match",
        )
    current = await read()
    check_if_match(if_match, current)
    try:
        yield current.etag
    except Conflict:
        raise _stale(await read()) from None


def check_if_match(if_match: str | None, current: Representation) -> None:
    """Accept any version without the header. A weak tag never matches (RFC 9110, 13.1.1)."""
    if if_match is None or if_match.strip() == "*":
        return
    if entity_tag(current.etag) not in [found[0] for found in _TAG.finditer(if_match)]:
        raise _stale(current)


def _stale(current: Representation) -> ApiProblem:
    return ApiProblem(
        412,
        _("It has changed since you read it. Check “current”, then try again with its ETag."),
        {"ETag": entity_tag(current.etag)},
        current=current.value,
    )
