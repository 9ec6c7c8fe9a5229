"""Users: invited by a link, with a role."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.actions import sign_in
from postroom.domain.address import parse_address
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.seal import seal, unseal
from postroom.domain.texts import _
from postroom.domain.user import INVITATION_LASTS, ROLE_TEXTS, Role
from postroom.records import users
from postroom.storage.port import Conflict, Tables
from postroom.web.context import context_of
from postroom.web.forms import Form, posted
from postroom.web.pages import go, show
from postroom.web.signed_in import Owner, SignedIn
from postroom.web.submit_once import Submission, SubmitResult, act_once

router = APIRouter(prefix="/users")
_SEALED_FOR = "user"  # no address stands in the path of a page


@router.get("")
async def index(request: Request, signed_in: Owner) -> Response:
    return await _index(request, signed_in, Form({"role": Role.EDITOR}))


@router.post("/invite")
async def invite(request: Request, signed_in: Owner) -> Response:
    """Show the link once; nothing is emailed, so nothing can get lost."""
    context = context_of(request)
    form = await posted(request)
    address = form.take("address", parse_address)
    role = form.take("role", _role)
    if not address or not role:
        return await _index(request, signed_in, form, status=422)

    async def make(turn: Submission) -> SubmitResult:
        """Create the link; earlier links stop working, also one that was never shown."""
        token = await sign_in.invite(context.storage.tables, address.typed, role, turn.at)
        return SubmitResult("/admin/users", token)

    done = await act_once(request, signed_in, form, make)
    typed = address.typed
    days = INVITATION_LASTS.days
    if done.secret is None:
        return show(request, signed_in, "users/link_before.html", address=typed, days=days)
    link = f"{context.site.url}/admin/welcome/{done.secret}"
    return show(request, signed_in, "users/link.html", link=link, address=typed, days=days)


@router.post("/role")
async def give_role(request: Request, signed_in: Owner) -> Response:
    tables = context_of(request).storage.tables
    form = await posted(request)
    role = form.take("role", _role)
    if role is None:
        return await _index(request, signed_in, form, status=422)
    try:
        await sign_in.give_role(tables, await _known_key(tables, form), role)
    except WrongState as error:
        return await _index(request, signed_in, Form(mistake=str(error)), status=409)
    except Conflict:
        return await _index(request, signed_in, Form(mistake=_CHANGED), status=409)
    return go("/admin/users", "saved")


@router.get("/{who}/remove")
async def remove_page(request: Request, signed_in: Owner, who: str) -> Response:
    """Ask first: a removed user is signed out at once and has to be invited again."""
    context = context_of(request)
    user, _etag = await users.read(context.storage.tables, _unsealed(request, who))
    sessions = await users.sessions_of(context.storage.tables, user, context.clock.now())
    return show(
        request,
        signed_in,
        "users/remove.html",
        user=user,
        seen_at=sessions[0].seen_at if sessions else None,
    )


@router.post("/{who}/remove")
async def remove(request: Request, signed_in: Owner, who: str) -> Response:
    tables = context_of(request).storage.tables
    key = _unsealed(request, who)
    try:
        await sign_in.remove(tables, key)
    except NotFound:  # a second click, or somebody else: they are gone, as was wanted
        return go("/admin/users", "removed")
    except WrongState as error:
        return await _index(request, signed_in, Form(mistake=str(error)), status=409)
    except Conflict:
        return await _index(request, signed_in, Form(mistake=_CHANGED), status=409)
    return go("/admin/users", "removed")


@router.post("/withdraw")
async def withdraw(request: Request, signed_in: Owner) -> Response:
    """Revoke a link that was not used yet."""
    form = await posted(request)
    if form.value("key"):
        await users.withdraw_invitations(context_of(request).storage.tables, form.value("key"))
    return go("/admin/users", "withdrawn")


_CHANGED = _("Somebody changed this user at the same time. Check it and try again.")


async def _index(request: Request, signed_in: SignedIn, form: Form, status: int = 200) -> Response:
    context = context_of(request)
    known = [user async for user in users.every_user(context.storage.tables)]
    return show(
        request,
        signed_in,
        "users/index.html",
        status,
        users=[(user, removal_path(context.site.secret, user.key)) for user in known],
        invited=await users.open_invitations(context.storage.tables, context.clock.now()),
        present_roles={user.key: user.role for user in known},  # a new password changes no role
        form=form,
        roles=[(role.value, ROLE_TEXTS[role]) for role in Role],
    )


def removal_path(secret: str, key: str) -> str:
    """The page that asks whether to remove this user."""
    return f"/admin/users/{seal(secret, _SEALED_FOR, key)}/remove"


def _unsealed(request: Request, who: str) -> str:
    key = unseal(context_of(request).site.secret, _SEALED_FOR, who)
    if key is None:
        raise NotFound(_("There is no such user."))
    return key


async def _known_key(tables: Tables, form: Form) -> str:
    """Check the key of a user from a URL."""
    keys = [user.key async for user in users.every_user(tables)]
    if form.value("key") not in keys:
        raise NotFound(_("There is no such user."))
    return form.value("key")


def _role(text: str) -> Role:
    if text not in set(Role):
        raise BadInput(_("Choose a role: viewer, editor or owner."))
    return Role(text)
