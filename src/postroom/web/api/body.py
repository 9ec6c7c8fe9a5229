"""Reading what a call brings: JSON into a struct, and every mistake in it by name.

A body is a struct whose members each say what they want to be:

    class NewList(msgspec.Struct, forbid_unknown_fields=True):
        name: Annotated[str, Member(_("a text, the name of a list"), check_list_name, …)]
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import ClientDisconnect, Request

from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, _
from postroom.web.api.problems import ApiProblem

BODY_BYTES_MAX = 16 * 1024  # all attributes a subscriber may have, and room
SHORT_BYTES_MAX = 64 * 1024  # of a body that is read at once, and whose every mistake is named
MEMBERS_MAX = 10_000  # of an object, hidden ones too: more than fit into any that is known
MISTAKES_TOLD_MAX = 10
MISTAKE_CHARS_MAX = 300

StructT = TypeVar("StructT", bound=msgspec.Struct)


def _as_it_is(value: Any) -> Any:
    return value


class Member(msgspec.Struct, frozen=True):
    """What one member of a body must be: for the reader, for the refusal, for the documentation."""

    wanted: Text  # goes on after “name” must be
    check: Callable[[Any], Any] = _as_it_is  # the value as it is used; BadInput
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})


class Mistake(msgspec.Struct, frozen=True):
    field: str
    detail: str


async def read_body(request: Request, kind: type[StructT], bytes_max: int = 0) -> StructT:
    return await parsed(await receive(request, bytes_max), kind)


async def receive(request: Request, bytes_max: int = 0) -> bytes:
    """The whole body; no more of a longer one than shows that it is."""
    _check_content_type(request)
    bytes_max = bytes_max or BODY_BYTES_MAX
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > bytes_max:
                raise ApiProblem(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    _("Send a body of at most {limit} bytes.", limit=bytes_max),
                )
    except ClientDisconnect:
        raise ApiProblem(HTTPStatus.BAD_REQUEST, _("Send the body to its end.")) from None
    return bytes(body)


async def parsed(body: bytes, kind: type[StructT]) -> StructT:
    """A long body in a thread: ten megabytes take a tenth of a second."""
    if len(body) <= SHORT_BYTES_MAX:
        return parse(body, kind)
    return await asyncio.to_thread(parse, body, kind)


def parse(body: bytes, kind: type[StructT]) -> StructT:
    """The struct with every member checked; the quick way, as long as nothing is wrong."""
    try:
        call: StructT = _decoder(kind).decode(body)
        _check_named_once(body, call)
        checked = {
            field: member.check(value)
            for field, member in _checks(kind).items()
            if (value := getattr(call, field)) is not None and value is not UNSET
        }
        return msgspec.structs.replace(call, **checked)
    except (msgspec.ValidationError, BadInput, RecursionError):
        mistakes = list(_mistakes(_members(body, kind), kind))
        if not mistakes and len(body) > SHORT_BYTES_MAX:
            raise _only_known(kind) from None
        raise _unprocessable(mistakes) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _not_json() from None


class _Value:
    """Any value; msgspec asks our hook for each one, also for one that a later one hides."""


def _check_named_once(body: bytes, call: msgspec.Struct) -> None:
    """The decoder lets the last of two members with one name win; nobody can mean that."""
    objects = [body]
    if any(isinstance(value, dict) for value in msgspec.structs.astuple(call)):
        objects += [bytes(each) for each in _known_members(body, type(call)).values()]
    for each in objects:
        if each.lstrip().startswith(b"{") and not _is_each_once(each):
            raise _not_once()


def _is_each_once(json_object: bytes) -> bool:
    values = 0

    def count(_kind: type, _value: object) -> _Value:
        nonlocal values
        values += 1
        if values > MEMBERS_MAX:
            raise _not_once()
        return _Value()

    members = msgspec.json.decode(json_object, type=dict[str, _Value], dec_hook=count)
    return len(members) == values


@functools.cache
def _raw_decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    """Members as they were sent; those that are not known are skipped, which is quick."""
    fields = msgspec.structs.fields(kind)
    raw = msgspec.defstruct(
        f"Raw{kind.__name__}",
        [(field.name, msgspec.Raw | UnsetType, UNSET) for field in fields],
        rename={field.name: field.encode_name for field in fields},
    )
    return msgspec.json.Decoder(raw)


@functools.cache
def _decoder(kind: type[StructT]) -> msgspec.json.Decoder[StructT]:
    return msgspec.json.Decoder(kind)


def member_of(field: msgspec.structs.FieldInfo) -> Member:
    found = [each for each in get_args(field.type) if isinstance(each, Member)]
    return found[0]


@functools.cache
def _checks(kind: type[msgspec.Struct]) -> dict[str, Member]:
    return {field.name: member_of(field) for field in msgspec.structs.fields(kind)}


def _check_content_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiProblem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            _("Send JSON, with the header “Content-Type: application/json”."),
        )


# --- Naming all that is wrong -------------------------------------------------------------------


def _members(body: bytes, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The body again, as it came; of a long one only what is known, or it would take seconds."""
    try:
        if len(body) > SHORT_BYTES_MAX:
            return _known_members(body, kind)
        members = msgspec.json.decode(body)
    except msgspec.ValidationError:
        members = None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _not_json() from None
    except RecursionError:
        raise ApiProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            _("Send one flat JSON object: this is nested too deep."),
        ) from None
    if not isinstance(members, dict):
        raise ApiProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            _("Send one JSON object, with {names}.", names=" and ".join(_names(kind))),
        )
    return members


def _known_members(body: bytes, kind: type[msgspec.Struct]) -> dict[str, Any]:
    raw = _raw_decoder(kind).decode(body)
    fields = {field.encode_name: getattr(raw, field.name) for field in msgspec.structs.fields(kind)}
    return {name: value for name, value in fields.items() if value is not UNSET}


def _names(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _mistakes(members: dict[str, Any], kind: type[msgspec.Struct]) -> Iterator[Mistake]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, field in fields.items():
        if field.required and name not in members:
            yield Mistake(name, str(_("“{name}” is missing: add it.", name=name)))
    for name, value in members.items():
        if name not in fields:
            shown = name[:MISTAKE_CHARS_MAX]
            yield Mistake(shown, str(_("“{shown}” is not known: take it out.", shown=shown)))
            continue
        detail = _wrong_with(name, value, fields[name])
        if detail:
            yield Mistake(name, detail[:MISTAKE_CHARS_MAX])


def _wrong_with(name: str, value: Any, field: msgspec.structs.FieldInfo) -> str:
    member = member_of(field)
    try:
        if isinstance(value, msgspec.Raw):
            converted = msgspec.json.decode(value, type=field.type)
        else:
            converted = msgspec.convert(value, field.type)
        if converted is not None:
            member.check(converted)
    except msgspec.ValidationError:
        return str(_("“{name}” must be {wanted}.", name=name, wanted=member.wanted))
    except BadInput as error:
        return str(error)
    return ""


def _unprocessable(mistakes: list[Mistake]) -> ApiProblem:
    told = mistakes[:MISTAKES_TOLD_MAX]
    if not told:  # a later member of the same name hid the wrong one
        return _not_once()
    detail = " ".join(mistake.detail for mistake in told)
    if len({mistake.field for mistake in told}) > 1:
        return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=told)
    return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, field=told[0].field, errors=told)


def _not_once() -> ApiProblem:
    return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, _("Name each member only once."))


def _only_known(kind: type[msgspec.Struct]) -> ApiProblem:
    return ApiProblem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        _("Send only these members, each once: {names}.", names=", ".join(_names(kind))),
    )


def _not_json() -> ApiProblem:
    return ApiProblem(HTTPStatus.BAD_REQUEST, _("Send the body as JSON in UTF-8: this is not."))
