"""/templates: list, create, show, change and delete templates and snippets."""

from __future__ import annotations

import contextlib
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, ClassVar

import msgspec
from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field
from starlette.responses import Response

from postroom.act import Act
from postroom.actions import manage_templates
from postroom.actions.write_body import BodyInput, new_document
from postroom.domain.block import BlockDocument
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message_template import (
    TITLE_CHARS_MAX,
    MessageTemplate,
    TemplateKind,
    check_template_title,
    template_data,
)
from postroom.domain.texts import _
from postroom.records import templates
from postroom.web.api import etags
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.bodies import BYTES_MAX, DOCUMENTS, Template, field_named
from postroom.web.api.etags import Representation, expected_version
from postroom.web.api.idempotency import create_once
from postroom.web.api.messages import require_message
from postroom.web.api.openapi import (
    ABSENT,
    Blocks,
    Design,
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
from postroom.writing.ready_made import READY_MADE, ready_made, ready_made_data

router = APIRouter(prefix="/templates", route_class=ApiRoute, tags=["templates"])
TemplateId = Annotated[
    str, Path(alias="id", description="The id of a template.", examples=["announcement"])
]
EXAMPLE: dict[str, Any] = {
    "id": "t5b0f3c8a9d2e4f60718293a4",
    "kind": "template",
    "title": "Our newsletter",
    "ready_made": False,
    "created_at": "2026-11-15T09:00:00Z",
    "changed_at": "2026-11-15T09:00:00Z",
}
_BLOCKS = [{"kind": "heading", "id": "b1", "place": "Headline", "text": "News"}]
_READY_MADE_ETAG = "ready-made"
Title = Annotated[
    str,
    AfterValidator(check_template_title),
    Field(json_schema_extra={"minLength": 1, "maxLength": TITLE_CHARS_MAX}),
]


class TemplateView(BaseModel):
    model_config = example(EXAMPLE)
    id: str
    kind: TemplateKind
    title: str
    ready_made: bool = Field(description="Comes with Postroom and cannot be changed, but copied.")
    created_at: datetime | None
    changed_at: datetime | None


class WholeTemplateView(TemplateView):
    model_config = example(EXAMPLE | {"blocks": _BLOCKS, "design": {"link": "#1f7a5c"}})
    blocks: Blocks
    design: Design


class NewTemplate(RequestBody):
    model_config = example({"title": "Our newsletter", "blocks": _BLOCKS})
    bytes_max: ClassVar[int] = BYTES_MAX
    documents: ClassVar[frozenset[str]] = DOCUMENTS
    title: Title
    kind: TemplateKind = TemplateKind.TEMPLATE
    blocks: Blocks = ABSENT
    design: Design = ABSENT
    template: Annotated[Template, Field(description="Another template to copy.")] = ABSENT
    message: Annotated[str, Field(description="The ref of a message to save as a template.")] = (
        ABSENT
    )


class TemplateChange(RequestBody):
    model_config = example({"title": "Our weekly newsletter"})
    bytes_max: ClassVar[int] = BYTES_MAX
    documents: ClassVar[frozenset[str]] = DOCUMENTS
    title: Title = ABSENT
    blocks: Blocks = ABSENT
    design: Design = ABSENT


class TemplatePageQuery(PageQuery):
    kind: Annotated[TemplateKind, Field(description="Only templates, or only snippets.")] = ABSENT


@router.get("", **documented(ResultPage[TemplateView], "One page of templates."))
async def show_templates(caller: Reader, query: Annotated[TemplatePageQuery, Query()]) -> Response:
    """Show all templates and snippets by title, then those that come with Postroom."""
    requested = parse_page(caller, query)
    found = [template_data(each) for each in await templates.all_templates(caller.tables)]
    found += [ready_made_data(each) for each in READY_MADE]
    if query.kind is not None:
        found = [each for each in found if each["kind"] == query.kind]
    start = 0
    with contextlib.suppress(ValueError):
        start = [each["id"] for each in found].index(requested.after) + 1
    page = found[start : start + requested.limit]
    has_more = len(found) > start + len(page)
    return requested.respond(page, page[-1]["id"] if has_more else None)


@router.post("", **documented(WholeTemplateView, "The new template.", status=201))
async def create_template(
    caller: Writer, call: NewTemplate, idempotency_key: IdempotencyKey = None
) -> Response:
    """Create a template or a snippet.

    It is made from `blocks`, another template or a message; without any of these, it is empty. An
    access key that is limited to some lists cannot create one, because all lists share them.
    """
    caller.check_is_for_every_list()

    async def create(act: Act, call_id: str) -> tuple[Representation, str]:
        document = await _first_document(caller, call)
        made = await manage_templates.create(act, call.kind, call.title, document, call_id)
        return await _represent(caller, made.id), f"/api/v1/templates/{made.id}"

    return await create_once(caller, idempotency_key, create)


@router.get("/{id}", **documented(WholeTemplateView, "The template."))
async def show_template(caller: Reader, template_id: TemplateId) -> Response:
    """Show a template with its blocks and its design."""
    return etags.respond(await _represent(caller, template_id))


@router.patch("/{id}", **documented(WholeTemplateView, "The changed template."))
async def change_template(
    caller: Writer, template_id: TemplateId, call: TemplateChange, if_match: IfMatch = None
) -> Response:
    """Change a template.

    Omitted members are not changed. Messages that were written with it are not changed either.
    """
    caller.check_is_for_every_list()
    async with expected_version(if_match, lambda: _represent(caller, template_id)) as etag:
        found, document = await _own(caller, template_id)
        plain = msgspec.to_builtins(document)
        blocks = plain["blocks"] if call.blocks is None else call.blocks
        design = plain["theme"] if call.design is None else call.design
        if isinstance(design, dict):
            design = plain["theme"] | design
        changed = await _document(caller, blocks, design)
        title = found.title if call.title is None else call.title
        await manage_templates.edit(caller.act, template_id, title, changed, etag)
    return etags.respond(await _represent(caller, template_id))


@router.delete("/{id}", **documented(None, "The template is deleted.", status=204))
async def delete_template(
    caller: Writer, template_id: TemplateId, if_match: IfMatch = None
) -> Response:
    """Delete a template or a snippet.

    Messages that were written with it are not changed. 409 while it is the default template of a
    list.
    """
    caller.check_is_for_every_list()
    async with expected_version(if_match, lambda: _represent(caller, template_id)) as etag:
        await _own(caller, template_id)
        await manage_templates.delete(caller.act, template_id, etag)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _first_document(caller: ApiCaller, call: NewTemplate) -> BlockDocument:
    if call.message is None:
        return await _document(caller, call.blocks, call.design, call.template)
    if {"blocks", "design", "template"} & call.model_fields_set:
        raise invalid(_("Send a message or blocks, not both."), "message")
    try:
        await require_message(caller, call.message)
        storage = caller.context.storage
        return await manage_templates.document_of_message(storage, call.message)
    except (ApiProblem, BadInput) as error:
        raise invalid(str(error), "message") from None


async def _document(
    caller: ApiCaller, blocks: Any, design: Any, template: str | None = None
) -> BlockDocument:
    with field_named(BodyInput()):
        return await new_document(caller.context.storage, blocks, design, template or "")


async def _own(caller: ApiCaller, template_id: str) -> tuple[MessageTemplate, BlockDocument]:
    """A template of this installation, which can be changed."""
    if template_id in READY_MADE:
        raise WrongState(
            _("{id} comes with Postroom and cannot be changed. Copy it first.", id=template_id)
        )
    found = (await templates.read(caller.tables, template_id)).value
    return found, await templates.load_document(caller.context.storage.blobs, found)


async def _represent(caller: ApiCaller, template_id: str) -> Representation:
    if template_id in READY_MADE:
        data, etag = ready_made_data(template_id), _READY_MADE_ETAG
        document = ready_made(template_id)
    else:
        try:
            found, etag = await templates.read(caller.tables, template_id)
        except NotFound:
            raise ApiProblem(404, _("There is no template {id}.", id=template_id[:60])) from None
        data = template_data(found)
        document = await templates.load_document(caller.context.storage.blobs, found)
    plain = msgspec.to_builtins(document)
    return Representation(data | {"blocks": plain["blocks"], "design": plain["theme"]}, etag)
