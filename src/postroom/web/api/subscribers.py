"""/subscribe, with which a client's site signs somebody up, and /lists/{name}/subscribers."""

from __future__ import annotations

import asyncio
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field, StrictBool
from starlette.responses import Response

from postroom.act import Act
from postroom.actions import ask_to_confirm, move_subscriber
from postroom.actions.move_subscriber import Destination
from postroom.domain.address import STORAGE_KEY_CHARS_MAX, Address, key_prefix, parse_address
from postroom.domain.asking import CANNOT_ASK_TEXTS
from postroom.domain.errors import AlreadyThere, NotFound, WrongState
from postroom.domain.subscriber import (
    INACTIVE_TEXTS,
    AlreadySubscribed,
    InactiveReason,
    Subscriber,
    SubscriberFilter,
    clean_attributes,
    subscription,
)
from postroom.domain.texts import _
from postroom.flow import subscribe
from postroom.records import subscribers
from postroom.records.stored import Stored
from postroom.web.api import etags
from postroom.web.api.auth import STORAGE_S_MAX, ApiCaller, Joiner, Reader, Writer
from postroom.web.api.etags import Representation, expected_version
from postroom.web.api.idempotency import create_once
from postroom.web.api.lists import ExistingList, ListName, require_list
from postroom.web.api.openapi import (
    ABSENT,
    Accepted,
    IdempotencyKey,
    IfMatch,
    RequestBody,
    ResultPage,
    documented,
    example,
)
from postroom.web.api.paging import PageQuery, parse_page
from postroom.web.api.problems import ApiProblem, invalid
from postroom.web.api.route import ApiRoute
from postroom.web.throttles import ADDRESSES_CALLED

sign_ups = APIRouter(route_class=ApiRoute, tags=["subscribe"])
router = APIRouter(prefix="/lists/{name}/subscribers", route_class=ApiRoute, tags=["subscribers"])


def check_address(text: str) -> str:
    parse_address(text)
    return text


EmailAddress = Annotated[str, AfterValidator(check_address)]
Attributes = Annotated[dict[str, str], AfterValidator(clean_attributes)]
AddressPart = Annotated[
    str, Path(description="The address, percent-encoded.", examples=["student1@contoso.edu"])
]
_EXAMPLE: dict[str, Any] = {
    "list": "contoso1",
    "address": "student1@contoso.edu",
    "status": "verified",
    "verified": True,
    "since": "2026-11-15T09:00:00Z",
    "attributes": {"name": "Ada"},
}
Verified = Annotated[StrictBool, Field(description="Whether they have confirmed.")]
BringBack = Annotated[
    StrictBool,
    Field(description="Add them even if they unsubscribed. Use it only if they asked for it."),
]


class SignUp(RequestBody):
    model_config = example(
        {"list": "contoso1", "email": "student1@contoso.edu", "attributes": {"name": "Ada"}}
    )
    list: ExistingList
    email: EmailAddress
    attributes: Attributes = Field(default_factory=dict)


class NewSubscriber(RequestBody):
    model_config = example({name: _EXAMPLE[name] for name in ("address", "verified", "attributes")})
    address: EmailAddress
    verified: Verified = False
    attributes: Attributes = Field(default_factory=dict)
    bring_back: BringBack = False


class SubscriberChange(RequestBody):
    model_config = example({"attributes": {"name": "Ada L."}})
    address: EmailAddress = ABSENT
    list: ExistingList = ABSENT
    verified: Verified = ABSENT
    attributes: Attributes = ABSENT
    bring_back: BringBack = False


class SubscriberView(BaseModel):
    model_config = example(_EXAMPLE)
    list: str
    address: str
    status: Literal["verified", "unverified"] | InactiveReason
    verified: bool
    since: datetime
    attributes: dict[str, str]


class SubscriberPageQuery(PageQuery):
    address_prefix: str = Field("", description="Only addresses that start with this.")
    status: SubscriberFilter = Field(
        SubscriberFilter.ALL,
        description="Only subscribers with this status; `active` is verified or "
        "unverified, `inactive` is everyone else.",
    )


@sign_ups.post(
    "/subscribe",
    name="subscribe",
    **documented(Accepted, "New addresses are asked to confirm.", status=202),
)
async def sign_up(caller: Joiner, call: SignUp) -> Accepted:
    """Sign somebody up for a list.

    Store the address unverified and queue an email with a link to confirm it.

    The response does not reveal whether the address is on the list. Calls may be repeated.
    """
    caller.check_may_use(call.list)
    address = parse_address(call.email)
    too_many = _("This address has been signed up too many times.")
    caller.throttle(ADDRESSES_CALLED, address.key, too_many)
    try:
        async with asyncio.timeout(STORAGE_S_MAX):  # the call may be repeated
            await subscribe.sign_up(caller.act, call.list, address, call.attributes)
    except NotFound:
        raise ApiProblem(404, _("There is no list {name}.", name=call.list), field="list") from None
    return Accepted(status="accepted")


@router.get("", **documented(ResultPage[SubscriberView], "One page of subscribers."))
async def show_subscribers(
    caller: Reader, name: ListName, query: Annotated[SubscriberPageQuery, Query()]
) -> Response:
    """Show the subscribers of a list, sorted by address."""
    requested = parse_page(caller, query)
    prefix = key_prefix(query.address_prefix)
    if len(prefix) > STORAGE_KEY_CHARS_MAX:
        raise invalid(_("No address starts with this text."), "address_prefix")
    await require_list(caller, name)
    page = await subscribers.scan_people(
        caller.tables,
        name,
        prefix=prefix,
        filter_=query.status,
        after=requested.after,
        limit=requested.limit,
    )
    return requested.respond([_data(each) for each in page.people], page.next)


@router.post("", **documented(SubscriberView, "The new subscriber.", status=201))
async def add_subscriber(
    caller: Writer, name: ListName, call: NewSubscriber, idempotency_key: IdempotencyKey = None
) -> Response:
    """Add a subscriber.

    They get no confirmation email. Somebody who unsubscribed is added again only with `bring_back`.
    """
    address = parse_address(call.address)

    async def create(act: Act, call_id: str) -> tuple[Representation, str]:
        await require_list(caller, name)
        try:
            await subscribe.add(
                act,
                name,
                address,
                call.attributes,
                verified=call.verified,
                bring_back=call.bring_back,
            )
        except AlreadyThere:
            existing, _etag = await _require(caller, name, address)
            if existing.inactive_reason:
                raise ApiProblem(
                    409,
                    f"{AlreadySubscribed(existing)} {_('Then send “bring_back”: true.')}",
                    field="bring_back",
                ) from None
            if not call_id or existing.since != act.now:
                raise
        return await _represent(caller, name, address), _path(name, address)

    return await create_once(caller, idempotency_key, create)


@router.get("/{address:path}", **documented(SubscriberView, "The subscriber."))
async def show_subscriber(caller: Reader, name: ListName, address: AddressPart) -> Response:
    """Show a subscriber, current or former."""
    await require_list(caller, name)
    return etags.respond(await _represent(caller, name, parse_address(address)))


@router.patch(
    "/{address:path}",
    **documented(
        SubscriberView, "The changed subscriber, now at Location.", headers="ETag Location"
    ),
)
async def change_subscriber(
    caller: Writer,
    name: ListName,
    address: AddressPart,
    call: SubscriberChange,
    if_match: IfMatch = None,
) -> Response:
    """Change a subscriber, or move them to another address or list.

    Omitted members are not changed; attributes are replaced as a whole.
    """
    await require_list(caller, name)
    current = parse_address(address)
    sent = call.model_fields_set
    if "list" in sent:
        await require_list(caller, call.list)
    async with expected_version(if_match, lambda: _represent(caller, name, current)) as etag:
        existing = await _require_active(caller, name, current)
        to = Destination(
            list_name=call.list if "list" in sent else existing.list_name,
            address=parse_address(call.address if "address" in sent else existing.address),
            verified=call.verified if "verified" in sent else existing.verified,
            attributes=call.attributes if "attributes" in sent else existing.attributes,
            bring_back=call.bring_back,
        )
        changed = await move_subscriber.change(caller.act, existing, to, etag=etag)
    moved = parse_address(changed.address)
    path = _path(changed.list_name, moved)
    return etags.respond(await _represent(caller, changed.list_name, moved), Location=path)


@router.post("/{address:path}/ask", **documented(Accepted, "The email is queued.", status=202))
async def ask_subscriber(caller: Writer, name: ListName, address: AddressPart) -> Accepted:
    """Send a confirmation email to a subscriber who has not confirmed.

    409 if they have confirmed or unsubscribed, or got too many of these emails.

    At most one such email in 24 hours, and three in 30 days.
    """
    await require_list(caller, name)
    parsed = parse_address(address)
    await _require(caller, name, parsed)
    if reason := await ask_to_confirm.ask_one(caller.act, name, parsed.storage_key):
        raise WrongState(CANNOT_ASK_TEXTS[reason])
    return Accepted(status="accepted")


@router.delete(
    "/{address:path}",
    **documented(None, "The subscriber is removed and gets no more emails.", status=204),
)
async def remove_subscriber(
    caller: Writer, name: ListName, address: AddressPart, if_match: IfMatch = None
) -> Response:
    """Remove a subscriber from the list.

    Queued emails to them are not sent either. No import adds them again.
    """
    await require_list(caller, name)
    parsed = parse_address(address)
    async with expected_version(if_match, lambda: _represent(caller, name, parsed)) as etag:
        await _require_active(caller, name, parsed)
        await subscribe.remove(caller.act, name, parsed, etag=etag)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _represent(caller: ApiCaller, name: str, address: Address) -> Representation:
    subscriber, etag = await _require(caller, name, address)
    return Representation(_data(subscriber), etag)


async def _require(caller: ApiCaller, name: str, address: Address) -> Stored[Subscriber]:
    found = await subscribers.find(caller.tables, name, address.storage_key)
    if found is None:
        raise ApiProblem(
            404, _("{address} has never been on {name}.", address=address.typed, name=name)
        )
    return found


async def _require_active(caller: ApiCaller, name: str, address: Address) -> Subscriber:
    found, _etag = await _require(caller, name, address)
    if found.inactive_reason:
        sentence = _(
            "{address} is no longer on {name} ({reason}).",
            address=found.address,
            name=found.list_name,
            reason=INACTIVE_TEXTS[found.inactive_reason],
        )
        raise WrongState(sentence)
    return found


def _path(name: str, address: Address) -> str:
    return f"/api/v1/lists/{name}/subscribers/{quote(address.typed, safe='@')}"


def _data(subscriber: Subscriber) -> dict[str, Any]:
    return {
        "list": subscriber.list_name,
        "address": subscriber.address,
        "status": subscription(subscriber),
        "verified": subscriber.verified,
        "since": subscriber.since,
        "attributes": subscriber.attributes,
    }
