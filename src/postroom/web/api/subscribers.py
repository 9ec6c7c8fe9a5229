"""/lists/{name}/subscribers: the people of a list, each known by their address."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Path
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from postroom.actions import ask_to_confirm, move_subscriber
from postroom.actions.move_subscriber import Destination
from postroom.domain.address import STORAGE_KEY_CHARS_MAX, Address, key_prefix, parse_address
from postroom.domain.asking import CANNOT_ASK_TEXTS
from postroom.domain.errors import AlreadyThere, WrongState
from postroom.domain.subscriber import (
    INACTIVE_TEXTS,
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
from postroom.web.api import body, etags, openapi, paging
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.body import Member
from postroom.web.api.etags import SeenVersion
from postroom.web.api.idempotency import create_once
from postroom.web.api.lists import ListName, known_list
from postroom.web.api.openapi import TEXT, TIME, TRUTH, WITH_BODY, object_of, responses
from postroom.web.api.problems import ApiProblem, ApiRoute
from postroom.web.api.subscribe import ADDRESS, ATTRIBUTES, LIST_NAME

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
_STANDING = {"type": "string", "enum": ["verified", "unverified", *InactiveReason]}
_SUBSCRIBER = openapi.named(
    "Subscriber",
    object_of({
        "list": TEXT, "address": TEXT, "standing": _STANDING, "verified": TRUTH, "since": TIME,
        "attributes": ATTRIBUTES.schema,
    }),
)  # fmt: skip
_PAGE = openapi.page_of("SubscriberPage", _SUBSCRIBER)
_VERIFIED = Member(_("true or false"), schema=TRUTH | {"description": "They have confirmed."})
_BRING_BACK = Member(
    _("true or false"),
    schema=TRUTH | {"description": "Also if they left: only if they asked for it."},
)
_FILTERS: list[dict[str, Any]] = [
    {
        "name": "address_prefix",
        "in": "query",
        "description": "Only addresses that begin so.",
        "schema": TEXT,
    },
    {
        "name": "standing",
        "in": "query",
        "description": "Only people who stand so; `there` is verified or not, `gone` left or was "
        "removed.",
        "schema": {
            "type": "string",
            "enum": list(SubscriberFilter),
            "default": SubscriberFilter.ALL,
        },
    },
]


class NewSubscriber(msgspec.Struct, forbid_unknown_fields=True):
    address: Annotated[str, ADDRESS]
    verified: Annotated[bool, _VERIFIED] = False
    attributes: Annotated[dict[str, str], ATTRIBUTES] = {}
    bring_back: Annotated[bool, _BRING_BACK] = False


class SubscriberChange(msgspec.Struct, forbid_unknown_fields=True):
    address: Annotated[str | UnsetType, ADDRESS] = UNSET
    list: Annotated[str | UnsetType, LIST_NAME] = UNSET
    verified: Annotated[bool | UnsetType, _VERIFIED] = UNSET
    attributes: Annotated[dict[str, str] | UnsetType, ATTRIBUTES] = UNSET
    bring_back: Annotated[bool, _BRING_BACK] = False


@router.get(
    "/lists/{name}/subscribers",
    summary="People of a list, by address",
    responses=responses(
        200, "A page of people.", _PAGE, {"items": [_EXAMPLE], "next": None},
        refused=(404, 422), headers=("Link",),
    ),
    openapi_extra={"parameters": paging.parameters(*_FILTERS)},
)  # fmt: skip
async def show_subscribers(request: Request, caller: Reader, name: ListName) -> Response:
    asked = paging.page_request(request, caller, "address_prefix", "standing")
    prefix, standing = _prefix(asked), _standing(asked)
    await known_list(caller, name)
    shelf = await subscribers.scan_people(
        caller.tables,
        name,
        prefix=prefix,
        standing=standing,
        after=asked.after,
        limit=asked.limit,
    )
    return paging.page(caller, asked, [subscriber_data(one) for one in shelf.people], shelf.next)


def _prefix(asked: paging.PageRequest) -> str:
    prefix = key_prefix(asked.filters.get("address_prefix", ""))
    if len(prefix) > STORAGE_KEY_CHARS_MAX:
        raise ApiProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            _("No address begins like that."),
            field="address_prefix",
        )
    return prefix


def _standing(asked: paging.PageRequest) -> SubscriberFilter:
    try:
        return SubscriberFilter(asked.filters.get("standing", SubscriberFilter.ALL))
    except ValueError:
        raise ApiProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            _("“standing” must be one of {standings}.", standings=", ".join(SubscriberFilter)),
            field="standing",
        ) from None


@router.post(
    "/lists/{name}/subscribers",
    status_code=HTTPStatus.CREATED,
    summary="Add somebody",
    responses=responses(
        201, "Who was added.", _SUBSCRIBER, _EXAMPLE,
        refused=(404, 409, *WITH_BODY), headers=("ETag", "Location"),
    ),
    openapi_extra={
        "parameters": [openapi.IDEMPOTENCY_KEY],
        "requestBody": openapi.taking(
            NewSubscriber,
            {"address": "student1@contoso.edu", "verified": True, "attributes": {"name": "Ada"}},
        ),
    },
)  # fmt: skip
async def add_subscriber(request: Request, caller: Writer, name: ListName) -> Response:
    """No confirmation email is sent. People who unsubscribed are re-added only by `bring_back`."""
    sent = await body.receive(request)
    call = body.parse(sent, NewSubscriber)
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
            known, _ = await _known(caller, name, address)
            if begun is None or known.gone or known.since != now:
                raise _already_there(known) from None
        return await _look(caller, name, address), _path(name, address)

    return await create_once(request, caller, sent, create)


@router.get(
    "/lists/{name}/subscribers/{address:path}",
    summary="Somebody, there or gone",
    responses=responses(
        200, "What is known of them.", _SUBSCRIBER, _EXAMPLE, refused=(404, 422), headers=("ETag",)
    ),
)
async def show_subscriber(caller: Reader, name: ListName, address: AddressPart) -> Response:
    await known_list(caller, name)
    return etags.shown(await _look(caller, name, parse_address(address)))


@router.patch(
    "/lists/{name}/subscribers/{address:path}",
    summary="Change somebody, also their address or list",
    responses=responses(
        200, "What is known of them now; Location says where.", _SUBSCRIBER, _EXAMPLE,
        refused=(*openapi.GUARDED, *WITH_BODY), headers=("ETag", "Location"),
    ),
    openapi_extra={
        "parameters": [openapi.IF_MATCH],
        "requestBody": openapi.taking(SubscriberChange, {"attributes": {"name": "Ada L."}}),
    },
)  # fmt: skip
async def change_subscriber(
    request: Request, caller: Writer, name: ListName, address: AddressPart
) -> Response:
    """What is not named stays; attributes are replaced as a whole."""
    await known_list(caller, name)
    who = parse_address(address)
    call = await body.read_body(request, SubscriberChange)
    if call.list is not UNSET:
        await known_list(caller, call.list)

    async def act(etag: str) -> Subscriber:
        known, _ = await _known(caller, name, who)
        _check_there(known)
        to = _destination(known, call)
        return await move_subscriber.change(caller.act, known, to, etag=etag)

    there = await etags.change(request, lambda: _look(caller, name, who), act)
    moved = parse_address(there.address)  # a subscriber's key is as storage takes it
    seen = await _look(caller, there.list_name, moved)
    return etags.shown(seen, Location=_path(there.list_name, moved))


def _destination(known: Subscriber, call: SubscriberChange) -> Destination:
    return Destination(
        list_name=known.list_name if call.list is UNSET else call.list,
        address=parse_address(known.address if call.address is UNSET else call.address),
        verified=known.verified if call.verified is UNSET else call.verified,
        attributes=known.attributes if call.attributes is UNSET else call.attributes,
        bring_back=call.bring_back,
    )


@router.post(
    "/lists/{name}/subscribers/{address:path}/ask",
    status_code=HTTPStatus.ACCEPTED,
    summary="Send a confirmation email to somebody who has not confirmed",
    responses=responses(
        202, "The email is queued.", openapi.ACCEPTED, {"status": "accepted"},
        refused=(404, 409, 422),
    ),
)  # fmt: skip
async def ask_subscriber(caller: Writer, name: ListName, address: AddressPart) -> Response:
    """Refused with 409 for whoever confirmed or left, and for whoever was asked too often.

    Nobody is asked twice within 24 hours, or more than three times in 30 days.
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
    summary="Take somebody off the list",
    responses=responses(204, "Nobody mails them any more.", None, refused=openapi.GUARDED),
    openapi_extra={"parameters": [openapi.IF_MATCH]},
)
async def remove_subscriber(
    request: Request, caller: Writer, name: ListName, address: AddressPart
) -> Response:
    """Also if they are queued already. No import brings them back."""
    await known_list(caller, name)
    who = parse_address(address)

    async def act(etag: str) -> None:
        _check_there((await _known(caller, name, who)).value)
        await subscribe.remove(caller.act, name, who, etag=etag)

    await etags.change(request, lambda: _look(caller, name, who), act)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _look(caller: ApiCaller, name: str, address: Address) -> SeenVersion:
    known, etag = await _known(caller, name, address)
    return SeenVersion(subscriber_data(known), etag)


async def _known(caller: ApiCaller, name: str, address: Address) -> Stored[Subscriber]:
    found = await subscribers.find(caller.tables, name, address.storage_key)
    if found is None:
        raise ApiProblem(
            HTTPStatus.NOT_FOUND,
            _("{address} was never on {name}.", address=address.typed, name=name),
        )
    return found


def _check_there(known: Subscriber) -> None:
    if known.gone:
        raise WrongState(
            _(
                "{address} is gone ({gone}): add them again only if they asked for it.",
                address=known.address,
                gone=INACTIVE_TEXTS[known.gone],
            )
        )


def _already_there(known: Subscriber) -> ApiProblem:
    if not known.gone:
        return ApiProblem(
            HTTPStatus.CONFLICT,
            _("{address} is on {name} already.", address=known.address, name=known.list_name),
        )
    return ApiProblem(
        HTTPStatus.CONFLICT,
        _(
            "{address} is gone from {name} ({gone}): add them again only if they asked for "
            "it, with “bring_back”: true.",
            address=known.address,
            name=known.list_name,
            gone=INACTIVE_TEXTS[known.gone],
        ),
        field="bring_back",
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
