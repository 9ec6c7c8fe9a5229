"""Pages by cursor: how many, going on from where, and what stands in the way of rubbish.

A cursor is the key of the last thing looked at, signed together with what was asked for: it fits
only the collection and the filters it was given out for. It is hidden, too: that thing may be a
message to another list, and a query with an address in it would stand in every log on the way.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from postroom.domain.texts import Text, _
from postroom.domain.token import is_signed, sign
from postroom.web.api.auth import ApiCaller
from postroom.web.api.problems import ApiProblem

LIMIT_MAX = 200
LIMIT_UNLESS_TOLD = 50
VALUE_CHARS_MAX = 2000  # of a parameter: longer than the cursor of the longest address

_PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "limit",
        "in": "query",
        "description": "How many at most.",
        "schema": {
            "type": "integer",
            "minimum": 1,
            "maximum": LIMIT_MAX,
            "default": LIMIT_UNLESS_TOLD,
        },
        "example": LIMIT_UNLESS_TOLD,
    },
    {
        "name": "cursor",
        "in": "query",
        "description": "The `next` of the page before; leave it out for the first.",
        "schema": {"type": "string", "minLength": 1},
    },
]


def parameters(*filters: dict[str, Any]) -> list[dict[str, Any]]:
    return [*filters, *_PARAMETERS]


class PageRequest(msgspec.Struct, frozen=True):
    """Which page of which collection."""

    path: str
    filters: dict[str, str]  # as they were sent
    limit: int
    after: str  # "" for the first page

    @property
    def scope(self) -> tuple[str, ...]:
        return self.path, *(f"{name}={self.filters[name]}" for name in sorted(self.filters))


def page_request(request: Request, caller: ApiCaller, *filters: str) -> PageRequest:
    """Limit, cursor and filters; Refused for anything else, so that no typing error goes unseen."""
    sent = _parameters(request, {"limit", "cursor", *filters})
    limit = _limit(sent.pop("limit", str(LIMIT_UNLESS_TOLD)))
    cursor = sent.pop("cursor", None)
    asked = PageRequest(request.scope["path"], sent, limit, "")
    if cursor is None:
        return asked
    return msgspec.structs.replace(asked, after=_opened(cursor, caller, asked))


def page(
    caller: ApiCaller, asked: PageRequest, items: Sequence[Mapping[str, Any]], after: str | None
) -> Response:
    """The answer; `after` is where the next page begins, None if this was the last."""
    cursor = None if after is None else _closed(after, caller, asked)
    headers = {}
    if cursor:
        query = urlencode(asked.filters | {"limit": asked.limit, "cursor": cursor})
        headers["Link"] = f'<{caller.context.site.url}{asked.path}?{query}>; rel="next"'
    content = msgspec.json.encode({"items": items, "next": cursor})
    return Response(content, HTTPStatus.OK, headers, "application/json")


def _parameters(request: Request, known: set[str]) -> dict[str, str]:
    sent: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        shown = name[:60]
        if name not in known:
            raise _wrong(
                shown,
                _(
                    "“{shown}” is not known here: use {known}.",
                    shown=shown,
                    known=" or ".join(sorted(known)),
                ),
            )
        if name in sent:
            raise _wrong(shown, _("“{shown}” stands there twice: name it once.", shown=shown))
        if len(value) > VALUE_CHARS_MAX:
            raise _wrong(
                shown,
                _(
                    "“{shown}” is longer than {limit} characters.",
                    shown=shown,
                    limit=VALUE_CHARS_MAX,
                ),
            )
        sent[name] = value
    return sent


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= len(str(LIMIT_MAX)):
        limit = int(text)
        if 1 <= limit <= LIMIT_MAX:
            return limit
    raise _wrong("limit", _("“limit” must be a number from 1 to {limit}.", limit=LIMIT_MAX))


def _closed(after: str, caller: ApiCaller, asked: PageRequest) -> str:
    token = sign(caller.context.site.secret, "cursor", *asked.scope, after)
    hidden = _veiled(after.encode(), caller, token)
    return f"{base64.urlsafe_b64encode(hidden).decode().rstrip('=')}.{token}"


def _opened(cursor: str, caller: ApiCaller, asked: PageRequest) -> str:
    packed, _, token = cursor.partition(".")
    try:
        hidden = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        after = _veiled(hidden, caller, token).decode()
    except (ValueError, binascii.Error):
        raise _no_cursor() from None
    if not after or not is_signed(token, caller.context.site.secret, "cursor", *asked.scope, after):
        raise _no_cursor()
    return after


def _veiled(text: bytes, caller: ApiCaller, token: str) -> bytes:
    """There and back: a stream that only this installation can make, another for every cursor."""
    seed = f"{caller.context.site.secret}\0cursor\0{token}".encode()
    stream = hashlib.shake_256(seed).digest(len(text))
    return bytes(one ^ other for one, other in zip(text, stream, strict=True))


def _no_cursor() -> ApiProblem:
    return _wrong(
        "cursor",
        _(
            "“cursor” must be the “next” of a page of this collection, with the same "
            "filters: begin anew without it."
        ),
    )


def _wrong(field: str, detail: Text) -> ApiProblem:
    return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, field=field)
