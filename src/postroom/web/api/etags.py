"""Versions of what is shown: ETag on the way out, If-Match on the way in (RFC 9110, 13.1.1).

Whoever changes or deletes says which version they mean. Who means another than the one that stands
there is shown that one, and nothing is overwritten.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from postroom.domain.texts import _
from postroom.storage.port import Conflict
from postroom.web.api.problems import ApiProblem

_TAG = re.compile(r'(W/)?"[\x21\x23-\x7e\x80-\xff]*"')
ANY = "*"
T = TypeVar("T")


class SeenVersion(msgspec.Struct, frozen=True):
    """A thing as it stands, and the etag of its row."""

    data: dict[str, Any]
    etag: str


def entity_tag(etag: str) -> str:
    """An etag of storage in characters that every engine's fits into."""
    return f'"{hashlib.sha256(etag.encode()).hexdigest()[:24]}"'


def shown(seen: SeenVersion, status: int = HTTPStatus.OK, **headers: str) -> Response:
    content = msgspec.json.encode(seen.data)
    told = {"ETag": entity_tag(seen.etag), **headers}
    return Response(content, status, told, "application/json")


async def change(
    request: Request,
    look: Callable[[], Awaitable[SeenVersion]],
    act: Callable[[str], Awaitable[T]],
) -> T:
    """Act on the version that is meant, or show the one that stands there.

    Between the look and the act somebody else may win: `act` gets the etag and says Conflict.
    """
    if "if-match" not in request.headers:
        raise ApiProblem(
            HTTPStatus.PRECONDITION_REQUIRED,
            _("Say which version you mean: send the ETag of your last GET as “If-Match”, or “*”."),
            field="If-Match",
        )
    seen = await look()
    check_meant(request, seen)
    try:
        return await act(seen.etag)
    except Conflict:
        raise _stale(await look()) from None


def check_meant(request: Request, seen: SeenVersion) -> None:
    """Whoever names no version means any. A weak tag names none for sure, so it never fits."""
    named = request.headers.get("if-match", ANY).strip()
    tags = [found[0] for found in _TAG.finditer(named)]
    if named != ANY and entity_tag(seen.etag) not in tags:
        raise _stale(seen)


def _stale(seen: SeenVersion) -> ApiProblem:
    return ApiProblem(
        HTTPStatus.PRECONDITION_FAILED,
        _("Somebody has changed it since: look at “current”, and try again with its ETag."),
        {"ETag": entity_tag(seen.etag)},
        current=seen.data,
    )
