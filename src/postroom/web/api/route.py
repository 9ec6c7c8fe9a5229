"""How a call reaches its function.

FastAPI validates parameters and bodies by the pydantic models of each route. This module adds what
FastAPI leaves open: the caller is known before the body is read, bodies have limits, and every
refusal is a problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, ClassVar

import msgspec
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from postroom.domain.texts import Text, _
from postroom.web.api.auth import identify
from postroom.web.api.problems import ApiProblem, as_problem, invalid

SHORT_BYTES_MAX = 64 * 1024  # parsed at once; a longer body in a thread, and only if it is flat
MEMBERS_MAX = 2000  # far more than any object has
ERRORS_SHOWN_MAX = 10
ERROR_CHARS_MAX = 300


class ApiRequest(Request):
    """A request whose body was read within limits before FastAPI asks for it."""

    content = b""
    value: Any = None

    async def body(self) -> bytes:
        return self.content

    async def json(self) -> Any:
        return self.value

    async def read(self, bytes_max: int) -> None:
        """Read no more of a body that is too long than it takes to notice."""
        content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise ApiProblem(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                _("Send JSON with the header “Content-Type: application/json”."),
            )
        content = bytearray()
        try:
            async for chunk in self.stream():
                content += chunk
                if len(content) > bytes_max:
                    raise ApiProblem(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        _("The body is too large. Send at most {limit} bytes.", limit=bytes_max),
                    )
        except ClientDisconnect:
            raise ApiProblem(
                HTTPStatus.BAD_REQUEST, _("The connection broke before the end of the body.")
            ) from None
        self.content = bytes(content)
        if len(content) <= SHORT_BYTES_MAX:
            self.value = parse_json(self.content)
        else:
            self.value = await asyncio.to_thread(parse_json, self.content)


class _Name:
    """The name of a member; equal to no other, so that a repeated one does not get lost."""

    def __init__(self, text: str) -> None:
        self.text = text


_Scalar = str | int | float | bool | None
_FLAT = dict[_Name, _Scalar]
_OBJECT = dict[_Name, _Scalar | list[Any] | dict[_Name, Any]]


def parse_json(body: bytes) -> dict[str, Any]:
    """The members of a body; refused if it is no JSON object, too deep, or names a member twice.

    A long body must be flat with few members: the decoder holds the interpreter lock, and ten
    megabytes of small values would block everybody else for a second.
    """
    count = 0

    def name(_kind: type, text: str) -> _Name:
        nonlocal count
        count += 1
        if count > MEMBERS_MAX:
            raise _unprocessable(_("The body has too many members."))
        return _Name(text)

    kind: Any = _OBJECT if len(body) <= SHORT_BYTES_MAX else _FLAT
    try:
        named = msgspec.json.decode(body, type=kind, dec_hook=name)
    except RecursionError:
        raise _unprocessable(_("The JSON is nested too deep. Send one flat object.")) from None
    except msgspec.ValidationError:
        raise _unprocessable(
            _("Send one JSON object whose members are texts, numbers, true, false or null.")
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ApiProblem(HTTPStatus.BAD_REQUEST, _("The body is not JSON in UTF-8.")) from None
    return {
        name: _members(value) if isinstance(value, dict) else value
        for name, value in _members(named).items()
    }


def _members(named: dict[_Name, Any]) -> dict[str, Any]:
    members = {name.text: value for name, value in named.items()}
    if len(members) < len(named):
        raise _unprocessable(_("The body names a member more than once. Name each only once."))
    return members


def _unprocessable(detail: Text) -> ApiProblem:
    return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


class ApiRoute(APIRoute):
    """A route that answers every refusal with a problem, other methods included."""

    _methods: ClassVar[dict[str, set[str]]] = {}  # by path, over all routes of the service

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self._methods.setdefault(path, set()).update(self.methods or ())

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(plain: Request) -> Response:
            request = ApiRequest(plain.scope, plain.receive)
            try:
                request.state.caller = await identify(request)
                if self.body_field:
                    model: Any = self.body_field.field_info.annotation
                    await request.read(model.bytes_max)
                return await handle(request)
            except RequestValidationError as error:
                return _invalid(error).response()
            except Exception as error:
                problem = as_problem(error)
                if problem is None:
                    raise
                return problem.response()

        return answer

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        allowed = ", ".join(sorted(self._methods[self.path]))
        refused = ApiProblem(
            HTTPStatus.METHOD_NOT_ALLOWED,
            _("This method is not allowed here. Use {methods}.", methods=allowed),
            {"Allow": allowed},
        )
        await refused.response()(scope, receive, send)


def _invalid(error: RequestValidationError) -> ApiProblem:
    shown = [_field_error(each) for each in error.errors()[:ERRORS_SHOWN_MAX]]
    fields = {each["field"] for each in shown}
    detail = " ".join(each["detail"] for each in shown)
    if not all(fields):
        return _unprocessable(_("Send one JSON object."))
    if len(fields) > 1:
        return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=shown)
    return invalid(detail, fields.pop(), errors=shown)


def _field_error(error: dict[str, Any]) -> dict[str, str]:
    """One mistake as our own checks or pydantic describe it; no field if all of the body is one."""
    place = [str(each)[:60] for each in error["loc"][1:]]
    name = ".".join(place)
    match error["type"]:
        case "missing":
            detail = str(_("“{name}” is missing.", name=name))
        case "extra_forbidden":
            detail = str(_("“{name}” is not known. Remove it.", name=name))
        case "value_error":
            detail = str(error["ctx"]["error"])
        case _:
            detail = f"“{name}” must be {error['msg'].removeprefix('Input should be ')}."
    return {"field": place[0] if place else "", "detail": detail[:ERROR_CHARS_MAX]}
