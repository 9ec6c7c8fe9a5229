"""/lists: create, show, change and delete mailing lists."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field, StrictBool
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
from postroom.web.api import etags, paging
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.etags import SeenVersion
from postroom.web.api.idempotency import create_once
from postroom.web.api.openapi import (
    ABSENT,
    GUARDED,
    WITH_BODY,
    Accepted,
    Count,
    IdempotencyKey,
    IfMatch,
    RequestBody,
    ResultPage,
    answers,
    example,
)
from postroom.web.api.paging import PageQuery
from postroom.web.api.problems import ApiProblem
from postroom.web.api.route import ApiRoute

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

NewName = Annotated[
    str,
    AfterValidator(check_new_list_name),
    Field(json_schema_extra={"pattern": f"^[A-Za-z0-9_]{{1,{NAME_CHARS_MAX}}}$"}),
]
Sender = Annotated[
    str,
    AfterValidator(check_sender),
    Field(alias="from", description="An address, or “Name <address>”."),
]
Description = Annotated[
    str,
    AfterValidator(check_description),
    Field(json_schema_extra={"maxLength": DESCRIPTION_CHARS_MAX}),
]
PostalAddress = Annotated[
    str,
    AfterValidator(check_postal_address),
    Field(json_schema_extra={"maxLength": POSTAL_ADDRESS_CHARS_MAX}),
]
PublicForm = Annotated[
    StrictBool, Field(description="Whether the list has a public page to sign up on.")
]


class NewList(RequestBody):
    model_config = example({name: EXAMPLE[name] for name in EXAMPLE if name != "created_at"})
    name: NewName
    sender: Sender
    description: Description = ""
    postal_address: PostalAddress = ""
    public_form: PublicForm = False


class ListChange(RequestBody):
    model_config = example({"description": "History news"})
    sender: Sender = ABSENT
    description: Description = ABSENT
    postal_address: PostalAddress = ABSENT
    public_form: PublicForm = ABSENT


class ListView(BaseModel):
    model_config = example(EXAMPLE)
    name: str
    sender: str = Field(alias="from")
    description: str
    postal_address: str
    public_form: bool
    created_at: datetime


class SubscriberCounts(BaseModel):
    verified: Count
    unverified: Count
    gone: Count = Field(description="Unsubscribed or removed.")


class CountedListView(ListView):
    model_config = example(EXAMPLE | {"people": _COUNTS})
    people: SubscriberCounts


@router.get(
    "/lists",
    summary="Show lists by name",
    response_model=ResultPage[ListView],
    response_description="One page of lists.",
    responses=answers(200, headers=("Link",)),
)
async def show_lists(
    request: Request, caller: Reader, query: Annotated[PageQuery, Query()]
) -> Response:
    """An access key that is limited to some lists sees only these."""
    asked = paging.page_request(request, caller, query)
    after: str | None
    if caller.key.is_for_every_list:
        found, after = await lists.page(caller.tables, limit=asked.limit, after=asked.after)
    else:
        names = [name for name in sorted(caller.key.lists) if name > asked.after]
        shown = names[: asked.limit]
        own = [await lists.find(caller.tables, name) for name in shown]
        found = [each for each in own if each]
        after = shown[-1] if len(names) > len(shown) else None
    return paging.page(caller, asked, [list_data(each) for each in found], after)


@router.post(
    "/lists",
    status_code=HTTPStatus.CREATED,
    summary="Create a list",
    response_model=ListView,
    response_description="The new list.",
    responses=answers(201, 409, *WITH_BODY, headers=("ETag", "Location")),
)
async def create_list(
    request: Request, caller: Writer, call: NewList, idempotency_key: IdempotencyKey = None
) -> Response:
    """An access key that is limited to some lists cannot create others."""
    if not caller.key.is_for_every_list:
        raise ApiProblem(
            HTTPStatus.FORBIDDEN,
            _("This access key is limited to some lists. Use one that is for all lists."),
        )
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

    return await create_once(request, caller, idempotency_key, create)


@router.get(
    "/lists/{name}",
    summary="Show a list and how many people are on it",
    response_model=CountedListView,
    response_description="The list.",
    responses=answers(200, 404, headers=("ETag",)),
)
async def show_list(caller: Reader, name: ListName) -> Response:
    seen = await look(caller, name)
    people = await counts.read(caller.tables, name)
    counted = {standing: getattr(people, standing) for standing in _COUNTS}
    return etags.shown(SeenVersion(seen.data | {"people": counted}, seen.etag))


@router.patch(
    "/lists/{name}",
    summary="Change a list",
    response_model=ListView,
    response_description="The changed list.",
    responses=answers(200, *GUARDED, *WITH_BODY, headers=("ETag",)),
)
async def change_list(
    caller: Writer, name: ListName, call: ListChange, if_match: IfMatch = None
) -> Response:
    """Members that are left out stay as they are. Existing messages keep their From."""
    caller.check_may_use(name)
    wording = ListChanges(**call.model_dump(exclude_unset=True))

    async def act(etag: str) -> SeenVersion:
        edited, new_etag = await manage_lists.edit(caller.tables, name, wording, etag)
        return SeenVersion(list_data(edited), new_etag)

    return etags.shown(await etags.change(if_match, lambda: look(caller, name), act))


@router.delete(
    "/lists/{name}",
    status_code=HTTPStatus.ACCEPTED,
    summary="Delete a list and everybody on it",
    response_model=Accepted,
    response_description="The list is gone; its rows are deleted in the background.",
    responses=answers(202, *GUARDED),
)
async def delete_list(caller: Writer, name: ListName, if_match: IfMatch = None) -> Response:
    """Messages to it that are being sent skip everybody who is still queued."""

    async def act(etag: str) -> None:
        await manage_lists.delete(caller.act, name, etag)

    await etags.change(if_match, lambda: look(caller, name), act)
    return Response(b'{"status":"deleting"}', HTTPStatus.ACCEPTED, media_type="application/json")


async def look(caller: ApiCaller, name: str) -> SeenVersion:
    """The list as it is shown; refused if there is none, or not for this key."""
    found, etag = await known_list(caller, name)
    return SeenVersion(list_data(found), etag)


async def known_list(caller: ApiCaller, name: str) -> Stored[MailingList]:
    caller.check_may_use(name)
    try:
        found = await lists.find_with_etag(caller.tables, check_list_name(name))
    except BadInput:  # a name no list has
        found = None
    if found is None:
        raise ApiProblem(HTTPStatus.NOT_FOUND, _("There is no list {name}.", name=name[:60]))
    return found
