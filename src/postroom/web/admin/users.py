"""Users: invited by a link, with a role."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions import sign_in
from postroom.domain.address import parse_address
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.seal import seal, unseal
from postroom.domain.texts import _
from postroom.domain.user import INVITATION_LASTS, ROLE_TEXTS, Role
from postroom.records import users
from postroom.storage.port import Conflict
from postroom.web.admin.admin_request import AdminRequest, Owner
from postroom.web.forms import Form
from postroom.web.pages import go
from postroom.web.submit_once import Submission, SubmitResult

router = APIRouter(prefix="/users")
_SEALED_FOR = "user"  # paths contain no addresses


@router.get("")
async def index(request: Owner) -> Response:
    return await _index(request, Form({"role": Role.EDITOR}))


@router.post("/invite")
async def invite(request: Owner) -> Response:
    """Show the link once; nothing is emailed, so nothing can get lost."""
    form = await request.form()
    address = form.take("address", parse_address)
    role = form.take("role", _parse_role)
    if not address or not role:
        return await _index(request, form, status=422)

    async def create_link(submission: Submission) -> SubmitResult:
        """Create the link; earlier links stop working, also one that was never shown."""
        async with request.act().audited(
            AuditKind.USER, address.typed, AuditAction.INVITE, after=values_text({"role": role})
        ):
            token = await sign_in.invite(request.tables, address.typed, role, submission.at)
        return SubmitResult("/admin/users", token)

    token = (await request.act_once(form, create_link)).secret
    days = INVITATION_LASTS.days
    if token is None:
        return request.show("users/link_before.html", address=address.typed, days=days)
    link = f"{request.context.site.url}/admin/welcome/{token}"
    return request.show("users/link.html", link=link, address=address.typed, days=days)


@router.post("/role")
async def give_role(request: Owner) -> Response:
    form = await request.form()
    role = form.take("role", _parse_role)
    if role is None:
        return await _index(request, form, status=422)
    key = form.value("key")
    known = {user.key: user async for user in users.every_user(request.tables)}
    if key not in known:
        raise NotFound(_("There is no such user."))
    user = known[key]
    before = values_text({"role": user.role})
    after = values_text({"role": role})
    change = AuditAction.CHANGE
    try:
        async with request.act().audited(
            AuditKind.USER, user.address, change, before=before, after=after
        ):
            await sign_in.give_role(request.tables, key, role)
    except (WrongState, Conflict) as error:
        return await _refuse(request, error)
    return go("/admin/users", "saved")


@router.get("/{sealed_key}/remove")
async def remove_page(request: Owner, sealed_key: str) -> Response:
    """Ask first: a removed user is signed out at once and has to be invited again."""
    user, _etag = await users.read(request.tables, _unseal(request, sealed_key))
    sessions = await users.sessions_of(request.tables, user, request.now())
    seen_at = sessions[0].seen_at if sessions else None
    return request.show("users/remove.html", user=user, seen_at=seen_at)


@router.post("/{sealed_key}/remove")
async def remove(request: Owner, sealed_key: str) -> Response:
    key = _unseal(request, sealed_key)
    try:
        user, _etag = await users.read(request.tables, key)
        async with request.act().audited(AuditKind.USER, user.address, AuditAction.DELETE):
            await sign_in.remove(request.tables, key)
    except NotFound:  # removed by a second click or by somebody else
        pass
    except (WrongState, Conflict) as error:
        return await _refuse(request, error)
    return go("/admin/users", "removed")


@router.post("/withdraw")
async def withdraw(request: Owner) -> Response:
    """Revoke a link that was not used yet."""
    form = await request.form()
    if key := form.value("key"):
        async with request.act().audited(AuditKind.USER, key, AuditAction.REVOKE):
            await users.withdraw_invitations(request.tables, key)
    return go("/admin/users", "withdrawn")


async def _refuse(request: AdminRequest, error: WrongState | Conflict) -> Response:
    changed = _("Somebody changed this user at the same time. Check it and try again.")
    mistake = changed if isinstance(error, Conflict) else str(error)
    return await _index(request, Form(mistake=mistake), status=409)


async def _index(request: AdminRequest, form: Form, status: int = 200) -> Response:
    secret = request.context.site.secret
    everybody = [user async for user in users.every_user(request.tables)]
    return request.show(
        "users/index.html",
        status,
        users=[(user, removal_path(secret, user.key)) for user in everybody],
        invited=await users.open_invitations(request.tables, request.now()),
        present_roles={user.key: user.role for user in everybody},  # a reset keeps the role
        form=form,
        roles=[(role.value, ROLE_TEXTS[role]) for role in Role],
    )


def removal_path(secret: str, key: str) -> str:
    """The page that asks whether to remove this user."""
    return f"/admin/users/{seal(secret, _SEALED_FOR, key)}/remove"


def _unseal(request: AdminRequest, sealed_key: str) -> str:
    key = unseal(request.context.site.secret, _SEALED_FOR, sealed_key)
    if key is None:
        raise NotFound(_("There is no such user."))
    return key


def _parse_role(text: str) -> Role:
    if text not in set(Role):
        raise BadInput(_("Choose a role: viewer, editor or owner."))
    return Role(text)
