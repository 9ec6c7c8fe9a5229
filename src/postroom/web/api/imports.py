"""/messages/import: create a draft from an HTML page, alone or in a zip with its pictures."""

from __future__ import annotations

import base64
import builtins
from typing import Annotated, ClassVar

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from postroom.act import Act
from postroom.actions.import_page import SeveralPages, import_file
from postroom.domain.errors import BadInput
from postroom.domain.message import SUBJECT_CHARS_MAX, message_data, ref_of_call
from postroom.domain.texts import _
from postroom.flow import compose
from postroom.flow.compose import Draft, Origin
from postroom.records import bodies, messages
from postroom.web.api.auth import Writer
from postroom.web.api.base64_files import decoded_file
from postroom.web.api.etags import Representation
from postroom.web.api.idempotency import create_once
from postroom.web.api.lists import ExistingList, require_list
from postroom.web.api.messages import EXAMPLE, MessageView, Subject
from postroom.web.api.openapi import (
    ABSENT,
    IdempotencyKey,
    RequestBody,
    documented,
    example,
)
from postroom.web.api.problems import DETAIL_CHARS_MAX, invalid
from postroom.web.api.route import ApiRoute
from postroom.writing.zip_files import is_zip

router = APIRouter(prefix="/messages", route_class=ApiRoute, tags=["messages"])
_PAGE = base64.b64encode(b"<title>News</title><p>Lectures begin on Monday.</p>").decode()


class NewImport(RequestBody):
    model_config = example({"list": "contoso1", "file": _PAGE})
    bytes_max: ClassVar[int] = 41 * 1024 * 1024  # a zip of 30 MiB in base64
    list: ExistingList
    file: str = Field(description="An HTML page, or a zip of a page with its pictures, in base64.")
    subject: Subject = ABSENT
    page: Annotated[str, Field(description="Which page of the zip, if there are several.")] = ""


class ImportedMessageView(MessageView):
    model_config = example(EXAMPLE | {"status": "draft", "due_at": None, "notes": []})
    notes: builtins.list[str] = Field(description="What was removed, changed or missing.")


@router.post("/import", **documented(ImportedMessageView, "The draft.", status=201))
async def import_page(
    caller: Writer, call: NewImport, idempotency_key: IdempotencyKey = None
) -> Response:
    """Create a draft from an HTML page.

    Pictures in the zip are added to the media library; scripts, forms and frames are removed. An
    access key that is limited to some lists can import a page but not a zip.
    """
    content = await decoded_file(call.file, "file")
    if is_zip(content):  # its pictures go to the media library, which is for all lists
        caller.check_is_for_every_list()

    async def create(act: Act, call_id: str) -> tuple[Representation, str]:
        mailing_list = (await require_list(caller, call.list)).value
        site_url = caller.context.site.url
        try:
            imported = await import_file(act, content, mailing_list.language, site_url, call.page)
        except BadInput as error:
            is_page = call.page or isinstance(error, SeveralPages)
            field = "page" if is_page else "file"
            raise invalid(str(error)[:DETAIL_CHARS_MAX], field) from None
        draft = Draft(
            list_name=call.list,
            subject=(call.subject or imported.title or str(_("(no subject)")))[:SUBJECT_CHARS_MAX],
            html=imported.content.html,
            source=imported.content.source,
        )
        origin = Origin(call_id, ref_of_call(call_id, act.now)) if call_id else None
        ref = (await compose.compose(act, draft, origin)).ref
        await bodies.put_report(act.storage.blobs, ref, imported.report)
        message, etag = await messages.read_with_etag(caller.tables, ref)
        data = message_data(message) | {"notes": imported.notes}
        return Representation(data, etag), f"/api/v1/messages/{ref}"

    return await create_once(caller, idempotency_key, create)
