"""/lists: make, look at, change and delete mailing lists."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from postroom.actions import manage_lists
from postroom.actions.manage_lists import ListChanges
from postroom.domain.errors import AlreadyThere, BadInput
from postroom.domain.mailing_list import (
    DESCRIPTION_CHARS_MAX,
    NAME_CHARS_MAX,
    POSTAL_ADDRESS_CHARS_MAX,
    MailingList,
    check_description,
    check_list_name,
    check_new_list_name,
    check_postal_address,
    check_sender,
    list_data,
)
from postroom.domain.texts import _
from postroom.records import counts, lists
from postroom.records.idempotency import CallBegun
from postroom.records.stored import Stored
from postroom.web.api import body, etags, openapi, paging
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.body import Member
from postroom.web.api.etags import SeenVersion
from postroom.web.api.idempotency import create_once
from postroom.web.api.openapi import (
    ACCEPTED,
    NUMBER,
    TEXT,
    TIME,
    TRUTH,
    WITH_BODY,
    object_of,
    responses,
)
from postroom.web.api.problems import ApiProblem, ApiRoute

router = APIRouter(route_class=ApiRoute, tags=["lists"])
ListName = Annotated[str, Path(description="The name of a list.", examples=["contoso1"])]

EXAMPLE: dict[str, Any] = {
    "name": "contoso1",
    "from": "History Department <donotreply@contoso.edu>",
    "description": "History Department announcements",
    "postal_address": "1 Campus Road, Contoso",
    "public_form": False,
    "created_at": "2026-11-15T09:00:00Z",
}
_COUNTS = {"verified": 1200, "unverified": 31, "gone": 86}
_PROPERTIES: dict[str, Any] = {
    **dict.fromkeys(("name", "from", "description", "postal_address"), TEXT),
    "public_form": TRUTH,
    "created_at": TIME,
}
_LIST = openapi.named("List", object_of(_PROPERTIES))
_COUNTED = openapi.named(
    "ListWithCounts",
    object_of(_PROPERTIES | {"people": object_of(dict.fromkeys(_COUNTS, NUMBER))}),
)
_PAGE = openapi.page_of("ListPage", _LIST)

_NAME = Member(
    _("a text, the name of the list"),
    check_new_list_name,
    {"type": "string", "pattern": f"^[A-Za-z0-9_]{{1,{NAME_CHARS_MAX}}}$"},
)
_SENDER = Member(
    _("a text, the From of its mails"),
    check_sender,
    {"type": "string", "description": "An address, or “Name <address>”."},
)
_DESCRIPTION = Member(
    _("a text of one line"),
    check_description,
    {"type": "string", "maxLength": DESCRIPTION_CHARS_MAX},
)
_POSTAL_ADDRESS = Member(
    _("a text of one line"),
    check_postal_address,
    {"type": "string", "maxLength": POSTAL_ADDRESS_CHARS_MAX},
)

_PUBLIC_FORM = Member(
    _("true or false"),
    schema=TRUTH | {"description": "Whether it has a page on which anybody may sign up."},
)


class NewList(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, _NAME]
    sender: Annotated[str, _SENDER] = msgspec.field(name="from")
    description: Annotated[str, _DESCRIPTION] = ""
    postal_address: Annotated[str, _POSTAL_ADDRESS] = ""
    public_form: Annotated[bool, _PUBLIC_FORM] = False


class ListChange(msgspec.Struct, forbid_unknown_fields=True):
    sender: Annotated[str | UnsetType, _SENDER] = msgspec.field(name="from", default=UNSET)
    description: Annotated[str | UnsetType, _DESCRIPTION] = UNSET
    postal_address: Annotated[str | UnsetType, _POSTAL_ADDRESS] = UNSET
    public_form: Annotated[bool | UnsetType, _PUBLIC_FORM] = UNSET


@router.get(
    "/lists",
    summary="Mailing lists by name",
    responses=responses(
        200, "A page of lists.", _PAGE, {"items": [EXAMPLE], "next": None},
        refused=(422,), headers=("Link",),
    ),
    openapi_extra={"parameters": paging.parameters()},
)  # fmt: skip
async def show_lists(request: Request, caller: Reader) -> Response:
    """A key that is limited to lists sees these."""
    asked = paging.page_request(request, caller)
    if caller.key.is_for_every_list:
        found, after = await lists.page(caller.tables, limit=asked.limit, after=asked.after)
    else:
        found, after = await _own_lists(caller, asked)
    return paging.page(caller, asked, [list_data(each) for each in found], after)


async def _own_lists(
    caller: ApiCaller, asked: paging.PageRequest
) -> tuple[list[MailingList], str | None]:
    names = [name for name in sorted(caller.key.lists) if name > asked.after]
    shown, rest = names[: asked.limit], names[asked.limit :]
    found = [await lists.find(caller.tables, name) for name in shown]
    return [each for each in found if each], shown[-1] if rest else None


@router.post(
    "/lists",
    status_code=HTTPStatus.CREATED,
    summary="Make a list",
    responses=responses(
        201, "The list.", _LIST, EXAMPLE,
        refused=(409, *WITH_BODY), headers=("ETag", "Location"),
    ),
    openapi_extra={
        "parameters": [openapi.IDEMPOTENCY_KEY],
        "requestBody": openapi.taking(
            NewList, {name: text for name, text in EXAMPLE.items() if name != "created_at"}
        ),
    },
)  # fmt: skip
async def make_list(request: Request, caller: Writer) -> Response:
    """A key that is limited to lists cannot make others."""
    if not caller.key.is_for_every_list:
        raise ApiProblem(
            HTTPStatus.FORBIDDEN, _("This key is for some lists alone: use one that is for all.")
        )
    sent = await body.receive(request)
    call = body.parse(sent, NewList)
    wanted = manage_lists.checked(
        call.name, call.sender, call.description, call.postal_address, call.public_form
    )

    async def create(begun: CallBegun | None) -> tuple[SeenVersion, str]:
        now = begun.note.begun_at if begun else caller.now
        try:
            await manage_lists.create(caller.context.act(caller.trace, now), wanted)
        except AlreadyThere:
            known = await lists.find(caller.tables, call.name)
            if begun is None or known is None or known.created_at != now:
                raise
        return await look(caller, call.name), f"/api/v1/lists/{call.name}"

    return await create_once(request, caller, sent, create)


@router.get(
    "/lists/{name}",
    summary="A list, with how many people are on it",
    responses=responses(
        200, "The list.", _COUNTED, EXAMPLE | {"people": _COUNTS},
        refused=(404,), headers=("ETag",),
    ),
)  # fmt: skip
async def show_list(caller: Reader, name: ListName) -> Response:
    seen = await look(caller, name)
    people = await counts.read(caller.tables, name)
    counted = {standing: getattr(people, standing) for standing in _COUNTS}
    return etags.shown(SeenVersion(seen.data | {"people": counted}, seen.etag))


@router.patch(
    "/lists/{name}",
    summary="Change what a list says",
    responses=responses(
        200, "The list as it says now.", _LIST, EXAMPLE,
        refused=(*openapi.GUARDED, *WITH_BODY), headers=("ETag",),
    ),
    openapi_extra={
        "parameters": [openapi.IF_MATCH],
        "requestBody": openapi.taking(ListChange, {"description": "History news"}),
    },
)  # fmt: skip
async def change_list(request: Request, caller: Writer, name: ListName) -> Response:
    """What is not named stays. Messages that were written before keep their From."""
    caller.check_may_use(name)
    call = await body.read_body(request, ListChange)
    wording = ListChanges(**{
        field: text for field, text in msgspec.structs.asdict(call).items() if text is not UNSET
    })  # fmt: skip

    async def act(etag: str) -> SeenVersion:
        edited, new_etag = await manage_lists.edit(caller.tables, name, wording, etag)
        return SeenVersion(list_data(edited), new_etag)

    return etags.shown(await etags.change(request, lambda: look(caller, name), act))


@router.delete(
    "/lists/{name}",
    status_code=HTTPStatus.ACCEPTED,
    summary="Delete a list with all its people",
    responses=responses(
        202, "Gone at once; its rows go in the background.", ACCEPTED, {"status": "deleting"},
        refused=openapi.GUARDED,
    ),
    openapi_extra={"parameters": [openapi.IF_MATCH]},
)  # fmt: skip
async def delete_list(request: Request, caller: Writer, name: ListName) -> Response:
    """Messages on their way to it skip everybody who is still queued."""

    async def act(etag: str) -> None:
        await manage_lists.delete(caller.act, name, etag)

    await etags.change(request, lambda: look(caller, name), act)
    return Response(b'{"status":"deleting"}', HTTPStatus.ACCEPTED, media_type="application/json")


async def look(caller: ApiCaller, name: str) -> SeenVersion:
    """The list as it stands; refused if it is not there, or not for this key."""
    found, etag = await known_list(caller, name)
    return SeenVersion(list_data(found), etag)


async def known_list(caller: ApiCaller, name: str) -> Stored[MailingList]:
    caller.check_may_use(name)
    try:
        found = await lists.find_with_etag(caller.tables, check_list_name(name))
    except BadInput:  # a name no list has
        found = None
    if found is None:
        raise ApiProblem(
            HTTPStatus.NOT_FOUND, _("There is no list {name}: check the name.", name=name[:60])
        )
    return found
