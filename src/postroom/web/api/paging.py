"""Pages by cursor.

A cursor is the key of the last row that was read, signed together with the collection and the
filters: it is valid for these only. It is encrypted, too: that row may be a message to another
list, and an address in a query would be in every log on the way.
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
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from postroom.domain.texts import _
from postroom.domain.token import is_signed, sign
from postroom.web.api.auth import ApiCaller
from postroom.web.api.problems import ApiProblem, invalid

LIMIT_MAX = 200
LIMIT_DEFAULT = 50
VALUE_CHARS_MAX = 2000  # longer than the cursor after the longest address


class PageQuery(BaseModel):
    """Which page; a collection with filters adds them."""

    model_config = ConfigDict(extra="forbid")
    limit: int = Field(LIMIT_DEFAULT, ge=1, le=LIMIT_MAX, description="At most this many items.")
    cursor: str = Field(
        default_factory=str,
        max_length=VALUE_CHARS_MAX,
        description="The `next` of the page before; leave it out for the first page.",
        json_schema_extra={"minLength": 1},
    )


class PageRequest(msgspec.Struct, frozen=True):
    """The page that was asked for."""

    path: str
    filters: dict[str, str]  # that were sent
    limit: int
    after: str  # "" for the first page

    @property
    def scope(self) -> tuple[str, ...]:
        return self.path, *(f"{name}={self.filters[name]}" for name in sorted(self.filters))


def page_request(request: Request, caller: ApiCaller, query: PageQuery) -> PageRequest:
    """The page that was asked for; refused if the cursor does not belong to this collection."""
    names = [name for name, _value in request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise invalid(_("A parameter is there more than once."), names[-1][:60])
    filters = query.model_dump(mode="json", exclude={"limit", "cursor"}, exclude_unset=True)
    asked = PageRequest(request.scope["path"], filters, query.limit, "")
    if "cursor" not in query.model_fields_set:
        return asked
    return msgspec.structs.replace(asked, after=_opened(query.cursor, caller, asked))


def page(
    caller: ApiCaller, asked: PageRequest, items: Sequence[Mapping[str, Any]], after: str | None
) -> Response:
    """The answer; `after` is the key before the next page, None if this is the last."""
    cursor = None if after is None else _closed(after, caller, asked)
    headers = {}
    if cursor:
        query = urlencode(asked.filters | {"limit": asked.limit, "cursor": cursor})
        headers["Link"] = f'<{caller.context.site.url}{asked.path}?{query}>; rel="next"'
    content = msgspec.json.encode({"items": items, "next": cursor})
    return Response(content, HTTPStatus.OK, headers, "application/json")


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
    """Encrypt or decrypt with a key stream that only this installation can make."""
    seed = f"{caller.context.site.secret}\0cursor\0{token}".encode()
    stream = hashlib.shake_256(seed).digest(len(text))
    return bytes(one ^ other for one, other in zip(text, stream, strict=True))


def _no_cursor() -> ApiProblem:
    return invalid(
        _(
            "“cursor” must be the “next” of a page of this collection, with the same filters. "
            "Start again without it."
        ),
        "cursor",
    )
