"""Refusals of the web service as problems (RFC 9457), whose details explain what to do."""

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
# Does not name the path, because anybody can read it; the log does.
STORAGE_GONE = _(
    "The database file was deleted or replaced while Postroom was running. "
    "Stop all roles, restore the file, and start again."
)
STATUS_OF = {BadInput: 422, NotFound: 404, AlreadyThere: 409, WrongState: 409}

log = structlog.get_logger("api")


class ApiProblem(Exception):
    """Ends the call with a problem as its response."""

    def __init__(
        self,
        status: int,
        detail: Text | str,
        headers: Mapping[str, str] = {},
        **members: object,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self._headers = headers
        self._members = members

    def response(self) -> Response:
        title = HTTPStatus(self.status).phrase
        about = {"type": "about:blank", "title": title, "status": self.status}
        content = msgspec.json.encode(about | {"detail": str(self)} | self._members)
        return Response(content, self.status, self._headers, MEDIA_TYPE)


def invalid(detail: Text | str, field: str, **members: object) -> ApiProblem:
    return ApiProblem(422, detail, {}, field=field, **members)


def as_problem(error: Exception) -> ApiProblem | None:
    """The problem for an expected error; None for a bug."""
    if isinstance(error, ApiProblem):
        return error
    if isinstance(error, Conflict):
        return ApiProblem(
            409, _("Somebody else changed it at the same time. Check it and try again.")
        )
    if isinstance(error, StorageError | TimeoutError):
        # Without the error's text, which may name files and people.
        log.warning("storage_failed", error=type(error).__name__)
        detail = _("Storage is not responding. Try again in {seconds} s.", seconds=RETRY_STORAGE_S)
        if isinstance(error, StorageGone):
            detail = STORAGE_GONE
        retry = {"Retry-After": str(RETRY_STORAGE_S)}
        return ApiProblem(503, detail, retry)
    for kind, status in STATUS_OF.items():
        if isinstance(error, kind):
            return ApiProblem(status, str(error)[:DETAIL_CHARS_MAX])
    return None
