"""Reading what a call brings: JSON into a struct, and every mistake in it by name.

A body is a struct whose members each say what they want to be:

    class NewList(msgspec.Struct, forbid_unknown_fields=True):
        name: Annotated[str, Member(_("a text, the name of a list"), check_list_name, …)]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, TypeVar, get_args

import msgspec
from starlette.requests import ClientDisconnect, Request

from postroom.domain.address import BadAddress
from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, _
from postroom.web.api.problems import Refused

BODY_BYTES_MAX = 16 * 1024  # all attributes a subscriber may have, and room
MISTAKES_TOLD_MAX = 10
MISTAKE_CHARS_MAX = 300

StructT = TypeVar("StructT", bound=msgspec.Struct)


def _as_it_is(value: Any) -> Any:
    return value


class Member(msgspec.Struct, frozen=True):
    """What one member of a body must be: for the reader, for the refusal, for the documentation."""

    wanted: Text  # goes on after “name” must be
    check: Callable[[Any], Any] = _as_it_is  # the value as it is used; BadInput or BadAddress
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})


class Mistake(msgspec.Struct, frozen=True):
    field: str
    detail: str


async def read_body(request: Request, kind: type[StructT], bytes_max: int = 0) -> StructT:
    return parse(await receive(request, bytes_max), kind)


async def receive(request: Request, bytes_max: int = 0) -> bytes:
    """The whole body; no more of a longer one than shows that it is."""
    _check_content_type(request)
    bytes_max = bytes_max or BODY_BYTES_MAX
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > bytes_max:
                raise Refused(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    _("Send a body of at most {limit} bytes.", limit=bytes_max),
                )
    except ClientDisconnect:
        raise Refused(HTTPStatus.BAD_REQUEST, _("Send the body to its end.")) from None
    return bytes(body)


def parse(body: bytes, kind: type[StructT]) -> StructT:
    """The struct with every member checked; the quick way, as long as nothing is wrong."""
    try:
        call: StructT = _decoder(kind).decode(body)
        checked = {
            field: member.check(value)
            for field, member in _checks(kind).items()
            if (value := getattr(call, field)) is not None and value is not msgspec.UNSET
        }
        return msgspec.structs.replace(call, **checked)
    except (msgspec.ValidationError, BadInput, BadAddress, RecursionError):
        raise _unprocessable(list(_mistakes(_members(body, kind), kind))) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _not_json() from None


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
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            _("Send JSON, with the header “Content-Type: application/json”."),
        )


# --- Naming all that is wrong -------------------------------------------------------------------


def _members(body: bytes, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The body again, as it came."""
    try:
        members = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _not_json() from None
    except RecursionError:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            _("Send one flat JSON object: this is nested too deep."),
        ) from None
    if not isinstance(members, dict):
        names = [field.encode_name for field in msgspec.structs.fields(kind)]
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            _("Send one JSON object, with {names}.", names=" and ".join(names)),
        )
    return members


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
        converted = msgspec.convert(value, field.type)
        if converted is not None:
            member.check(converted)
    except msgspec.ValidationError:
        return str(_("“{name}” must be {wanted}.", name=name, wanted=member.wanted))
    except (BadInput, BadAddress) as error:
        return str(error)
    return ""


def _unprocessable(mistakes: list[Mistake]) -> Refused:
    told = mistakes[:MISTAKES_TOLD_MAX]
    if not told:  # a later member of the same name hid the wrong one
        return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, _("Name each member only once."))
    detail = " ".join(mistake.detail for mistake in told)
    if len({mistake.field for mistake in told}) > 1:
        return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=told)
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail, field=told[0].field, errors=told)


def _not_json() -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, _("Send the body as JSON in UTF-8: this is not."))
