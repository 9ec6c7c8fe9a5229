"""/media: the pictures of the media library.

They are for the messages of all lists, so only an access key that is not limited to some lists may
use them.
"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field
from starlette.responses import Response

from postroom.actions import manage_media
from postroom.actions.manage_media import picture_data
from postroom.domain.picture import (
    ALT_CHARS_MAX,
    NAME_CHARS_MAX,
    UPLOAD_BYTES_MAX,
    PictureKind,
    check_alt,
    is_picture_id,
)
from postroom.domain.texts import _
from postroom.records import media
from postroom.web.api import etags
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.base64_files import decoded_file
from postroom.web.api.etags import Representation, expected_version
from postroom.web.api.openapi import IfMatch, RequestBody, ResultPage, documented, example
from postroom.web.api.paging import PageQuery, parse_page
from postroom.web.api.problems import invalid
from postroom.web.api.route import ApiRoute

router = APIRouter(prefix="/media", route_class=ApiRoute, tags=["media"])
WORDS_CHARS_MAX = 200
_EXAMPLE: dict[str, Any] = {
    "id": "998205008691506ec9266a48a96a3d63f0c0768",
    "name": "lake.jpg",
    "alt": "A lake in the morning",
    "url": "https://mail.contoso.edu/m/998205008691506ec9266a48a96a3d63f0c0768-1200.jpg",
    "path": "/m/998205008691506ec9266a48a96a3d63f0c0768-1200.jpg",
    "kind": "jpg",
    "width": 1200,
    "height": 675,
    "bytes": 148_211,
    "animated": False,
    "created_at": "2026-11-15T09:00:02Z",
}
PictureId = Annotated[str, Path(description="The id of the picture.", examples=[_EXAMPLE["id"]])]


class NewPicture(RequestBody):
    model_config = example(
        {
            "name": "dot.gif",
            "alt": "A dot",
            "content": "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7",
        }
    )
    bytes_max: ClassVar[int] = UPLOAD_BYTES_MAX * 4 // 3 + 64 * 1024
    name: str = Field("", max_length=NAME_CHARS_MAX, description="A name to find it by.")
    alt: Annotated[
        str, AfterValidator(check_alt), Field(json_schema_extra={"maxLength": ALT_CHARS_MAX})
    ] = ""
    content: str = Field(description="The file in base64: JPEG, PNG, GIF or WebP, up to 20 MB.")


class PictureView(BaseModel):
    model_config = example(_EXAMPLE)
    id: str
    name: str
    alt: str
    url: str = Field(description="The public address of the picture.")
    path: str = Field(description="The same without the site: for the `src` of blocks.")
    kind: PictureKind
    width: int
    height: int
    bytes: int
    animated: bool
    created_at: datetime


class PicturePageQuery(PageQuery):
    words: str = Field(
        "",
        max_length=WORDS_CHARS_MAX,
        description="Only pictures with all these words in name or alt text.",
    )


class PictureDeletion(BaseModel):
    """How to delete."""

    force: bool = Field(
        False,
        description="Delete it even if a scheduled or sent message uses it. Otherwise the "
        "answer is 409.",
    )


@router.get("", **documented(ResultPage[PictureView], "One page of pictures."))
async def show_pictures(caller: Reader, query: Annotated[PicturePageQuery, Query()]) -> Response:
    """Show the pictures, the newest first."""
    caller.check_is_for_every_list()
    requested = parse_page(caller, query)
    if requested.after and not is_picture_id(requested.after):
        raise invalid(_("This cursor is not valid."), "cursor")
    found, following = await media.page(
        caller.tables,
        caller.context.clock,
        query.words,
        limit=requested.limit,
        after=requested.after or None,
    )
    items = [picture_data(each, caller.context.site.url) for each in found]
    return requested.respond(items, following)


@router.post("", **documented(PictureView, "The picture."))
async def add_picture(caller: Writer, call: NewPicture) -> Response:
    """Add a picture.

    It is re-encoded, without metadata. The call may be repeated: the same bytes return the existing
    picture with its name and alt text.
    """
    caller.check_is_for_every_list()
    content = await decoded_file(call.content, "content")
    picture = await manage_media.add(caller.act, content, call.name, call.alt)
    return etags.respond(await _represent(caller, picture.id))


@router.get("/{picture_id}", **documented(PictureView, "The picture."))
async def show_picture(caller: Reader, picture_id: PictureId) -> Response:
    """Show a picture."""
    caller.check_is_for_every_list()
    return etags.respond(await _represent(caller, picture_id))


@router.delete("/{picture_id}", **documented(None, "The picture is deleted.", status=204))
async def delete_picture(
    caller: Writer,
    picture_id: PictureId,
    query: Annotated[PictureDeletion, Query()],
    if_match: IfMatch = None,
) -> Response:
    """Delete a picture.

    Emails that use it then show an empty frame with the alt text.
    """
    caller.check_is_for_every_list()
    async with expected_version(if_match, lambda: _represent(caller, picture_id)) as etag:
        await manage_media.delete(caller.act, picture_id, etag, is_forced=query.force)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _represent(caller: ApiCaller, picture_id: str) -> Representation:
    picture, etag = await media.read(caller.tables, picture_id)
    return Representation(picture_data(picture, caller.context.site.url), etag)
