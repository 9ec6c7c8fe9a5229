"""The web service under /api/v1: a client's site signs people up.

Every answer but 202 is a problem (RFC 9457) whose detail says what to do. The answer is the same
whether an address is known or not, and a call may be repeated: asking twice is asking once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import msgspec
import structlog
from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from postroom.domain.access_key import AccessKey, key_hash
from postroom.domain.address import Address, BadAddress, parse_address
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.subscriber import clean_attributes
from postroom.domain.throttle import NO_WAIT, Throttle
from postroom.flow import subscribe as stage
from postroom.records import keys
from postroom.records.rows import Unreadable
from postroom.storage.port import StorageError, Tables
from postroom.web.desk import Desk, desk_of

BODY_BYTES_MAX = 16 * 1024  # all attributes a subscriber may have, and room
STORAGE_S_MAX = 5.0  # longer than that a client's own page would not wait
RETRY_STORAGE_S = 5
KEY_KEPT = timedelta(seconds=5)  # a revoked key works no longer than this
KEYS_KEPT_MAX = 1000
KEY_CALLS_PER_S = 1000
KEY_CALLS_BURST = 2000
ADDRESS_CALLS_PER_HOUR = 20  # so that nobody's address is tried all day
ADDRESSES_COUNTED_MAX = 100_000  # about 30 MB
MISTAKES_TOLD_MAX = 10
MISTAKE_CHARS_MAX = 300

T = TypeVar("T")
log = structlog.get_logger("api")


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a call; _MEMBERS and REQUEST_BODY below say the same."""

    list: str
    email: str
    attributes: dict[str, str] = {}


class Mistake(msgspec.Struct, frozen=True):
    field: str
    detail: str


class Refused(Exception):
    """The call ends here, with a problem as its answer."""

    def __init__(
        self, status: HTTPStatus, detail: str, headers: Mapping[str, str] = {}, **members: object
    ) -> None:
        super().__init__(detail)
        self._status = status
        self._headers = headers
        self._members = {"detail": detail, **members}

    def response(self) -> Response:
        about = {"type": "about:blank", "title": self._status.phrase, "status": self._status}
        content = msgspec.json.encode(about | self._members)
        return Response(content, self._status, self._headers, "application/problem+json")


class ApiRoute(APIRoute):
    """A route that refuses other methods as it refuses everything else."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods = self.methods or ()
        if scope["method"] in methods:
            await super().handle(scope, receive, send)
            return
        headers = {"Allow": ", ".join(sorted(methods))}
        refused = Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"Use {headers['Allow']} here.", headers)
        await refused.response()(scope, receive, send)


class Gate:
    """What one process remembers of its callers: keys for seconds, and how often they called."""

    def __init__(self) -> None:
        self.calls = Throttle(
            KEY_CALLS_PER_S, timedelta(seconds=1), burst=KEY_CALLS_BURST, callers_max=KEYS_KEPT_MAX
        )
        self.addresses = Throttle(
            ADDRESS_CALLS_PER_HOUR,
            timedelta(hours=1),
            burst=ADDRESS_CALLS_PER_HOUR,
            callers_max=ADDRESSES_COUNTED_MAX,
        )
        self._keys: OrderedDict[str, tuple[AccessKey, datetime]] = OrderedDict()

    async def find_key(self, tables: Tables, key: str, now: datetime) -> AccessKey | None:
        hashed = key_hash(key)
        kept = self._keys.get(hashed)
        if kept and NO_WAIT <= now - kept[1] < KEY_KEPT:
            return kept[0]
        self._keys.pop(hashed, None)
        found = await keys.find(tables, key)
        if found:
            self._keys[hashed] = found, now
            if len(self._keys) > KEYS_KEPT_MAX:
                self._keys.popitem(last=False)
            with contextlib.suppress(StorageError):  # worth a note, not a refusal
                await keys.note_use(tables, key, now)
        return found


def gate_of(request: Request) -> Gate:
    """The gate of this application, made at its first call."""
    state = request.app.state
    if not hasattr(state, "gate"):
        state.gate = Gate()
    gate: Gate = state.gate
    return gate


# --- What the documentation of the service shows -----------------------------------------------

PROBLEMS = {
    400: "The body is not JSON.",
    401: "No key, or not a valid one.",
    403: "The key is not for this list.",
    404: "There is no such list.",
    413: f"The body is longer than {BODY_BYTES_MAX} bytes.",
    415: "The body is not application/json.",
    422: "A member is wrong, missing or unknown; `errors` names each.",
    429: "Too many calls; Retry-After says when to call again.",
    503: "Storage does not answer; call again after Retry-After.",
}
_TEXT = {"type": "string"}
_MISTAKE = {"type": "object", "properties": {"field": _TEXT, "detail": _TEXT}}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        **dict.fromkeys(("type", "title", "detail", "field"), _TEXT),
        "status": {"type": "integer"},
        "errors": {"type": "array", "items": _MISTAKE},
    },
}


def _documented(status: int, description: str) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    example = {"type": "about:blank", "title": title, "status": status, "detail": description}
    content = {"application/problem+json": {"schema": _PROBLEM, "example": example}}
    return {"description": description, "content": content}


_ACCEPTED: dict[str, Any] = {
    "description": "Accepted. Who is not on the list yet gets a mail to confirm.",
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"status": _TEXT}, "required": ["status"]},
            "example": {"status": "accepted"},
        }
    },
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    202: _ACCEPTED,
    **{status: _documented(status, description) for status, description in PROBLEMS.items()},
}
_EXAMPLE = {"list": "contoso1", "email": "student1@contoso.edu", "attributes": {"name": "Ada"}}
REQUEST_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["list", "email"],
                "additionalProperties": False,
                "properties": {
                    "list": _TEXT,
                    "email": _TEXT,
                    "attributes": {"type": "object", "additionalProperties": _TEXT},
                },
            },
            "example": _EXAMPLE,
        }
    },
}
BEARER = HTTPBearer(
    scheme_name="accessKey",
    description="A key that `postroom key create` made.",
    auto_error=False,  # refused in our own words
)
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
router = APIRouter(prefix="/api/v1", route_class=ApiRoute)


# --- POST /api/v1/subscribe ---------------------------------------------------------------------


@router.post(
    "/subscribe",
    status_code=HTTPStatus.ACCEPTED,
    summary="Sign somebody up for a list",
    responses=RESPONSES,
    openapi_extra={"requestBody": REQUEST_BODY},
)
async def subscribe(request: Request, bearer: Bearer) -> Response:
    """Store the address unverified and queue a mail with a link to confirm it.

    The answer does not tell whether the address is on the list. Calls may be repeated.
    """
    try:
        await _take(request, bearer)
    except Refused as refused:
        return refused.response()
    return Response(b'{"status":"accepted"}', HTTPStatus.ACCEPTED, media_type="application/json")


async def _take(request: Request, bearer: HTTPAuthorizationCredentials | None) -> None:
    desk, gate = desk_of(request), gate_of(request)
    now = desk.clock.now()
    key = await _known_key(desk, gate, bearer, now)
    _count(gate.calls, key.id, now, "This key calls too often")
    _check_content_type(request)
    list_name, address, attributes = _checked(await _body(request))
    _check_may_use(key, list_name)
    _count(gate.addresses, address.key, now, "This address was sent too often")
    await _sign_up(desk, list_name, address, attributes, now)
    desk.wake_senders()


async def _known_key(
    desk: Desk, gate: Gate, bearer: HTTPAuthorizationCredentials | None, now: datetime
) -> AccessKey:
    key = None
    if bearer:
        key = await _answered(gate.find_key(desk.storage.tables, bearer.credentials, now))
    if key is None:
        raise Refused(
            HTTPStatus.UNAUTHORIZED,
            "Send a valid access key, as in “Authorization: Bearer prk_…”.",
            {"WWW-Authenticate": "Bearer"},
        )
    return key


def _count(throttle: Throttle, caller: str, now: datetime, what: str) -> None:
    wait = throttle.wait(caller, now)
    if wait > NO_WAIT:
        seconds = math.ceil(wait.total_seconds())
        raise Refused(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"{what}: try again in {seconds} s.",
            {"Retry-After": str(seconds)},
        )


def _check_content_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "Send JSON, with the header “Content-Type: application/json”.",
        )


async def _body(request: Request) -> bytes:
    """The whole body; no more of a longer one than shows that it is."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES_MAX:
                raise Refused(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"Send one person a call, in at most {BODY_BYTES_MAX} bytes.",
                )
    except ClientDisconnect:
        raise Refused(HTTPStatus.BAD_REQUEST, "Send the body to its end.") from None
    return bytes(body)


def _check_may_use(key: AccessKey, list_name: str) -> None:
    if not key.may_subscribe_to(list_name):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            f"This key is not for the list {list_name}: use one that is.",
            field="list",
        )


async def _sign_up(
    desk: Desk, list_name: str, address: Address, attributes: dict[str, str], now: datetime
) -> None:
    try:
        await _answered(stage.sign_up(desk.storage, list_name, address, attributes, now))
    except NotFound:
        raise Refused(
            HTTPStatus.NOT_FOUND, f"There is no list {list_name}: check the name.", field="list"
        ) from None


async def _answered(answer: Awaitable[T]) -> T:
    """What storage says, in time. A sign-up given up half-way is completed by repeating it."""
    try:
        async with asyncio.timeout(STORAGE_S_MAX):
            return await answer
    except (StorageError, Unreadable, TimeoutError) as error:
        log.warning("storage_failed", error=type(error).__name__)
        raise Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"Storage does not answer: try again in {RETRY_STORAGE_S} s.",
            {"Retry-After": str(RETRY_STORAGE_S)},
        ) from error


# --- Reading the body ---------------------------------------------------------------------------

_decode = msgspec.json.Decoder(Call).decode
_MEMBERS: dict[str, tuple[Any, str, Callable[[Any], object]]] = {
    "list": (str, "a text, the name of a list", check_list_name),
    "email": (str, "a text, the address", parse_address),
    "attributes": (dict[str, str], "an object whose values are texts", clean_attributes),
}


def _checked(body: bytes) -> tuple[str, Address, dict[str, str]]:
    """List, address and attributes; the quick way, as long as nothing is wrong."""
    try:
        call = _decode(body)
        address = parse_address(call.email)
        return check_list_name(call.list), address, clean_attributes(call.attributes)
    except (msgspec.ValidationError, BadInput, BadAddress):
        raise _unprocessable(list(_mistakes(_members(body)))) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _not_json() from None


def _members(body: bytes) -> dict[str, Any]:
    """The body again, as it came, to name all that is wrong with it."""
    try:
        members = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _not_json() from None
    except RecursionError:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY, "Send one flat JSON object: this is nested too deep."
        ) from None
    if not isinstance(members, dict):
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "Send one JSON object, with list and email.")
    return members


def _mistakes(members: dict[str, Any]) -> Iterator[Mistake]:
    for name in ("list", "email"):
        if name not in members:
            yield Mistake(name, f"“{name}” is missing: add it.")
    for name, value in members.items():
        if name not in _MEMBERS:
            shown = name[:MISTAKE_CHARS_MAX]
            yield Mistake(shown, f"“{shown}” is not known: take it out.")
            continue
        kind, wanted, check = _MEMBERS[name]
        try:
            check(msgspec.convert(value, kind))
        except msgspec.ValidationError:
            yield Mistake(name, f"“{name}” must be {wanted}.")
        except (BadInput, BadAddress) as error:
            yield Mistake(name, str(error)[:MISTAKE_CHARS_MAX])


def _unprocessable(mistakes: list[Mistake]) -> Refused:
    told = mistakes[:MISTAKES_TOLD_MAX]
    if not told:  # a later member of the same name hid the wrong one
        return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "Name each member only once.")
    detail = " ".join(mistake.detail for mistake in told)
    if len({mistake.field for mistake in told}) > 1:
        return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=told)
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail, field=told[0].field, errors=told)


def _not_json() -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "Send the body as JSON in UTF-8: this is not.")
