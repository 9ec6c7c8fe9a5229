"""Pages by cursor.

A cursor is the key of the last row that was read, sealed for the collection and the filters, so
that it is valid only for these. It is encrypted, because that row may be a message to another list,
and an address in a query would end up in every log on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from postroom.domain.seal import seal, unseal
from postroom.domain.texts import _
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
    after: str = ""  # for the first page

    @property
    def purpose(self) -> str:
        return f"cursor of {self.path}?{urlencode(sorted(self.filters.items()))}"

    def respond(self, items: Sequence[Mapping[str, Any]], after: str | None) -> Response:
        """Respond with the page; `after` is the last key of it, None if there are no more pages."""
        cursor = None
        headers = {}
        if after is not None:
            cursor = seal(self.site.secret, self.purpose, after)
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
    requested = PageRequest(site, caller.request.scope["path"], filters, query.limit)
    if "cursor" not in query.model_fields_set:
        return requested
    after = unseal(site.secret, requested.purpose, query.cursor)
    if after is None:
        raise invalid(
            _(
                "“cursor” must be the “next” of a page of this collection, with the same filters. "
                "Start again without it."
            ),
            "cursor",
        )
    return msgspec.structs.replace(requested, after=after)
