"""POST /subscribe: a client's site signs somebody up.

The response does not reveal whether an address is on the list, and a call may be repeated.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter
from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from postroom.domain.address import parse_address
from postroom.domain.errors import NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.subscriber import clean_attributes
from postroom.domain.texts import _
from postroom.flow import subscribe as stage
from postroom.web.api.auth import Joiner, throttle, within_time_limit
from postroom.web.api.openapi import WITH_BODY, Accepted, RequestBody, documented, example
from postroom.web.api.problems import ApiProblem
from postroom.web.api.route import ApiRoute
from postroom.web.throttles import ADDRESSES_CALLED

router = APIRouter(route_class=ApiRoute)


def check_address(text: str) -> str:
    parse_address(text)
    return text


ExistingList = Annotated[str, AfterValidator(check_list_name)]
EmailAddress = Annotated[str, AfterValidator(check_address)]
Attributes = Annotated[dict[str, str], AfterValidator(clean_attributes)]


class SignUp(RequestBody):
    model_config = example(
        {"list": "contoso1", "email": "student1@contoso.edu", "attributes": {"name": "Ada"}}
    )
    list: ExistingList
    email: EmailAddress
    attributes: Attributes = Field(default_factory=dict)


@router.post(
    "/subscribe",
    summary="Sign somebody up for a list",
    tags=["subscribe"],
    **documented(Accepted, "New addresses are asked to confirm.", 404, 409, *WITH_BODY, status=202),
)
async def subscribe(request: Request, caller: Joiner, call: SignUp) -> Response:
    """Store the address unverified and queue an email with a link to confirm it.

    The response does not reveal whether the address is on the list. Calls may be repeated.
    """
    caller.check_may_use(call.list)
    address = parse_address(call.email)
    too_many = _("This address was signed up too many times.")
    throttle(request, ADDRESSES_CALLED, address.key, caller.now, too_many)
    try:
        await within_time_limit(stage.sign_up(caller.act, call.list, address, call.attributes))
    except NotFound:
        raise ApiProblem(404, _("There is no list {name}.", name=call.list), field="list") from None
    return Response(b'{"status":"accepted"}', HTTPStatus.ACCEPTED, media_type="application/json")
