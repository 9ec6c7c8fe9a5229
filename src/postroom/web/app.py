"""The web application: all routes, and the responses to errors."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import structlog
from fastapi import APIRouter, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope

from postroom.domain.errors import AlreadyThere, NotFound, WrongState
from postroom.domain.texts import Language, Text, _
from postroom.records import probes
from postroom.storage.port import Conflict, StorageError, StorageFull, StorageGone
from postroom.web import admin, api
from postroom.web.admin import asking
from postroom.web.api.openapi import add_schemas
from postroom.web.api.problems import STORAGE_GONE, ApiProblem
from postroom.web.context import WebContext, context_of
from postroom.web.form_recovery import RecoveredForm, path_and_query, recovered_form
from postroom.web.labels import size
from postroom.web.language import LanguageMiddleware, languages
from postroom.web.pages import part, show_bare
from postroom.web.public import links, pictures, sign_up_form, view, webhooks
from postroom.web.security import SecurityMiddleware, TooLarge, limits_for
from postroom.web.server import stopping_of
from postroom.web.signed_in import ADMIN, SAFE_METHODS, NotAllowed, SignInRequired
from postroom.web.submit_once import AlreadySubmitted

log = structlog.get_logger("web")
STATIC = Path(__file__).parent / "static"
READY_S_MAX = 2.0
RETRY = {"Retry-After": "10"}
DETAILS = {  # for API clients
    404: _("There is no such resource. All resources are listed in /api/v1/openapi.json."),
    405: _("This resource does not support that method. See /api/v1/openapi.json."),
    413: _("The body is too large. Send a smaller one."),
    500: _("Something went wrong. Check whether it was done, then try again."),
    503: _("Storage did not respond in time. Try again later."),
}

# Title and sentence for administrators; subscribers have pages of their own.
ADMIN_PAGES = {
    404: (_("Page not found"), _("It was deleted, or the address is mistyped.")),
    405: (
        _("This is not allowed here"),
        _("Nothing changed. Open the page from the menu and use its buttons."),
    ),
    409: (_("Not possible right now"), _("It has changed. Reload the page and check.")),
    413: (
        _("Too much data"),
        _("You sent more than this page accepts. Nothing changed. Go back and send less."),
    ),
    429: (_("Too many requests"), _("Nothing changed. Wait a moment and try again.")),
    500: (
        _("Something went wrong"),
        _("The error is in the log of the web role. Check whether your change was saved."),
    ),
    503: (
        _("Please try again"),
        _("Storage did not respond in time. Wait, then check whether your change was saved."),
    ),
}
INVALID_REQUEST = (
    _("Something went wrong"),
    _("Nothing changed. Go back, reload the page and use its buttons."),
)
# For a submitted form: the page has the submitted fields, and a button to submit them again.
SLOW = (
    _("Please try again"),
    _("Storage did not respond in time. What you entered is still here. Wait and try again."),
)
MISSING = (_("The database is missing"), STORAGE_GONE)
FULL = (
    _("The disk is full"),
    _(
        "Nothing was saved, because the disk with the database is full. Free up space, then "
        "try again."
    ),
)
CHANGED = (
    _("Somebody else changed this"),
    _("Nothing was overwritten. Check the current version and try again."),
)
DELETED = (
    _("This no longer exists"),
    _("Somebody deleted it. What you entered is still here, so that you can copy it."),
)
IN_PROGRESS = (
    _("Already in progress"),
    _("You just submitted the same form. Wait a moment and try again."),
)
SIGNED_OUT = (
    _("Sign in again"),
    _(
        "You are no longer signed in. What you entered is still here. Sign in on another page, "
        "come back to this one and try again."
    ),
)
PUBLIC_PAGES = dict.fromkeys((404, 405), "not_found.html")
PUBLIC_PAGES |= dict.fromkeys((500, 503), "try_again.html")


def create_app(context: WebContext, spoken: Sequence[Language] = ()) -> ASGIApp:
    """Create the whole application; `spoken` replaces the available languages."""
    app = FastAPI(
        title="Postroom",
        description="Mailing lists, subscribers and messages.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # both load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,  # the redirect would trust the Host header and leak the token
        lifespan=lifespan,
        routes=list(analysed_routes()),
    )
    app.state.context = context
    add_schemas(app)
    app.add_api_route("/healthz", healthy, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/readyz", ready, methods=["GET", "HEAD"], include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    for error, handler in ERROR_HANDLERS.items():
        app.add_exception_handler(error, handler)
    guarded = SecurityMiddleware(app, is_https=context.is_https, too_late=timed_out)
    return LanguageMiddleware(guarded, spoken or languages())


@functools.cache
def analysed_routes() -> tuple[BaseRoute, ...]:
    """The routes that all applications of a process share.

    FastAPI analyses them at the first request, which takes longer than most tests and writes to
    10 MB of memory. `serve` does it before it forks the roles, so that they share that memory.
    """
    router = APIRouter()
    for pages in (api, links, sign_up_form, view, pictures, webhooks, admin):
        router.include_router(pages.router)
    request = {"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []}
    for route in router.routes:
        route.matches(request)
    return tuple(router.routes)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Stop background runs with the server, before storage is closed."""
    yield
    await asking.runs_in(app).stop_all()


async def healthy() -> Response:
    """Report that the process is alive."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """Report whether to route requests here: storage responds and the server is not stopping."""
    if stopping_of(request).is_set():
        return JSONResponse({"status": "stopping"}, status_code=503)
    try:
        async with asyncio.timeout(READY_S_MAX):
            await probes.read(context_of(request).storage.tables)
    except StorageGone:
        return JSONResponse({"status": str(STORAGE_GONE)}, status_code=503)
    except (TimeoutError, StorageError):
        return JSONResponse({"status": "storage does not respond"}, status_code=503)
    return JSONResponse({"status": "ok"})


async def http_error(request: Request, error: Exception) -> Response:
    """Starlette raises an unexpected error again, for SecurityMiddleware to log it."""
    if isinstance(error, HTTPException):
        return _error_response(request.url.path, error.status_code, error.headers)
    return _error_response(request.url.path, 500)


async def not_found(request: Request, error: Exception) -> Response:
    """It was deleted, or the URL is wrong."""
    form = await recovered_form(request)
    if form and form.typed:
        return _admin_error(HTTPStatus.NOT_FOUND, *DELETED, form, is_gone=True)
    return _error_response(request.url.path, 404)


async def not_possible(request: Request, error: Exception) -> Response:
    """Show the error, which is a sentence for the user."""
    return _error_response(request.url.path, 409, sentence=str(error))


async def sign_in_required(request: Request, error: Exception) -> Response:
    """Return to this page after signing in; the script reloads the page of a fragment."""
    if "hx-request" in request.headers:
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    form = await recovered_form(request)
    if form and form.typed:
        return _admin_error(HTTPStatus.FORBIDDEN, *SIGNED_OUT, form, is_signed_out=True)
    target = path_and_query(request) if request.method in SAFE_METHODS else ADMIN
    path = f"/admin/sign-in?next={quote(target, safe='/')}"
    return RedirectResponse(path, HTTPStatus.SEE_OTHER)


async def not_allowed(request: Request, error: Exception) -> Response:
    return show_bare(request, "not_allowed.html", HTTPStatus.FORBIDDEN, sentence=str(error))


async def storage_failed(request: Request, error: Exception) -> Response:
    log.warning("storage_failed", error=type(error).__name__)
    if isinstance(error, (StorageGone, StorageFull)) and _is_admin(request.url.path):
        status = HTTPStatus.SERVICE_UNAVAILABLE
        words = FULL if isinstance(error, StorageFull) else MISSING
        return _admin_error(status, *words, await recovered_form(request), RETRY)
    return await timed_out(request.scope, request.receive)


async def conflict(request: Request, error: Exception) -> Response:
    """Subscriber pages have no fields to give back, so people can simply try again."""
    if not _is_admin(request.url.path):
        return await storage_failed(request, error)
    return _admin_error(HTTPStatus.CONFLICT, *CHANGED, await recovered_form(request))


async def already_submitted(request: Request, error: Exception) -> Response:
    return _admin_error(HTTPStatus.CONFLICT, *IN_PROGRESS, await recovered_form(request))


async def too_large(request: Request, error: Exception) -> Response:
    """API clients get the text that the OpenAPI document promises."""
    path = request.url.path
    if not _is_admin(path):
        return _error_response(path, 413)
    sentence = _(
        "This page accepts at most {limit}. Nothing changed. Go back and send less.",
        limit=size(limits_for(path).body_bytes),
    )
    return _error_response(path, 413, sentence=str(sentence))


async def timed_out(scope: Scope, receive: Receive) -> Response:
    """Give a submitted form back as it was."""
    form = await recovered_form(Request(scope, receive)) if "app" in scope else None
    if form:
        return _admin_error(HTTPStatus.SERVICE_UNAVAILABLE, *SLOW, form, RETRY)
    return _error_response(scope["path"], HTTPStatus.SERVICE_UNAVAILABLE, RETRY)


ERROR_HANDLERS = {
    HTTPException: http_error,
    Exception: http_error,
    StorageError: storage_failed,
    TimeoutError: storage_failed,
    Conflict: conflict,
    AlreadySubmitted: already_submitted,
    TooLarge: too_large,
    NotFound: not_found,
    AlreadyThere: not_possible,
    WrongState: not_possible,
    SignInRequired: sign_in_required,
    NotAllowed: not_allowed,
}


def _error_response(
    path: str, status: int, headers: Mapping[str, str] | None = None, sentence: str = ""
) -> Response:
    """A page for people, problem+json (RFC 9457) for API clients."""
    if path.startswith("/api/"):
        detail = sentence or DETAILS.get(status, _("The request could not be carried out."))
        return ApiProblem(status, detail, headers or {}).response()
    if _is_admin(path):
        title, text = ADMIN_PAGES.get(status, INVALID_REQUEST)
        return _admin_error(status, title, sentence or text, None, headers)
    template = PUBLIC_PAGES.get(status, "invalid_request.html")
    if status == HTTPStatus.NOT_FOUND and path.startswith(sign_up_form.PATH):
        template = "no_form.html"
    return HTMLResponse(links.render(template, list_title=""), status, headers)


def _admin_error(
    status: int,
    title: Text,
    sentence: Text | str,
    form: RecoveredForm | None,
    headers: Mapping[str, str] | None = None,
    **flags: bool,
) -> Response:
    """An error page for administrators, with the form they submitted if it can be retried."""
    values = {"is_signed_out": False, "is_gone": False, **flags}
    page = part("failed.html", notice="", title=title, sentence=sentence, kept=form, **values)
    return HTMLResponse(page, status, headers)


def _is_admin(path: str) -> bool:
    return path == ADMIN or path.startswith(f"{ADMIN}/")
