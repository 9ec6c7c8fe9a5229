"""`postroom key …`: create, show and revoke access keys of the web service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from postroom.cli.output import AsJson, readable, show
from postroom.cli.session import act_of, with_parts
from postroom.domain.access_key import (
    AccessKey,
    Right,
    check_key_lists,
    check_key_name,
    check_key_rights,
    key_values,
)
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.mailing_list import check_list_name
from postroom.records import keys, lists

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Access keys of the web service.")


@app.command("create")
@with_parts
async def create(
    parts: Parts,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who uses it.")],
    list_names: Annotated[
        list[str] | None,
        typer.Option("--list", metavar="LIST", help="Limit it to this list; may be repeated."),
    ] = None,
    rights: Annotated[
        list[Right] | None,
        typer.Option("--right", help="What it may do (default: subscribe); may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create an access key. It is shown only once."""
    name = check_key_name(name)
    names = check_key_lists(map(check_list_name, list_names or []))
    allowed = check_key_rights(rights or [])
    tables = parts.storage.tables
    for each in names:
        await lists.read(tables, each)
    async with act_of(parts).audited(
        AuditKind.KEY, name, AuditAction.CREATE, after=key_values(names, allowed)
    ):
        secret, key = await keys.create(tables, name, names, parts.clock.now(), allowed)
    text = (
        f"Access key {key.id} ({name}) is for {_scope(key)}, with the right to {_rights(key)}. "
        "Store it safely; it is shown only once:"
    )
    show(msgspec.structs.asdict(key) | {"key": secret}, as_json, text, secret)


@app.command("all")
@with_parts
async def all_keys(parts: Parts, as_json: AsJson = False) -> None:
    """Show all access keys, without the secret itself."""
    found = [each async for each in keys.every_key(parts.storage.tables)]
    found.sort(key=lambda each: (each.name, each.created_at))
    hint = "There are no access keys yet. Create one with “postroom key create NAME”."
    show(found, as_json, *map(_line, found), if_empty=hint)


@app.command("revoke")
@with_parts
async def revoke(
    parts: Parts,
    id_: Annotated[str, typer.Argument(metavar="ID", help="Its id, shown by “postroom key all”.")],
    as_json: AsJson = False,
) -> None:
    """Revoke an access key for good."""
    async with act_of(parts).audited(AuditKind.KEY, id_, AuditAction.REVOKE):
        key = await keys.revoke(parts.storage.tables, id_)
    text = f"Access key {key.id} ({key.name}) was revoked. It stops working within 5 seconds."
    show({"id": key.id, "name": key.name}, as_json, text)


def _line(key: AccessKey) -> str:
    used = f"used {readable(key.last_used_at)}" if key.last_used_at else "never used"
    return f"{key.id}  {key.name:20}  {_rights(key):15}  {_scope(key):20}  {used}"


def _rights(key: AccessKey) -> str:
    return " and ".join(key.rights)


def _scope(key: AccessKey) -> str:
    return ", ".join(key.lists) or "every list"
