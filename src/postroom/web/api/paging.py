"""Pages by cursor.

A cursor is the key of the last row that was read, signed together with the collection and the
filters, so that it is valid only for these. It is encrypted as well, because that row may be a
message to another list, and an address in a query would end up in every log on the way.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from postroom.domain.texts import _
from postroom.domain.token import is_signed, sign
from postroom.flow.render import Site
from postroom.web.api.auth import ApiCaller
from postroom.web.api.problems import invalid

LIMIT_MAX = 200
LIMIT_DEFAULT = 50
VALUE_CHARS_MAX = 2000  # longer than the cursor after the longest address


class PageQuery(BaseModel):
    """The query parameters of every collection; filters are added by subclasses."""

    model_config = ConfigDict(extra="forbid")
    limit: int = Field(LIMIT_DEFAULT, ge=1, le=LIMIT_MAX, description="At most this many items.")
    cursor: str = Field(
        default_factory=str,
        max_length=VALUE_CHARS_MAX,
        description="The `next` of the previous page; omit it for the first page.",
        json_schema_extra={"minLength": 1},
    )


class PageRequest(msgspec.Struct, frozen=True):
    site: Site
    path: str
    filters: dict[str, str]  # only those that were sent
    limit: int
    after: str  # "" for the first page

    @property
    def scope(self) -> tuple[str, ...]:
        return self.path, *(f"{name}={self.filters[name]}" for name in sorted(self.filters))

    def respond(self, items: Sequence[Mapping[str, Any]], after: str | None) -> Response:
        """Respond with the page; `after` is the last key of it, None if there are no more pages."""
        cursor = None
        headers = {}
        if after is not None:
            token = sign(self.site.secret, "cursor", *self.scope, after)
            hidden = _crypt(after.encode(), self.site.secret, token)
            cursor = f"{base64.urlsafe_b64encode(hidden).decode().rstrip('=')}.{token}"
            query = urlencode(self.filters | {"limit": self.limit, "cursor": cursor})
            headers["Link"] = f'<{self.site.url}{self.path}?{query}>; rel="next"'
        content = msgspec.json.encode({"items": items, "next": cursor})
        return Response(content, HTTPStatus.OK, headers, "application/json")


def parse_page(caller: ApiCaller, query: PageQuery) -> PageRequest:
    """The requested page; refused if the cursor does not belong to this collection."""
    names = [name for name, _value in caller.request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise invalid(_("A parameter was sent more than once."), names[-1][:60])
    filters = query.model_dump(mode="json", exclude={"limit", "cursor"}, exclude_unset=True)
    site = caller.context.site
    requested = PageRequest(site, caller.request.scope["path"], filters, query.limit, "")
    if "cursor" not in query.model_fields_set:
        return requested
    packed, _dot, token = query.cursor.partition(".")
    with contextlib.suppress(ValueError):
        hidden = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        after = _crypt(hidden, site.secret, token).decode()
        if after and is_signed(token, site.secret, "cursor", *requested.scope, after):
            return msgspec.structs.replace(requested, after=after)
    raise invalid(
        _(
            "“cursor” must be the “next” of a page of this collection, with the same filters. "
            "Start again without it."
        ),
        "cursor",
    )


def _crypt(text: bytes, secret: str, token: str) -> bytes:
    """Encrypt or decrypt with a key stream that only this installation can compute."""
    stream = hashlib.shake_256(f"{secret}\0cursor\0{token}".encode()).digest(len(text))
    return bytes(one ^ other for one, other in zip(text, stream, strict=True))
