"""Versions: ETag in answers, If-Match in calls (RFC 9110, 13.1.1).

A call that changes or deletes something names the version it means. If that is not the current
one, nothing is overwritten and the answer shows the current one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from postroom.domain.texts import _
from postroom.storage.port import Conflict
from postroom.web.api.problems import ApiProblem

_TAG = re.compile(r'(W/)?"[\x21\x23-\x7e\x80-\xff]*"')
ANY = "*"
T = TypeVar("T")


class SeenVersion(msgspec.Struct, frozen=True):
    """What is shown of a row, and its etag."""

    data: dict[str, Any]
    etag: str


def entity_tag(etag: str) -> str:
    """An etag of storage as an entity tag: engines use characters that a header may not have."""
    return f'"{hashlib.sha256(etag.encode()).hexdigest()[:24]}"'


def shown(seen: SeenVersion, status: int = HTTPStatus.OK, **headers: str) -> Response:
    content = msgspec.json.encode(seen.data)
    return Response(content, status, {"ETag": entity_tag(seen.etag), **headers}, "application/json")


async def change(
    if_match: str | None,
    look: Callable[[], Awaitable[SeenVersion]],
    act: Callable[[str], Awaitable[T]],
) -> T:
    """Act on the version that is meant, or refuse and show the current one.

    Somebody else may change it between the look and the act: `act` gets the etag, and raises
    Conflict then.
    """
    if if_match is None:
        raise ApiProblem(
            HTTPStatus.PRECONDITION_REQUIRED,
            _("Send the ETag of your last GET as “If-Match”, or “*” for any version."),
            field="If-Match",
        )
    seen = await look()
    check_meant(if_match, seen)
    try:
        return await act(seen.etag)
    except Conflict:
        raise _stale(await look()) from None


def check_meant(if_match: str | None, seen: SeenVersion) -> None:
    """No tag means any version. A weak tag never matches (RFC 9110, 13.1.1)."""
    named = ANY if if_match is None else if_match.strip()
    tags = [found[0] for found in _TAG.finditer(named)]
    if named != ANY and entity_tag(seen.etag) not in tags:
        raise _stale(seen)


def _stale(seen: SeenVersion) -> ApiProblem:
    return ApiProblem(
        HTTPStatus.PRECONDITION_FAILED,
        _("It has changed since. Check “current”, and try again with its ETag."),
        {"ETag": entity_tag(seen.etag)},
        current=seen.data,
    )
