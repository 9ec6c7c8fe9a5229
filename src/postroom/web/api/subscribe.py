"""POST /subscribe: a client's site signs somebody up.

The answer is the same whether an address is known or not, and a call may be repeated.
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
from postroom.web.api.auth import Joiner, answered, count
from postroom.web.api.openapi import WITH_BODY, Accepted, RequestBody, answers, example
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
        {
            "list": "contoso1",
            "email": "student1@contoso.edu",
            "attributes": {"name": "Ada"},
        }
    )
    list: ExistingList
    email: EmailAddress
    attributes: Attributes = Field(default_factory=dict)


@router.post(
    "/subscribe",
    status_code=HTTPStatus.ACCEPTED,
    summary="Sign somebody up for a list",
    tags=["subscribe"],
    response_model=Accepted,
    response_description="Accepted. Anybody who is not on the list yet gets an email to confirm.",
    responses=answers(202, 404, 409, *WITH_BODY),
)
async def subscribe(request: Request, caller: Joiner, call: SignUp) -> Response:
    """Store the address unverified and queue an email with a link to confirm it.

    The answer does not reveal whether the address is on the list. Calls may be repeated.
    """
    caller.check_may_use(call.list)
    address = parse_address(call.email)
    too_many = _("Too many sign-ups of this address.")
    count(request, ADDRESSES_CALLED, address.key, caller.now, too_many)
    try:
        await answered(stage.sign_up(caller.act, call.list, address, call.attributes))
    except NotFound:
        raise ApiProblem(
            HTTPStatus.NOT_FOUND, _("There is no list {name}.", name=call.list), field="list"
        ) from None
    return Response(b'{"status":"accepted"}', HTTPStatus.ACCEPTED, media_type="application/json")
