"""A request for an admin page together with its user; each route names the role it needs.

    async def index(request: Viewer) -> Response

A test walks the route table and refuses a route without one of these.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import Response, StreamingResponse

from postroom.act import Act
from postroom.domain.user import Role
from postroom.storage.port import Storage, Tables
from postroom.web.context import WebContext, context_of
from postroom.web.forms import Form, posted
from postroom.web.pages import show
from postroom.web.signed_in import SignedIn, act_of, require_role
from postroom.web.submit_once import Handler, SubmitResult, act_once


class AdminRequest:
    """What every admin page works with."""

    def __init__(self, http: Request, signed_in: SignedIn) -> None:
        self.http = http
        self.signed_in = signed_in
        self.context: WebContext = context_of(http)
        self.storage: Storage = self.context.storage
        self.tables: Tables = self.storage.tables

    def now(self) -> datetime:
        return self.context.clock.now()

    def query(self, name: str) -> str:
        """A parameter of the URL; empty if there is none."""
        return self.http.query_params.get(name, "")

    async def form(self) -> Form:
        return await posted(self.http)

    def act(self, now: datetime | None = None) -> Act:
        """The context of a use case; `now` is the time of the first try of a repeated form."""
        return act_of(self.http, self.signed_in, now)

    async def act_once(self, form: Form, act: Handler) -> SubmitResult:
        return await act_once(self.http, self.signed_in, form, act)

    def show(self, template: str, status: int = HTTPStatus.OK, **values: object) -> Response:
        return show(self.http, self.signed_in, template, status, **values)


def csv_download(pieces: AsyncIterator[str] | AsyncIterator[bytes], name: str) -> Response:
    """A CSV file that is sent while it is read."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, media_type="text/csv; charset=utf-8", headers=headers)


class RequestWithRole:
    """A dependency: the request of a signed-in user whose role covers this one."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, http: Request) -> AdminRequest:
        return AdminRequest(http, await require_role(http, self.role))


Viewer = Annotated[AdminRequest, Depends(RequestWithRole(Role.VIEWER))]
Editor = Annotated[AdminRequest, Depends(RequestWithRole(Role.EDITOR))]
Owner = Annotated[AdminRequest, Depends(RequestWithRole(Role.OWNER))]
