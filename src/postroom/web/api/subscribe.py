"""POST /subscribe: a client's site signs somebody up.

The answer is the same whether an address is known or not, and a call may be repeated: asking twice
is asking once.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from postroom.domain.address import parse_address
from postroom.domain.errors import NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.subscriber import clean_attributes
from postroom.domain.texts import _
from postroom.flow import subscribe as stage
from postroom.web.api.auth import Joiner, answered, count
from postroom.web.api.body import Member, read_body
from postroom.web.api.openapi import ACCEPTED, WITH_BODY, responses, taking
from postroom.web.api.problems import ApiProblem, ApiRoute
from postroom.web.throttles import ADDRESSES_CALLED

router = APIRouter(route_class=ApiRoute)
_ATTRIBUTES = {"type": "object", "additionalProperties": {"type": "string"}}


def check_address(text: str) -> str:
    parse_address(text)
    return text


LIST_NAME = Member(_("a text, the name of a list"), check_list_name)
ADDRESS = Member(_("a text, the address"), check_address)
ATTRIBUTES = Member(_("an object whose values are texts"), clean_attributes, _ATTRIBUTES)


class SignUp(msgspec.Struct, forbid_unknown_fields=True):
    list: Annotated[str, LIST_NAME]
    email: Annotated[str, ADDRESS]
    attributes: Annotated[dict[str, str], ATTRIBUTES] = {}


_EXAMPLE: dict[str, Any] = {
    "list": "contoso1",
    "email": "student1@contoso.edu",
    "attributes": {"name": "Ada"},
}


@router.post(
    "/subscribe",
    status_code=HTTPStatus.ACCEPTED,
    summary="Sign somebody up for a list",
    tags=["subscribe"],
    responses=responses(
        202,
        "Accepted. Who is not on the list yet gets a mail to confirm.",
        ACCEPTED,
        {"status": "accepted"},
        refused=(404, 409, *WITH_BODY),
    ),
    openapi_extra={"requestBody": taking(SignUp, _EXAMPLE)},
)
async def subscribe(request: Request, caller: Joiner) -> Response:
    """Store the address unverified and queue a mail with a link to confirm it.

    The answer does not tell whether the address is on the list. Calls may be repeated.
    """
    call = await read_body(request, SignUp)
    caller.check_may_use(call.list)
    address = parse_address(call.email)
    count(request, ADDRESSES_CALLED, address.key, caller.now, _("This address was sent too often"))
    try:
        await answered(stage.sign_up(caller.act, call.list, address, call.attributes))
    except NotFound:
        raise ApiProblem(
            HTTPStatus.NOT_FOUND,
            _("There is no list {name}: check the name.", name=call.list),
            field="list",
        ) from None
    return Response(b'{"status":"accepted"}', HTTPStatus.ACCEPTED, media_type="application/json")
