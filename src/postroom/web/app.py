"""The web application: every route, and what happens when none of them can answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import structlog
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from postroom.domain.errors import NotFound
from postroom.storage.port import StorageError
from postroom.web import admin, api, public, public_form
from postroom.web.admin import import_runs
from postroom.web.desk import Desk, desk_of
from postroom.web.pages import show_bare
from postroom.web.security import Guard, TooLarge
from postroom.web.visitor import ADMIN, SAFE_METHODS, NotAllowed, SignInFirst

log = structlog.get_logger("web")
STATIC = Path(__file__).parent / "static"
READY_S_MAX = 2.0
RETRY_AFTER_S = "10"
DETAILS = {
    404: "There is no such resource; /api/v1/openapi.json lists them.",
    405: "This resource does not take that method; see /api/v1/openapi.json.",
    413: "The body is too large; send a smaller one.",
    503: "Storage does not answer in time; try again a little later.",
}


def create_app(desk: Desk) -> ASGIApp:
    app = FastAPI(
        title="Postroom",
        description="The web service of an e-mail list service.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # both load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # such a redirect would trust the Host header, and carry the token
        lifespan=in_service,
    )
    app.state.desk = desk
    app.include_router(api.router)
    api.describe(app)
    app.include_router(public.router)
    app.include_router(public_form.router)
    app.include_router(admin.router)
    app.add_api_route("/healthz", healthy, methods=["GET"], include_in_schema=False)
    app.add_api_route("/readyz", ready, methods=["GET"], include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(HTTPException, no_page)
    app.add_exception_handler(StorageError, try_again)
    app.add_exception_handler(TooLarge, too_large)
    app.add_exception_handler(NotFound, not_there)
    app.add_exception_handler(SignInFirst, sign_in_first)
    app.add_exception_handler(NotAllowed, not_allowed)
    return Guard(app, is_https=desk.is_https, too_late=too_late)


@contextlib.asynccontextmanager
async def in_service(app: FastAPI) -> AsyncIterator[None]:
    """While the server runs; imports under way stop with it, before storage is closed."""
    yield
    await import_runs.runs_in(app).stop_all()


async def healthy() -> Response:
    """This process is alive."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """Storage answers."""
    try:
        async with asyncio.timeout(READY_S_MAX):
            await desk_of(request).storage.tables.get("service", "secret", "installation")
    except (TimeoutError, StorageError):
        return JSONResponse({"status": "storage does not answer"}, status_code=503)
    return JSONResponse({"status": "ok"})


async def no_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    template = "nothing_here.html" if error.status_code in (404, 405) else "not_understood.html"
    return _failed(request.url.path, error.status_code, template, error.headers)


async def not_there(request: Request, error: Exception) -> Response:
    """Somebody deleted it meanwhile, or the address was typed."""
    return _failed(request.url.path, 404, "nothing_here.html")


async def sign_in_first(request: Request, error: Exception) -> Response:
    """Back to where they wanted to go, after signing in; a part of a page reloads the whole."""
    if "hx-request" in request.headers:
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    where = request.url.path if request.method in SAFE_METHODS else ADMIN
    return RedirectResponse(f"/admin/sign-in?next={quote(where)}", HTTPStatus.SEE_OTHER)


async def not_allowed(request: Request, error: Exception) -> Response:
    return show_bare(request, "not_allowed.html", HTTPStatus.FORBIDDEN, sentence=str(error))


async def try_again(request: Request, error: Exception) -> Response:
    log.warning("storage_failed", error=type(error).__name__)
    return too_late(request.url.path)


async def too_large(request: Request, error: Exception) -> Response:
    return _failed(request.url.path, 413, "not_understood.html")


def too_late(path: str) -> Response:
    return _failed(path, 503, "try_again.html", {"Retry-After": RETRY_AFTER_S})


def _failed(
    path: str, status: int, template: str, headers: Mapping[str, str] | None = None
) -> Response:
    """A page for people, problem+json (RFC 9457) for programs."""
    if not path.startswith("/api/"):
        return HTMLResponse(public.render(template, list_title=""), status, headers)
    detail = DETAILS.get(status, "This could not be done.")
    return api.Refused(HTTPStatus(status), detail, headers or {}).response()
