"""Refusals of the web service: each is a problem (RFC 9457) whose detail says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
import structlog
from starlette.responses import Response

from postroom.domain.errors import AlreadyThere, BadInput, NotFound, WrongState
from postroom.domain.texts import Text, _
from postroom.storage.port import Conflict, StorageError, StorageGone

MEDIA_TYPE = "application/problem+json"
RETRY_STORAGE_S = 5
DETAIL_CHARS_MAX = 500
# Anybody can read it, so it does not name the path; the log does.
STORAGE_GONE = _(
    "The database file was deleted or replaced while Postroom was running. "
    "Stop all roles, restore the file, and start again."
)
STATUS_OF = {
    BadInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    NotFound: HTTPStatus.NOT_FOUND,
    AlreadyThere: HTTPStatus.CONFLICT,
    WrongState: HTTPStatus.CONFLICT,
}

log = structlog.get_logger("api")


class ApiProblem(Exception):
    """Ends the call with a problem as its answer."""

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


def invalid(detail: Text | str, field: str, **members: object) -> ApiProblem:
    return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, {}, field=field, **members)


def as_problem(error: Exception) -> ApiProblem | None:
    """The problem for an error that is expected here; None for a bug."""
    if isinstance(error, ApiProblem):
        return error
    if isinstance(error, Conflict):
        return ApiProblem(
            HTTPStatus.CONFLICT,
            _("Somebody else changed it at the same moment. Check it, and try again."),
        )
    if isinstance(error, StorageError | TimeoutError):
        # Only the kind of the error is logged: its text may name files and people.
        log.warning("storage_failed", error=type(error).__name__)
        detail = _("Storage does not respond. Try again in {seconds} s.", seconds=RETRY_STORAGE_S)
        return ApiProblem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            STORAGE_GONE if isinstance(error, StorageGone) else detail,
            {"Retry-After": str(RETRY_STORAGE_S)},
        )
    for kind, status in STATUS_OF.items():
        if isinstance(error, kind):
            return ApiProblem(status, str(error)[:DETAIL_CHARS_MAX])
    return None
