"""/lists/{name}/subscribers: the people on a list, each identified by their address."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field, StrictBool
from starlette.requests import Request
from starlette.responses import Response

from postroom.actions import ask_to_confirm, move_subscriber
from postroom.actions.move_subscriber import Destination
from postroom.domain.address import STORAGE_KEY_CHARS_MAX, Address, key_prefix, parse_address
from postroom.domain.asking import CANNOT_ASK_TEXTS
from postroom.domain.errors import AlreadyThere, WrongState
from postroom.domain.subscriber import (
    INACTIVE_TEXTS,
    AlreadySubscribed,
    InactiveReason,
    Subscriber,
    SubscriberFilter,
    subscription,
)
from postroom.domain.texts import _
from postroom.flow import subscribe
from postroom.records import subscribers
from postroom.records.idempotency import CallBegun
from postroom.records.stored import Stored
from postroom.web.api import etags, paging
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.etags import SeenVersion
from postroom.web.api.idempotency import create_once
from postroom.web.api.lists import ListName, known_list
from postroom.web.api.openapi import (
    ABSENT,
    GUARDED,
    WITH_BODY,
    Accepted,
    IdempotencyKey,
    IfMatch,
    RequestBody,
    ResultPage,
    answers,
    example,
)
from postroom.web.api.paging import PageQuery
from postroom.web.api.problems import ApiProblem, invalid
from postroom.web.api.route import ApiRoute
from postroom.web.api.subscribe import Attributes, EmailAddress, ExistingList

router = APIRouter(route_class=ApiRoute, tags=["subscribers"])
AddressPart = Annotated[
    str,
    Path(description="The address, percent-encoded.", examples=["student1@contoso.edu"]),
]
_EXAMPLE: dict[str, Any] = {
    "list": "contoso1",
    "address": "student1@contoso.edu",
    "standing": "verified",
    "verified": True,
    "since": "2026-11-15T09:00:00Z",
    "attributes": {"name": "Ada"},
}
Verified = Annotated[StrictBool, Field(description="Whether they have confirmed.")]
BringBack = Annotated[
    StrictBool,
    Field(description="Add them even if they unsubscribed. Only if they asked for it."),
]


class NewSubscriber(RequestBody):
    model_config = example(
        {
            "address": "student1@contoso.edu",
            "verified": True,
            "attributes": {"name": "Ada"},
        }
    )
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
    standing: Literal["verified", "unverified"] | InactiveReason
    verified: bool
    since: datetime
    attributes: dict[str, str]


class SubscriberPageQuery(PageQuery):
    address_prefix: str = Field("", description="Only addresses that start with this.")
    standing: SubscriberFilter = Field(
        SubscriberFilter.ALL,
        description="Only people with this standing; `there` is verified or unverified, `gone` is "
        "unsubscribed or removed.",
    )


@router.get(
    "/lists/{name}/subscribers",
    summary="Show the people on a list by address",
    response_model=ResultPage[SubscriberView],
    response_description="One page of people.",
    responses=answers(200, 404, headers=("Link",)),
)
async def show_subscribers(
    request: Request, caller: Reader, name: ListName, query: Annotated[SubscriberPageQuery, Query()]
) -> Response:
    asked = paging.page_request(request, caller, query)
    prefix = key_prefix(query.address_prefix)
    if len(prefix) > STORAGE_KEY_CHARS_MAX:
        raise invalid(_("No address starts with this."), "address_prefix")
    await known_list(caller, name)
    shelf = await subscribers.scan_people(
        caller.tables,
        name,
        prefix=prefix,
        standing=query.standing,
        after=asked.after,
        limit=asked.limit,
    )
    return paging.page(caller, asked, [subscriber_data(one) for one in shelf.people], shelf.next)


@router.post(
    "/lists/{name}/subscribers",
    status_code=HTTPStatus.CREATED,
    summary="Add somebody",
    response_model=SubscriberView,
    response_description="The new subscriber.",
    responses=answers(201, 404, 409, *WITH_BODY, headers=("ETag", "Location")),
)
async def add_subscriber(
    request: Request,
    caller: Writer,
    name: ListName,
    call: NewSubscriber,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Add somebody as an administrator does: no email asks them to confirm.

    Somebody who unsubscribed is added again only with `bring_back`.
    """
    address = parse_address(call.address)

    async def create(begun: CallBegun | None) -> tuple[SeenVersion, str]:
        now = begun.note.begun_at if begun else caller.now
        await known_list(caller, name)
        try:
            await subscribe.add(
                caller.context.act(caller.trace, now),
                name,
                address,
                call.attributes,
                verified=call.verified,
                bring_back=call.bring_back,
            )
        except AlreadyThere:
            known, _etag = await _known(caller, name, address)
            if known.gone:
                raise ApiProblem(
                    HTTPStatus.CONFLICT,
                    f"{AlreadySubscribed(known)} {_('Then send “bring_back”: true.')}",
                    field="bring_back",
                ) from None
            if begun is None or known.since != now:
                raise
        return await _look(caller, name, address), _path(name, address)

    return await create_once(request, caller, idempotency_key, create)


@router.get(
    "/lists/{name}/subscribers/{address:path}",
    summary="Show somebody, unsubscribed or not",
    response_model=SubscriberView,
    response_description="The subscriber.",
    responses=answers(200, 404, headers=("ETag",)),
)
async def show_subscriber(caller: Reader, name: ListName, address: AddressPart) -> Response:
    await known_list(caller, name)
    return etags.shown(await _look(caller, name, parse_address(address)))


@router.patch(
    "/lists/{name}/subscribers/{address:path}",
    summary="Change somebody, their address or their list",
    response_model=SubscriberView,
    response_description="The changed subscriber, found at Location from now on.",
    responses=answers(200, *GUARDED, *WITH_BODY, headers=("ETag", "Location")),
)
async def change_subscriber(
    caller: Writer,
    name: ListName,
    address: AddressPart,
    call: SubscriberChange,
    if_match: IfMatch = None,
) -> Response:
    """Members that are left out stay as they are; attributes are replaced as a whole."""
    await known_list(caller, name)
    current = parse_address(address)
    sent = call.model_fields_set
    if "list" in sent:
        await known_list(caller, call.list)

    async def act(etag: str) -> Subscriber:
        known, _ = await _known(caller, name, current)
        _check_there(known)
        to = Destination(
            list_name=call.list if "list" in sent else known.list_name,
            address=parse_address(call.address if "address" in sent else known.address),
            verified=call.verified if "verified" in sent else known.verified,
            attributes=call.attributes if "attributes" in sent else known.attributes,
            bring_back=call.bring_back,
        )
        return await move_subscriber.change(caller.act, known, to, etag=etag)

    changed = await etags.change(if_match, lambda: _look(caller, name, current), act)
    moved = parse_address(changed.address)
    seen = await _look(caller, changed.list_name, moved)
    return etags.shown(seen, Location=_path(changed.list_name, moved))


@router.post(
    "/lists/{name}/subscribers/{address:path}/ask",
    status_code=HTTPStatus.ACCEPTED,
    summary="Send a confirmation email to somebody who has not confirmed",
    response_model=Accepted,
    response_description="The email is queued.",
    responses=answers(202, 404, 409),
)
async def ask_subscriber(caller: Writer, name: ListName, address: AddressPart) -> Response:
    """409 if they have confirmed or unsubscribed, or got too many of these emails.

    At most one such email in 24 hours, and three in 30 days.
    """
    await known_list(caller, name)
    who = parse_address(address)
    await _known(caller, name, who)
    why = await ask_to_confirm.ask_one(caller.act, name, who.storage_key)
    if why:
        raise WrongState(CANNOT_ASK_TEXTS[why])
    return Response(b'{"status":"accepted"}', HTTPStatus.ACCEPTED, media_type="application/json")


@router.delete(
    "/lists/{name}/subscribers/{address:path}",
    status_code=HTTPStatus.NO_CONTENT,
    summary="Remove somebody from the list",
    response_description="Nothing is sent to them any more.",
    responses=answers(204, *GUARDED),
)
async def remove_subscriber(
    caller: Writer, name: ListName, address: AddressPart, if_match: IfMatch = None
) -> Response:
    """Emails that are queued for them are not sent either. No import adds them again."""
    await known_list(caller, name)
    who = parse_address(address)

    async def act(etag: str) -> None:
        _check_there((await _known(caller, name, who)).value)
        await subscribe.remove(caller.act, name, who, etag=etag)

    await etags.change(if_match, lambda: _look(caller, name, who), act)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _look(caller: ApiCaller, name: str, address: Address) -> SeenVersion:
    known, etag = await _known(caller, name, address)
    return SeenVersion(subscriber_data(known), etag)


async def _known(caller: ApiCaller, name: str, address: Address) -> Stored[Subscriber]:
    found = await subscribers.find(caller.tables, name, address.storage_key)
    if found is None:
        raise ApiProblem(
            HTTPStatus.NOT_FOUND,
            _("{address} has never been on {name}.", address=address.typed, name=name),
        )
    return found


def _check_there(known: Subscriber) -> None:
    if known.gone:
        raise WrongState(
            _(
                "{address} is no longer on {name} ({gone}).",
                address=known.address,
                name=known.list_name,
                gone=INACTIVE_TEXTS[known.gone],
            )
        )


def _path(name: str, address: Address) -> str:
    return f"/api/v1/lists/{name}/subscribers/{quote(address.typed, safe='@')}"


def subscriber_data(one: Subscriber) -> dict[str, Any]:
    return {
        "list": one.list_name,
        "address": one.address,
        "standing": subscription(one),
        "verified": one.verified,
        "since": one.since,
        "attributes": one.attributes,
    }
