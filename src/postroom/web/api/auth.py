"""Access keys: who may call, with which rights, for which lists and how often.

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
from typing import Annotated

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
KEY_CACHED = timedelta(seconds=5)  # a revoked key works no longer than this
KEYS_CACHED_MAX = 1000
KEY_CALLS = CallLimit("keys", 1000, timedelta(seconds=1), 2000, KEYS_CACHED_MAX)


class KeyCache:
    """The access keys that this process has looked up in the last seconds."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, tuple[AccessKey, datetime]] = OrderedDict()

    async def find_key(self, tables: Tables, key: str, now: datetime) -> AccessKey | None:
        hashed = key_hash(key)
        cached = self._keys.get(hashed)
        if cached and NO_WAIT <= now - cached[1] < KEY_CACHED:
            return cached[0]
        self._keys.pop(hashed, None)
        found = await keys.find(tables, key)
        if found:
            self._keys[hashed] = found, now
            if len(self._keys) > KEYS_CACHED_MAX:
                self._keys.popitem(last=False)
            with contextlib.suppress(StorageError):  # not worth a refusal
                await keys.note_use(tables, key, now)
        return found


@dataclass(frozen=True)
class ApiCaller:
    """The holder of a key, and their call."""

    request: Request
    context: WebContext
    key: AccessKey
    now: datetime  # when the call began
    trace: Trace  # for the consent record

    @property
    def tables(self) -> Tables:
        return self.context.storage.tables

    @property
    def act(self) -> Act:
        return self.context.act(self.trace, self.now)

    def check_may_use(self, list_name: str) -> None:
        """Refuse a list that the key is not for, without revealing whether it exists."""
        if not self.key.is_for(list_name):
            detail = _(
                "This access key does not give access to the list {name}.", name=list_name[:60]
            )
            raise ApiProblem(403, detail, field="list")

    def check_is_for_every_list(self) -> None:
        """Refuse a key that is limited to some lists."""
        if not self.key.is_for_every_list:
            raise ApiProblem(
                403, _("This access key is limited to certain lists. Use one for all lists.")
            )

    def throttle(self, limit: CallLimit, counted: str, what: Text) -> None:
        """Count the call, or refuse it if there were too many."""
        wait = throttles_of(self.request).wait(limit, counted, self.now)
        if wait > NO_WAIT:
            seconds = math.ceil(wait.total_seconds())
            raise ApiProblem(
                429,
                _("{what} Try again in {seconds} s.", what=what, seconds=seconds),
                {"Retry-After": str(seconds)},
            )


BEARER = HTTPBearer(
    scheme_name="accessKey",
    description="An access key with the right that the call needs (`postroom key create`).",
    auto_error=False,  # we refuse with a problem
)


async def identify(request: Request) -> ApiCaller:
    """Identify the caller by their key, before anything else of the request is read."""
    context = context_of(request)
    now = context.clock.now()
    key = None
    if bearer := await BEARER(request):
        cache = one_per_app(request.app, KeyCache)
        async with asyncio.timeout(STORAGE_S_MAX):
            key = await cache.find_key(context.storage.tables, bearer.credentials, now)
    if key is None:
        raise ApiProblem(
            401,
            _("Send a valid access key, as in “Authorization: Bearer prk_…”."),
            {"WWW-Authenticate": "Bearer"},
        )
    caller = ApiCaller(request, context, key, now, by_key(key.id, client_of(request)))
    caller.throttle(KEY_CALLS, key.id, _("Too many calls with this access key."))
    return caller


def with_right(right: Right) -> Callable[..., Awaitable[ApiCaller]]:
    """A dependency that returns the caller if their key has the right."""

    async def caller(request: Request) -> ApiCaller:
        found: ApiCaller = request.state.caller
        if not found.key.has(right):
            raise ApiProblem(
                403,
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
