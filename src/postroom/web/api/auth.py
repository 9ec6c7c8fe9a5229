"""Access keys: who may call, with which rights, for which lists, how often.

Every route names the right it needs in its signature:

    async def show(caller: Reader, name: str) -> Response
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import Depends
from fastapi.security import HTTPBearer
from starlette.requests import Request

from postroom.act import Act
from postroom.domain.access_key import AccessKey, Right, key_hash
from postroom.domain.consent import Trace, by_key
from postroom.domain.texts import Text, _
from postroom.domain.throttle import NO_WAIT
from postroom.records import keys
from postroom.storage.port import StorageError, Tables
from postroom.web.api.problems import ApiProblem
from postroom.web.context import WebContext, client_of, context_of, one_per_app
from postroom.web.throttles import CallLimit, throttles_of

STORAGE_S_MAX = 5.0  # a client's own page would not wait longer
KEY_KEPT = timedelta(seconds=5)  # a revoked key works no longer than this
KEYS_KEPT_MAX = 1000
KEY_CALLS = CallLimit("keys", 1000, timedelta(seconds=1), 2000, KEYS_KEPT_MAX)

T = TypeVar("T")


class KeyCache:
    """The access keys that this process looked up in the last seconds."""

    def __init__(self) -> None:
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


def key_cache_of(request: Request) -> KeyCache:
    return one_per_app(request.app, KeyCache)


@dataclass(frozen=True)
class ApiCaller:
    """The holder of a key, in a call that began at `now`."""

    context: WebContext
    key: AccessKey
    now: datetime
    trace: Trace  # for the consent record

    @property
    def tables(self) -> Tables:
        return self.context.storage.tables

    @property
    def act(self) -> Act:
        return self.context.act(self.trace, self.now)

    def check_may_use(self, list_name: str, field: str = "list") -> None:
        """Refuse in the same words whether the list exists or not."""
        if not self.key.is_for(list_name):
            raise ApiProblem(
                HTTPStatus.FORBIDDEN,
                _("This access key is not for the list {name}.", name=list_name[:60]),
                field=field,
            )


# --- Authentication -----------------------------------------------------------------------------

BEARER = HTTPBearer(
    scheme_name="accessKey",
    description="An access key with the right that the call needs (`postroom key create`).",
    auto_error=False,  # refused in our own words
)


async def identify(request: Request) -> ApiCaller:
    """The caller by their key, before anything else of the call is read."""
    context = context_of(request)
    now = context.clock.now()
    bearer = await BEARER(request)
    key = None
    if bearer:
        key = await answered(
            key_cache_of(request).find_key(context.storage.tables, bearer.credentials, now)
        )
    if key is None:
        raise ApiProblem(
            HTTPStatus.UNAUTHORIZED,
            _("Send a valid access key, as in “Authorization: Bearer prk_…”."),
            {"WWW-Authenticate": "Bearer"},
        )
    count(request, KEY_CALLS, key.id, now, _("Too many calls with this access key."))
    return ApiCaller(context, key, now, by_key(key.id, client_of(request)))


def with_right(right: Right) -> Callable[..., Awaitable[ApiCaller]]:
    """A dependency: the caller, if their key has the right."""

    async def caller(request: Request) -> ApiCaller:
        found: ApiCaller = request.state.caller
        if not found.key.has(right):
            raise ApiProblem(
                HTTPStatus.FORBIDDEN,
                _(
                    "This access key does not have the right “{right}”. Use one that was created "
                    "with “--right {right}”.",
                    right=right,
                ),
            )
        return found

    return caller


Joiner = Annotated[ApiCaller, Depends(with_right(Right.SUBSCRIBE))]
Reader = Annotated[ApiCaller, Depends(with_right(Right.READ))]
Writer = Annotated[ApiCaller, Depends(with_right(Right.WRITE))]


def count(request: Request, limit: CallLimit, caller: str, now: datetime, what: Text) -> None:
    wait = throttles_of(request).wait(limit, caller, now)
    if wait > NO_WAIT:
        seconds = math.ceil(wait.total_seconds())
        raise ApiProblem(
            HTTPStatus.TOO_MANY_REQUESTS,
            _("{what} Try again in {seconds} s.", what=what, seconds=seconds),
            {"Retry-After": str(seconds)},
        )


async def answered(answer: Awaitable[T]) -> T:
    """The answer of storage, in time. A sign-up that is given up half-way may be repeated."""
    async with asyncio.timeout(STORAGE_S_MAX):
        return await answer
