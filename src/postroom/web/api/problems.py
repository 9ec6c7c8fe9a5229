"""Refusals of the web service: every answer that is not what was asked for is a problem (RFC 9457).

Its detail is a sentence that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

import msgspec
import structlog
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from postroom.domain.errors import AlreadyThere, BadInput, NotFound, WrongState
from postroom.domain.texts import Text, _
from postroom.storage.port import Conflict, StorageError, StorageGone

MEDIA_TYPE = "application/problem+json"
RETRY_STORAGE_S = 5
DETAIL_CHARS_MAX = 500
# Anybody may read it, so it does not name the path; the log does.
STORAGE_GONE = _(
    "The database file was deleted or replaced while Postroom was running. "
    "Stop all roles, put it back, start again."
)
STATUS_OF = {
    BadInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    NotFound: HTTPStatus.NOT_FOUND,
    AlreadyThere: HTTPStatus.CONFLICT,
    WrongState: HTTPStatus.CONFLICT,
}

log = structlog.get_logger("api")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ApiProblem(Exception):
    """The call ends here, with a problem as its answer."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: Text | str,
        headers: Mapping[str, str] = {},
        **members: object,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self._headers = headers
        self._members = members

    def response(self) -> Response:
        about = {"type": "about:blank", "title": self.status.phrase, "status": self.status}
        content = msgspec.json.encode(about | {"detail": str(self)} | self._members)
        return Response(content, self.status, self._headers, MEDIA_TYPE)


def storage_failed(error: BaseException) -> ApiProblem:
    """Of the error only its kind is told: its words may name places and people."""
    log.warning("storage_failed", error=type(error).__name__)
    words = _("Storage does not answer: try again in {seconds} s.", seconds=RETRY_STORAGE_S)
    return ApiProblem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        STORAGE_GONE if isinstance(error, StorageGone) else words,
        {"Retry-After": str(RETRY_STORAGE_S)},
    )


def changed_meanwhile() -> ApiProblem:
    """Storage answered, and did nothing: somebody else was faster."""
    return ApiProblem(
        HTTPStatus.CONFLICT,
        _("Somebody else changed it at the same moment: look at it, and try again."),
    )


class ApiRoute(APIRoute):
    """A route whose every refusal is a problem, also of another method."""

    _methods: ClassVar[dict[str, set[str]]] = {}  # by path, over all routes of the service

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self._methods.setdefault(path, set()).update(self.methods or ())

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except ApiProblem as refused:
                return refused.response()
            except tuple(STATUS_OF) as error:
                return _said(error).response()
            except Conflict:
                return changed_meanwhile().response()
            except (StorageError, TimeoutError) as error:
                return storage_failed(error).response()

        return answer

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        headers = {"Allow": ", ".join(sorted(self._methods[self.path]))}
        refused = ApiProblem(
            HTTPStatus.METHOD_NOT_ALLOWED,
            _("Use {methods} here.", methods=headers["Allow"]),
            headers,
        )
        await refused.response()(scope, receive, send)


def _said(error: Exception) -> ApiProblem:
    """What the error says to people, as a problem."""
    status = next(status for kind, status in STATUS_OF.items() if isinstance(error, kind))
    return ApiProblem(status, str(error)[:DETAIL_CHARS_MAX])
