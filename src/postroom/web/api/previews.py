"""/messages/{ref}/source and …/preview: the source of a message, and what a recipient gets."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from postroom.domain.block import all_blocks, parse_document, path_of
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import BodyKind, Message, Status
from postroom.domain.texts import _
from postroom.records import bodies, lists
from postroom.web.api import etags
from postroom.web.api.auth import ApiCaller, Reader
from postroom.web.api.bodies import BodyMembers
from postroom.web.api.etags import Representation
from postroom.web.api.lists import ExistingList, require_list
from postroom.web.api.messages import Ref, Subject, require_message
from postroom.web.api.openapi import ABSENT, Blocks, Design, RequestBody, documented, example
from postroom.web.api.problems import invalid
from postroom.web.api.route import ApiRoute
from postroom.web.message_checks import CheckReport, WrittenMessage, check

router = APIRouter(prefix="/messages", route_class=ApiRoute, tags=["messages"])
_BLOCKS: list[dict[str, Any]] = [
    {"kind": "heading", "id": "b1", "text": "New lectures"},
    {"kind": "button", "id": "b2", "text": "Sign up", "href": "https://contoso.edu/sign-up"},
]
_NOTHING = dict.fromkeys(("html", "markdown", "mjml", "blocks", "design", "text"))
Address = Annotated[
    str,
    Field(description="The subscriber whose values are filled in; without one, field names are."),
]


class SourceView(BaseModel):
    """The source of a message; the members of other formats are null."""

    model_config = example(_NOTHING | {"format": "blocks", "blocks": _BLOCKS, "design": {}})
    format: BodyKind
    html: str | None
    markdown: str | None
    mjml: str | None
    blocks: Blocks | None
    design: Design | None
    text: str | None = Field(description="The text part, if somebody wrote one.")


class CheckView(BaseModel):
    field: str = Field(description="What it is about, as in “blocks[2]”; empty for the message.")
    detail: str


class PreviewView(BaseModel):
    model_config = example(
        {
            "subject": "New lectures",
            "html": "<p>Dear Ada, lectures begin on Monday.</p>",
            "text": "Dear Ada, lectures begin on Monday.",
            "checks": [{"field": "blocks[1]", "detail": "This button has no link. Enter one."}],
        }
    )
    subject: str
    html: str | None
    text: str | None
    checks: list[CheckView]


class PreviewedMessage(BodyMembers):
    model_config = example({"list": "contoso1", "subject": "New lectures", "blocks": _BLOCKS})
    list: ExistingList
    subject: Subject = ABSENT
    recipient: Annotated[Address, Field(alias="as")] = ABSENT


class PreviewRecipient(RequestBody):
    model_config = example({"as": "student1@contoso.edu"})
    recipient: Annotated[Address, Field(alias="as")] = ABSENT


@router.get("/{ref}/source", **documented(SourceView, "The format that the message is written in."))
async def show_source(caller: Reader, ref: Ref) -> Response:
    """Show the source of a message, as it was written."""
    message, etag = await require_message(caller, ref)
    content = await bodies.load_all(caller.context.storage.blobs, message)
    source = content.source
    data = _NOTHING | {"format": message.kind, "text": content.text}
    if source is None:
        data["html"] = content.html
    elif source.kind is BodyKind.BLOCKS:
        document: dict[str, Any] = msgspec.to_builtins(parse_document(source.text))
        data |= {"blocks": document["blocks"], "design": document["theme"]}
    else:
        data[source.kind.value] = source.text
    return etags.respond(Representation(data, etag))


@router.post(
    "/preview", **documented(PreviewView, "The email and the findings of the checks.", headers="")
)
async def preview(caller: Reader, call: PreviewedMessage) -> Response:
    """Render a message and check it, without storing anything."""
    mailing_list = (await require_list(caller, call.list)).value
    made = await call.written(caller, call.language or mailing_list.language)
    content = msgspec.structs.replace(made, text=call.text)
    message = Message(
        ref="0",
        list_name=mailing_list.name,
        list_created_at=mailing_list.created_at,
        subject=call.subject or str(_("(no subject)")),
        sender=mailing_list.sender,
        status=Status.DRAFT,
        created_at=caller.now,
        preview_text=call.preview_text or "",
    )
    return await _checked(caller, WrittenMessage(message, mailing_list, content), call.recipient)


@router.post(
    "/{ref}/preview",
    **documented(PreviewView, "The email and the findings of the checks.", headers=""),
)
async def preview_stored(caller: Reader, ref: Ref, call: PreviewRecipient) -> Response:
    """Render a stored message and check it."""
    message = (await require_message(caller, ref)).value
    content = await bodies.load_all(caller.context.storage.blobs, message)
    mailing_list: MailingList | None = await lists.find(caller.tables, message.list_name)
    return await _checked(caller, WrittenMessage(message, mailing_list, content), call.recipient)


async def _checked(caller: ApiCaller, written: WrittenMessage, recipient: str | None) -> Response:
    report = await check(caller.context, written, recipient or "")
    if report.mistake:
        raise invalid(report.mistake[:300], "text" if written.html is None else "html")
    if report.mail_view is None:
        raise invalid(_("The message has no body. Add an HTML body, a text body, or both."), "html")
    view = report.mail_view
    data = {"subject": view.subject, "html": view.html, "text": view.text}
    return _answer(data | {"checks": _checks(report, written)})


def _checks(report: CheckReport, written: WrittenMessage) -> list[dict[str, str]]:
    """Everything the pages show as checks, with the place of each."""
    source = written.content.source
    is_blocks = source is not None and source.kind is BodyKind.BLOCKS
    places = {"": "design"}
    if source and is_blocks:
        document = parse_document(source.text)
        places |= {block.id: path_of(document, block) for block in all_blocks(document)}
    typed = written.typed[0].value
    found = [
        {"field": typed if each.line else places[each.block_id], "detail": str(each.sentence)}
        for each in report.findings
    ]
    if report.person_mistake:
        found.append({"field": "as", "detail": str(report.person_mistake)})
    found += [{"field": "", "detail": str(each)} for each in report.warnings]
    for _title, advices in report.signs:
        found += [{"field": "", "detail": f"{each.where}: {each.sentence}"} for each in advices]
    return found


def _answer(data: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(data), media_type="application/json")
