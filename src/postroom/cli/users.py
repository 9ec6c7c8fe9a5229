"""`postroom user …`: accounts for the admin pages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.output import AsJson, echo_err, readable, show
from postroom.cli.session import work
from postroom.domain.address import parse_address
from postroom.domain.user import Role, User
from postroom.records import users

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Users of the admin pages.")
AddressText = Annotated[str, typer.Argument(metavar="ADDRESS")]


@app.command("add")
def add(
    address: AddressText,
    role: Annotated[Role, typer.Option(help="What they may do.")] = Role.OWNER,
    as_json: AsJson = False,
) -> None:
    """Create a user. Asks for the password, or reads it from standard input."""
    from postroom.actions import sign_in

    parsed = parse_address(address)
    if sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")

    async def job(parts: Parts) -> User:
        now = parts.clock.now()
        return await sign_in.add_user(parts.storage.tables, parsed.typed, role, password, now)

    user = work(job)
    show(_data(user), as_json, f"{user.address} is {user.role.value} and can sign in.")


@app.command("link")
def link(
    address: AddressText,
    role: Annotated[Role, typer.Option(help="What a new user may do.")] = Role.EDITOR,
    as_json: AsJson = False,
) -> None:
    """Create a link to choose a password, for a new user or one who forgot theirs."""
    from postroom.actions import sign_in

    parsed = parse_address(address)

    async def job(parts: Parts) -> str:
        now = parts.clock.now()
        token = await sign_in.invite(parts.storage.tables, parsed.typed, role, now)
        return f"{parts.settings.url}/admin/welcome/{token}"

    url = work(job)
    text = f"A link for {parsed.typed}. It works once, within two days, and is shown only once:"
    show({"address": parsed.typed, "link": url}, as_json, text, url)


@app.command("all")
def all_users(as_json: AsJson = False) -> None:
    """Show every user."""

    async def job(parts: Parts) -> list[User]:
        return [user async for user in users.every_user(parts.storage.tables)]

    found = work(job)
    lines = [f"{each.address:40}  {each.role:7}  {readable(each.created_at)}" for each in found]
    show([_data(each) for each in found], as_json, *lines)
    if not found and not as_json:
        echo_err("There is no user yet. “postroom serve” prints a link for the first one.")


@app.command("remove")
def remove(address: AddressText, as_json: AsJson = False) -> None:
    """Remove a user and end all their sessions."""
    from postroom.actions import sign_in

    parsed = parse_address(address)
    work(lambda parts: sign_in.remove(parts.storage.tables, parsed.storage_key))
    show({"address": parsed.typed, "removed": True}, as_json, f"{parsed.typed} is removed.")


def _data(user: User) -> dict[str, Any]:
    return {"address": user.address, "role": user.role, "created_at": user.created_at}
