"""How a call reaches its function.

FastAPI validates parameters and bodies by the pydantic models of each route. This module adds what
FastAPI does not do: the caller is identified before the body is read, bodies have limits, and every
refusal is a problem.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

import msgspec
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from postroom.domain.texts import _
from postroom.web.api.auth import identify
from postroom.web.api.openapi import refusal
from postroom.web.api.problems import ApiProblem, as_problem, invalid

SHORT_BYTES_MAX = 64 * 1024  # parsed at once; a longer body in a thread, and only if it is flat
MEMBERS_MAX = 2000  # far more than any object has
NESTED_BYTES_MAX = 1024 * 1024  # the longest document of blocks, with every letter escaped
ERRORS_SHOWN_MAX = 10
ERROR_CHARS_MAX = 300


class ApiRequest(Request):
    """A request whose body is read within limits before FastAPI asks for it."""

    content = b""
    value: Any = None

    async def body(self) -> bytes:
        return self.content

    async def json(self) -> Any:
        return self.value

    async def read(self, bytes_max: int, documents: frozenset[str] = frozenset()) -> None:
        """Read and parse the body; stop reading as soon as it is too long."""
        content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise ApiProblem(415, _("Send JSON with the header “Content-Type: application/json”."))
        content = bytearray()
        try:
            async for chunk in self.stream():
                content += chunk
                if len(content) > bytes_max:
                    raise ApiProblem(
                        413,
                        _("The body is too large. Send at most {limit} bytes.", limit=bytes_max),
                    )
        except ClientDisconnect:
            raise ApiProblem(400, _("The connection broke before the end of the body.")) from None
        self.content = bytes(content)
        if len(content) <= SHORT_BYTES_MAX:
            self.value = parse_json(self.content)
        else:
            self.value = await asyncio.to_thread(parse_json, self.content, documents)


class _Name:
    """The name of a member; equal to no other, so that a repeated member is not lost."""

    def __init__(self, text: str) -> None:
        self.text = text


_Scalar = str | int | float | bool | None
_ROUGH = dict[_Name, msgspec.Raw]
_OBJECT = dict[_Name, _Scalar | list[Any] | dict[_Name, Any]]


def parse_json(body: bytes, documents: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The members of a body; refused if it is not a JSON object, too deep, or repeats a member.

    A long body must be flat with few members, except for `documents`, which are shorter: the
    decoder holds the interpreter lock, and ten megabytes of small values would block everybody else
    for a second.
    """
    count = 0

    def name(_kind: type, text: str) -> _Name:
        nonlocal count
        count += 1
        if count > MEMBERS_MAX:
            raise ApiProblem(422, _("The body has too many members."))
        return _Name(text)

    is_short = len(body) <= SHORT_BYTES_MAX
    kind: Any = _OBJECT if is_short else _ROUGH
    try:
        named = msgspec.json.decode(body, type=kind, dec_hook=name)
        if not is_short:
            named = {each: _long_value(named[each], each.text in documents) for each in named}
    except RecursionError:
        raise ApiProblem(422, _("The JSON is nested too deeply. Send one flat object.")) from None
    except msgspec.ValidationError:
        raise ApiProblem(
            422, _("Send one JSON object whose members are strings, numbers, true, false or null.")
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ApiProblem(400, _("The body is not JSON in UTF-8.")) from None
    return {
        name: _members(value) if isinstance(value, dict) else value
        for name, value in _members(named).items()
    }


def _long_value(raw: msgspec.Raw, is_document: bool) -> Any:
    """The value of a member of a long body."""
    if is_document and len(raw) <= NESTED_BYTES_MAX:
        return msgspec.json.decode(raw)
    return msgspec.json.decode(raw, type=_Scalar)


def _members(named: dict[_Name, Any]) -> dict[str, Any]:
    members = {name.text: value for name, value in named.items()}
    if len(members) < len(named):
        raise ApiProblem(422, _("The body has the same member more than once. Send it only once."))
    return members


class ApiRoute(APIRoute):
    """A route that answers every refusal with a problem, including a wrong method.

    Its function documents it: the first line of the docstring is the summary, the rest the
    description, and the signature determines the possible refusals.
    """

    methods: set[str]  # every route names its own
    _methods_at: ClassVar[dict[str, set[str]]] = {}  # by path, over all routes of the service

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self._methods_at.setdefault(path, set()).update(self.methods)
        summary, _blank, rest = inspect.cleandoc(endpoint.__doc__ or "").partition("\n\n")
        self.summary = self.summary or summary.rstrip(".")
        self.description = f"{rest}\f"  # instead of an empty one FastAPI would take the docstring
        self.responses |= {status: refusal(status) for status in self._refusals()}

    @property
    def _body(self) -> Any:
        """The model of the body, if there is one."""
        return self.body_field and self.body_field.field_info.annotation

    def _refusals(self) -> list[int]:
        refusals = [401, 403, 422, 429, 503]
        if self._body:
            refusals += 400, 413, 415
        if "{" in self.path or (self._body and "list" in self._body.model_fields):
            refusals.append(404)
        if "GET" not in self.methods:
            refusals.append(409)
        if any(each.alias == "If-Match" for each in self.dependant.header_params):
            refusals += [412] if "POST" in self.methods else [412, 428]
        return refusals

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(plain: Request) -> Response:
            request = ApiRequest(plain.scope, plain.receive)
            try:
                request.state.caller = await identify(request)
                if self._body:
                    await request.read(self._body.bytes_max, self._body.documents)
                return await handle(request)
            except RequestValidationError as error:
                return _invalid(error).response()
            except Exception as error:
                if problem := as_problem(error):
                    return problem.response()
                raise

        return answer

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in self.methods:
            await super().handle(scope, receive, send)
            return
        allowed = ", ".join(sorted(self._methods_at[self.path]))
        refused = ApiProblem(
            405,
            _("This method is not allowed here. Use {methods}.", methods=allowed),
            {"Allow": allowed},
        )
        await refused.response()(scope, receive, send)


def _invalid(error: RequestValidationError) -> ApiProblem:
    errors = [_field_error(each) for each in error.errors()[:ERRORS_SHOWN_MAX]]
    fields = {each["field"] for each in errors}
    detail = " ".join(each["detail"] for each in errors)
    if not all(fields):
        return ApiProblem(422, _("Send one JSON object."))
    if len(fields) > 1:
        return ApiProblem(422, detail, errors=errors)
    return invalid(detail, fields.pop(), errors=errors)


def _field_error(error: dict[str, Any]) -> dict[str, str]:
    """One error, described by our own checks or pydantic; without a field if it is the body's."""
    place = [str(each)[:60] for each in error["loc"][1:]]
    name = ".".join(place)
    match error["type"]:
        case "missing":
            detail = str(_("“{name}” is missing.", name=name))
        case "extra_forbidden":
            detail = str(_("“{name}” is unknown. Remove it.", name=name))
        case "value_error":
            detail = str(error["ctx"]["error"])
        case _:
            detail = f"“{name}” must be {error['msg'].removeprefix('Input should be ')}."
    return {"field": place[0] if place else "", "detail": detail[:ERROR_CHARS_MAX]}
