"""/lists: create, show, change and delete mailing lists."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field, StrictBool
from starlette.responses import Response

from postroom.act import Act
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
from postroom.records.stored import Stored
from postroom.web.api import etags
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.etags import Representation, expected_version
from postroom.web.api.idempotency import create_once
from postroom.web.api.openapi import (
    ABSENT,
    Accepted,
    Count,
    IdempotencyKey,
    IfMatch,
    RequestBody,
    ResultPage,
    documented,
    example,
)
from postroom.web.api.paging import PageQuery, parse_page
from postroom.web.api.problems import ApiProblem
from postroom.web.api.route import ApiRoute

router = APIRouter(prefix="/lists", route_class=ApiRoute, tags=["lists"])
ListName = Annotated[str, Path(description="The name of a list.", examples=["contoso1"])]
EXAMPLE: dict[str, Any] = {
    "name": "contoso1",
    "from": "History Department <donotreply@contoso.edu>",
    "description": "History Department announcements",
    "postal_address": "1 Campus Road, Contoso",
    "public_form": False,
    "created_at": "2026-11-15T09:00:00Z",
}
_COUNTS = {"verified": 1200, "unverified": 31, "inactive": 86}

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
ExistingList = Annotated[str, AfterValidator(check_list_name)]
PublicForm = Annotated[StrictBool, Field(description="Whether the list has a public sign-up page.")]


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
    inactive: Count = Field(description="Unsubscribed, removed, bounced or complained.")


class CountedListView(ListView):
    model_config = example(EXAMPLE | {"people": _COUNTS})
    people: SubscriberCounts


@router.get("", **documented(ResultPage[ListView], "One page of lists."))
async def show_lists(caller: Reader, query: Annotated[PageQuery, Query()]) -> Response:
    """Show all lists, sorted by name.

    An access key that is limited to certain lists sees only those.
    """
    requested = parse_page(caller, query)
    after: str | None
    if caller.key.is_for_every_list:
        found, after = await lists.page(caller.tables, limit=requested.limit, after=requested.after)
    else:
        names = [name for name in sorted(caller.key.lists) if name > requested.after]
        shown = names[: requested.limit]
        found = [each for name in shown if (each := await lists.find(caller.tables, name))]
        after = shown[-1] if len(names) > len(shown) else None
    return requested.respond([list_data(each) for each in found], after)


@router.post("", **documented(ListView, "The new list.", status=201))
async def create_list(
    caller: Writer, call: NewList, idempotency_key: IdempotencyKey = None
) -> Response:
    """Create a list.

    An access key that is limited to certain lists cannot create others.
    """
    if not caller.key.is_for_every_list:
        raise ApiProblem(
            403, _("This access key is limited to certain lists. Use one for all lists.")
        )
    new_list = manage_lists.checked(
        call.name, call.sender, call.description, call.postal_address, call.public_form
    )

    async def create(act: Act, call_id: str) -> tuple[Representation, str]:
        try:
            await manage_lists.create(act, new_list)
        except AlreadyThere:
            existing = await lists.find(caller.tables, call.name)
            if not call_id or existing is None or existing.created_at != act.now:
                raise
        return await represent(caller, call.name), f"/api/v1/lists/{call.name}"

    return await create_once(caller, idempotency_key, create)


@router.get("/{name}", **documented(CountedListView, "The list."))
async def show_list(caller: Reader, name: ListName) -> Response:
    """Show a list and its number of subscribers."""
    data, etag = await represent(caller, name)
    counted = await counts.read(caller.tables, name)
    people = {status: getattr(counted, status) for status in _COUNTS}
    return etags.respond(Representation(data | {"people": people}, etag))


@router.patch("/{name}", **documented(ListView, "The changed list."))
async def change_list(
    caller: Writer, name: ListName, call: ListChange, if_match: IfMatch = None
) -> Response:
    """Change a list.

    Omitted members are not changed. Existing messages keep their From.
    """
    caller.check_may_use(name)
    changes = ListChanges(**call.model_dump(exclude_unset=True))

    async with expected_version(if_match, lambda: represent(caller, name)) as etag:
        edited, new_etag = await manage_lists.edit(caller.act, name, changes, etag)
    return etags.respond(Representation(list_data(edited), new_etag))


@router.delete(
    "/{name}", **documented(Accepted, "The rows of the list are being deleted.", status=202)
)
async def delete_list(caller: Writer, name: ListName, if_match: IfMatch = None) -> Accepted:
    """Delete a list and its subscribers.

    Messages that are being sent to it skip all recipients who are still queued.
    """
    async with expected_version(if_match, lambda: represent(caller, name)) as etag:
        await manage_lists.delete(caller.act, name, etag)
    return Accepted(status="deleting")


async def represent(caller: ApiCaller, name: str) -> Representation:
    found, etag = await require_list(caller, name)
    return Representation(list_data(found), etag)


async def require_list(caller: ApiCaller, name: str) -> Stored[MailingList]:
    """The list; refused if there is none, or if it is not for this key."""
    caller.check_may_use(name)
    try:
        found = await lists.find_with_etag(caller.tables, check_list_name(name))
    except BadInput:  # no list can have this name
        found = None
    if found is None:
        raise ApiProblem(404, _("There is no list {name}.", name=name[:60]))
    return found
