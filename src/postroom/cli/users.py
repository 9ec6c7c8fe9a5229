"""`postroom user …`: accounts for the admin pages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.output import AsJson, readable, show
from postroom.cli.session import ParsedAddress, act_of, with_parts, work
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.user import Role, User
from postroom.records import users

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Users of the admin pages.")


@app.command("add")
def add(
    address: ParsedAddress,
    role: Annotated[Role, typer.Option(help="What they may do.")] = Role.OWNER,
    as_json: AsJson = False,
) -> None:
    """Create a user. Asks for the password, or reads it from standard input."""
    from postroom.actions import sign_in

    if sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")

    async def job(parts: Parts) -> User:
        now = parts.clock.now()
        tables = parts.storage.tables
        async with act_of(parts).audited(
            AuditKind.USER, address.typed, AuditAction.CREATE, after=values_text({"role": role})
        ):
            return await sign_in.add_user(tables, address.typed, role, password, now)

    user = work(job)
    show(_data(user), as_json, f"{user.address} is {user.role.value} and can sign in.")


@app.command("link")
@with_parts
async def link(
    parts: Parts,
    address: ParsedAddress,
    role: Annotated[Role, typer.Option(help="What a new user may do.")] = Role.EDITOR,
    as_json: AsJson = False,
) -> None:
    """Create a link to choose a password, for a new user or one who forgot theirs."""
    from postroom.actions import sign_in

    now = parts.clock.now()
    async with act_of(parts).audited(
        AuditKind.USER, address.typed, AuditAction.INVITE, after=values_text({"role": role})
    ):
        token = await sign_in.invite(parts.storage.tables, address.typed, role, now)
    url = f"{parts.settings.url}/admin/welcome/{token}"
    text = f"A link for {address.typed}. It works once, within two days, and is shown only once:"
    show({"address": address.typed, "link": url}, as_json, text, url)


@app.command("all")
@with_parts
async def all_users(parts: Parts, as_json: AsJson = False) -> None:
    """Show every user."""
    found = [user async for user in users.every_user(parts.storage.tables)]
    lines = [f"{each.address:40}  {each.role:7}  {readable(each.created_at)}" for each in found]
    hint = "There are no users yet. “postroom serve” prints a link for the first one."
    show([_data(each) for each in found], as_json, *lines, if_empty=hint)


@app.command("remove")
def remove(address: ParsedAddress, as_json: AsJson = False) -> None:
    """Remove a user and end all their sessions."""
    from postroom.actions import sign_in

    async def job(parts: Parts) -> None:
        async with act_of(parts).audited(AuditKind.USER, address.typed, AuditAction.DELETE):
            await sign_in.remove(parts.storage.tables, address.storage_key)

    work(job)
    show({"address": address.typed, "removed": True}, as_json, f"{address.typed} was removed.")


def _data(user: User) -> dict[str, Any]:
    return {"address": user.address, "role": user.role, "created_at": user.created_at}
