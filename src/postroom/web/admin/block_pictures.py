"""Pictures in the block editor: chosen from the media library or uploaded, where they are used.

A block, an article or the logo that gets a picture is a *place*: “b3”, “b7-0” or “theme”. One
place at a time shows what to choose from, within the form of the message, so that nothing typed is
lost and no script is needed:

    op=choose:b3  op=choose:b3:<id>     show the pictures, or those after this one
    op=picture:b3:<id>                  use this picture
    op=upload:b3                        use the uploaded file; so does every other button of the
                                        form, as long as there is one
    find_picture                        words to look for
    picture_file, picture_for           the uploaded file, and its place
"""

from __future__ import annotations

from typing import Any

from starlette.datastructures import UploadFile

from postroom.actions import manage_media
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.picture import UPLOAD_BYTES_MAX, Picture
from postroom.domain.texts import _
from postroom.records import media
from postroom.web.admin.admin_request import AdminRequest
from postroom.web.block_form import EditedDocument, PictureChooser, edited
from postroom.web.forms import Form
from postroom.writing.block_edits import each_block

FILE, PLACE, WORDS = "picture_file", "picture_for", "find_picture"
PICTURES_OFFERED = 12
LOGO = "theme"


async def read_picture(form: Form, file: UploadFile | None) -> None:
    """Keep the uploaded file until `place_picture`; it is gone when the request was read."""
    if file and file.filename:
        form.picture = (file.filename, await file.read(UPLOAD_BYTES_MAX + 1))


def is_search(form: Form) -> bool:
    """Whether somebody looked for a picture and pressed Enter, which no script stopped."""
    if not (form.value("enter") and form.value(WORDS) and form.value(PLACE)):
        return False
    form.values["done"] = f"choose:{form.value(PLACE)}"
    return True


async def place_picture(request: AdminRequest, form: Form) -> None:
    """Put the chosen or uploaded picture into its place; a refusal is beside the field."""
    word, _colon, rest = form.value("done").partition(":")
    place, _colon, picture_id = rest.partition(":")
    if word == "choose":  # closing it names no place
        form.values["touched"] = (place or form.value(PLACE)).partition("-")[0]
    if form.picture is None and word != "picture":
        return
    if form.picture is not None:
        place = form.value(PLACE) or place
    document = edited(form.value("document"))
    target = _target(document, place)
    try:
        if target is None:
            raise BadInput(_("The block for this picture no longer exists. Choose another one."))
        if form.picture is not None:
            name, content = form.picture
            alt = "" if target.get("src") else target.get("alt", "")
            picture = await manage_media.add(request.act(), content, name, alt)
        else:
            picture = (await media.read(request.tables, picture_id)).value
    except (BadInput, NotFound) as error:
        form.mistakes[FILE] = str(error)
        form.values["done"] = f"choose:{place}"
        return
    _fill(target, place, picture)
    form.values["document"] = document.source
    form.values["touched"] = place.partition("-")[0]
    if word in ("choose", "picture", "upload"):
        form.values["done"] = ""  # nothing is being chosen any more


def _target(document: EditedDocument, place: str) -> dict[str, Any] | None:
    """The fields that get the picture."""
    if place == LOGO:
        logo: dict[str, Any] = document.theme.setdefault("logo", {})
        return logo
    block_id, _dash, number = place.partition("-")
    for block in each_block(document.blocks):
        if block["id"] == block_id and block["kind"] == "picture":
            return block
        if block["id"] == block_id and block["kind"] == "articles":
            articles: list[dict[str, Any]] = block["articles"]
            has_it = number.isdecimal() and int(number) < len(articles)
            return articles[int(number)] if has_it else None
    return None


def _fill(target: dict[str, Any], place: str, picture: Picture) -> None:
    is_new = not target.get("src")
    target["src"] = picture.path
    target["alt"] = picture.alt or (target.get("alt", "") if is_new else "")
    if target.get("kind") == "picture":
        target["width"] = picture.shown_width
        if target["alt"]:
            target["is_decorative"] = False
    if place == LOGO:
        target["width"] = min(target.get("width") or 160, max(picture.width, 16))


async def chooser_of(request: AdminRequest, form: Form) -> PictureChooser | None:
    """What to choose from, if somebody asked for it or added a picture."""
    word, _colon, rest = form.value("done").partition(":")
    place, _colon, after = rest.partition(":")
    if word == "add" and place == "picture":
        place, after = form.value("touched"), ""
    elif word != "choose" or not place:
        return None
    words = form.value(WORDS)
    pictures, following = await media.page(
        request.tables, request.context.clock, words, limit=PICTURES_OFFERED, after=after or None
    )
    return PictureChooser(place, pictures, words, following)
