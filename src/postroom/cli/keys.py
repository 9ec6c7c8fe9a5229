"""`postroom key …`: create, show and revoke access keys of the web service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.output import AsJson, echo_err, readable, show
from postroom.cli.session import work
from postroom.domain.access_key import (
    AccessKey,
    Right,
    check_key_lists,
    check_key_name,
    check_key_rights,
)
from postroom.domain.mailing_list import check_list_name
from postroom.records import keys, lists

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Access keys of the web service.")


@app.command("create")
def create(
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

    async def job(parts: Parts) -> tuple[str, AccessKey]:
        tables = parts.storage.tables
        for each in names:
            await lists.read(tables, each)
        return await keys.create(tables, name, names, parts.clock.now(), allowed)

    secret, key = work(job)
    text = (
        f"Access key {key.id} ({name}) is for {_scope(key)}, with the right to {_rights(key)}. "
        "Store it safely, it is shown only once:"
    )
    show(_data(key) | {"key": secret}, as_json, text, secret)


@app.command("all")
def all_keys(as_json: AsJson = False) -> None:
    """Show all access keys, without the secret itself."""

    async def job(parts: Parts) -> list[AccessKey]:
        return [each async for each in keys.every_key(parts.storage.tables)]

    found = sorted(work(job), key=lambda each: (each.name, each.created_at))
    show([_data(each) for each in found], as_json, *map(_line, found))
    if not found and not as_json:
        echo_err("There is no access key yet. Create one with “postroom key create NAME”.")


@app.command("revoke")
def revoke(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Its id, shown by “postroom key all”.")],
    as_json: AsJson = False,
) -> None:
    """Revoke an access key for good."""
    key = work(lambda parts: keys.revoke(parts.storage.tables, id_))
    text = f"Access key {key.id} ({key.name}) is revoked. It stops working within 5 seconds."
    show({"id": key.id, "name": key.name}, as_json, text)


def _line(key: AccessKey) -> str:
    used = f"used {readable(key.last_used_at)}" if key.last_used_at else "never used"
    return f"{key.id}  {key.name:20}  {_rights(key):15}  {_scope(key):20}  {used}"


def _rights(key: AccessKey) -> str:
    return " and ".join(key.rights)


def _scope(key: AccessKey) -> str:
    return ", ".join(key.lists) or "every list"


def _data(key: AccessKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "lists": key.lists,
        "rights": key.rights,
        "created_at": key.created_at,
        "last_used_at": key.last_used_at,
    }
