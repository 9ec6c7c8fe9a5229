"""/suppressions: addresses that get no more email, with the reason and the scope.

Entries concern all lists, so only an access key that is not limited to some lists may use them.
"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, Field
from starlette.responses import Response

from postroom.actions import manage_suppressions
from postroom.actions.manage_suppressions import cause_data, suppression_data
from postroom.domain.address import STORAGE_KEY_CHARS_MAX, Address, key_prefix, parse_address
from postroom.domain.suppression import (
    LISTS_MAX,
    NOTE_CHARS_MAX,
    SuppressionReason,
    SuppressionScope,
    check_lists,
    check_note,
)
from postroom.domain.texts import _
from postroom.records import suppressions
from postroom.web.api import etags
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.etags import Representation, expected_version
from postroom.web.api.lists import ExistingList
from postroom.web.api.openapi import (
    IfMatch,
    RequestBody,
    ResultPage,
    documented,
    example,
)
from postroom.web.api.paging import PageQuery, parse_page
from postroom.web.api.problems import invalid
from postroom.web.api.route import ApiRoute
from postroom.web.api.subscribers import AddressPart

router = APIRouter(prefix="/suppressions", route_class=ApiRoute, tags=["suppressions"])
_EXAMPLE: dict[str, Any] = {
    "address": "student1@contoso.edu",
    "scope": "all",
    "lists": [],
    "reason": "dead",
    "since": "2026-11-15T09:00:02Z",
    "source": "smtp",
    "status": "5.1.1",
    "words": "550 5.1.1 No such user",
    "note": "",
}
_EXPLAINED = _EXAMPLE | {
    "message": "639305609818053486",
    "subject": "New lecture series",
    "sent_at": "2026-11-15T09:00:01Z",
    "confirmation": False,
}


class NewSuppression(RequestBody):
    model_config = example({"scope": "bulk", "note": "asked by phone"})
    scope: SuppressionScope = Field(
        SuppressionScope.BULK,
        description="`list`: messages to `lists`; `bulk`: messages to all lists; `all`: also "
        "confirmation and test emails.",
    )
    lists: list[ExistingList] = Field(
        default_factory=list, max_length=LISTS_MAX, description="For the scope `list` only."
    )
    note: Annotated[
        str, AfterValidator(check_note), Field(json_schema_extra={"maxLength": NOTE_CHARS_MAX})
    ] = ""


class SuppressionView(BaseModel):
    model_config = example(_EXAMPLE)
    address: str
    scope: SuppressionScope
    lists: list[str]
    reason: SuppressionReason
    since: datetime
    source: str = Field(description="Who reported or added it.")
    status: str = Field(description="The enhanced status code of the mail server.")
    words: str = Field(description="The reply of the mail server.")
    note: str


class ExplainedSuppression(SuppressionView):
    model_config = example(_EXPLAINED)
    message: str = Field(description="The ref of the message that led to it; empty if none did.")
    subject: str = Field(description="The subject of that message; empty if it was deleted.")
    sent_at: datetime | None
    confirmation: bool = Field(description="Whether a confirmation email led to it.")


class SuppressionPageQuery(PageQuery):
    address_prefix: str = Field("", description="Only addresses that start with this.")


@router.get("", **documented(ResultPage[SuppressionView], "One page of entries."))
async def show_suppressions(
    caller: Reader, query: Annotated[SuppressionPageQuery, Query()]
) -> Response:
    """Show the suppressed addresses, sorted by address.

    Erased people are not shown, because only a hash of their address is stored.
    """
    caller.check_is_for_every_list()
    requested = parse_page(caller, query)
    prefix = key_prefix(query.address_prefix)
    if len(prefix) > STORAGE_KEY_CHARS_MAX:
        raise invalid(_("No address starts with this text."), "address_prefix")
    page = await suppressions.page(
        caller.tables, prefix=prefix, after=requested.after, limit=requested.limit
    )
    items = [suppression_data(each) for each in page.entries]
    return requested.respond(items, page.next)


@router.get("/{address:path}", **documented(ExplainedSuppression, "The entry."))
async def show_suppression(caller: Reader, address: AddressPart) -> Response:
    """Explain why an address gets no email.

    404 if the address is not suppressed. An erased person is found by their address.
    """
    caller.check_is_for_every_list()
    return etags.respond(await _represent(caller, parse_address(address)))


@router.put("/{address:path}", **documented(ExplainedSuppression, "The entry."))
async def put_suppression(caller: Writer, address: AddressPart, call: NewSuppression) -> Response:
    """Suppress an address, or widen its entry.

    An existing entry can be widened but not narrowed. The call may be repeated.

    Subscriptions are not changed. Senders skip the address within seconds, even if it is queued.
    """
    caller.check_is_for_every_list()
    parsed = parse_address(address)
    check_lists(call.scope, call.lists)
    await manage_suppressions.add(
        caller.act,
        caller.context.site.secret,
        parsed,
        call.scope,
        list_names=call.lists,
        note=call.note,
    )
    return etags.respond(await _represent(caller, parsed))


@router.delete("/{address:path}", **documented(None, "The entry is removed.", status=204))
async def remove_suppression(
    caller: Writer, address: AddressPart, if_match: IfMatch = None
) -> Response:
    """Remove an address from the suppression list.

    They get the next message to each list they are still subscribed to.
    """
    caller.check_is_for_every_list()
    parsed = parse_address(address)
    secret = caller.context.site.secret
    async with expected_version(if_match, lambda: _represent(caller, parsed)) as etag:
        await manage_suppressions.remove(caller.act, secret, parsed, etag=etag)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _represent(caller: ApiCaller, address: Address) -> Representation:
    secret = caller.context.site.secret
    entry, etag = await manage_suppressions.read(caller.tables, secret, address)
    cause = await manage_suppressions.find_cause(caller.tables, secret, entry)
    return Representation(suppression_data(entry, address) | cause_data(cause), etag)
