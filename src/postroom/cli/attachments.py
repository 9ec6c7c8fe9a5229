"""`postroom message attach`, `attachments` and `detach`: the files of a message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from postroom.actions.attach_files import attach, detach
from postroom.cli.output import AsJson, show
from postroom.cli.session import act_of, with_parts
from postroom.domain.attachment import ATTACHED_BYTES_MAX, NewFile, encoded_bytes
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.message import Message
from postroom.records import messages

if TYPE_CHECKING:
    from postroom.wiring import Parts

REF_CHARS_MAX = 20


def _check_ref(ref: str) -> str:
    """NotFound for a ref that storage cannot have."""
    if not ref.isascii() or len(ref) > REF_CHARS_MAX:
        raise NotFound(f"“{ref[:40]}” is not a message ref. “postroom message all” lists them.")
    return ref


Ref = Annotated[str, typer.Argument(metavar="REF", callback=_check_ref)]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `postroom message`."""
    app.command("attach")(attach_files)
    app.command("attachments")(show_attachments)
    app.command("detach")(detach_file)


@with_parts
async def attach_files(
    parts: Parts,
    ref: Ref,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files to attach.")],
    as_json: AsJson = False,
) -> None:
    """Attach files to a draft or a scheduled message, all or none of them."""
    new = [read_attachment(path) for path in files]
    _show((await attach(act_of(parts), ref, new)).value, as_json)


@with_parts
async def show_attachments(parts: Parts, ref: Ref, as_json: AsJson = False) -> None:
    """Show the attachments of a message, and what they add to every email."""
    _show(await messages.read(parts.storage.tables, ref), as_json)


@with_parts
async def detach_file(
    parts: Parts,
    ref: Ref,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The file name, or the id.")],
    as_json: AsJson = False,
) -> None:
    """Remove an attachment from a draft or a scheduled message."""
    message = await messages.read(parts.storage.tables, ref)
    found = [each.id for each in message.attachments if name in (each.name, each.id)]
    if not found:
        raise NotFound(f"Message {ref} has no attachment “{name[:120]}”.")
    _show((await detach(act_of(parts), ref, found[0])).value, as_json)


def read_attachment(path: Path) -> NewFile:
    try:
        with path.open("rb") as file:
            return NewFile(path.name, file.read(ATTACHED_BYTES_MAX + 1))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from error


def _show(message: Message, as_json: bool) -> None:
    attached = message.attachments
    added = encoded_bytes(attached)
    data = {"items": [msgspec.structs.asdict(each) for each in attached], "encoded_bytes": added}
    lines = [f"{each.bytes:>12,}  {each.media_type:32}  {each.name}" for each in attached]
    total = f"They add {added:,} bytes to every email." if attached else "No attachments."
    show(data, as_json, *lines, total)
