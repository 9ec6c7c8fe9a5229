"""`postroom media …`: the pictures of the media library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.actions import manage_media
from postroom.actions.manage_media import PictureUses, picture_data
from postroom.cli.output import AsJson, Yes, confirm, fields, show
from postroom.cli.session import act_of, work
from postroom.domain.errors import BadInput
from postroom.domain.picture import UPLOAD_BYTES_MAX, Picture
from postroom.domain.texts import _
from postroom.records import media

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Pictures for messages.")
PictureId = Annotated[str, typer.Argument(metavar="ID")]


@app.command("add")
def add(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…")],
    alt: Annotated[str, typer.Option(help="What the pictures show.")] = "",
    as_json: AsJson = False,
) -> None:
    """Add pictures. A file that was added before is not added again."""

    async def job(parts: Parts) -> list[Picture]:
        return [
            await manage_media.add(act_of(parts), _content(file), file.name, alt) for file in files
        ]

    added = work(job)
    show(
        [picture_data(each) for each in added],
        as_json,
        *(f"{each.id}  {each.name}  {each.path}" for each in added),
    )


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as source:
            return source.read(UPLOAD_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(_("{file} cannot be read: {why}.", file=file, why=error)) from None


@app.command("list")
def list_pictures(
    words: Annotated[str, typer.Argument(metavar="[WORDS]", help="In name or alt text.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the pictures, the newest first."""

    async def job(parts: Parts) -> list[Picture]:
        return [each async for each in media.every_picture(parts.storage.tables, words)]

    found = work(job)
    show(
        [picture_data(each) for each in found],
        as_json,
        *(f"{each.id}  {each.width} × {each.height}  {each.name}" for each in found),
    )


@app.command("show")
def show_picture(picture_id: PictureId, as_json: AsJson = False) -> None:
    """Show a picture, and which messages and templates use it."""

    async def job(parts: Parts) -> tuple[Picture, PictureUses]:
        found = await media.read(parts.storage.tables, picture_id)
        return found.value, await manage_media.uses_of(parts.storage, picture_id)

    picture, uses = work(job)
    data = picture_data(picture) | _users(uses)
    show(data, as_json, *fields({name: str(value) for name, value in data.items()}))


def _users(uses: PictureUses) -> dict[str, list[str]]:
    return {
        "messages": [each.ref for each in uses.messages],
        "templates": [each.title for each in uses.templates],
    }


@app.command("delete")
def delete(
    picture_id: PictureId,
    yes: Yes = False,
    force: Annotated[
        bool, typer.Option("--force", help="Delete it even if a scheduled or sent message uses it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a picture. Emails that use it then show an empty frame with the alt text."""

    async def job(parts: Parts) -> Picture:
        found, etag = await media.read(parts.storage.tables, picture_id)
        confirm(f"Delete {found.name}? This cannot be undone.", yes)
        await manage_media.delete(act_of(parts), picture_id, etag, is_forced=force)
        return found

    deleted = work(job)
    show(picture_data(deleted) | {"deleted": True}, as_json, f"{deleted.name} was deleted.")
