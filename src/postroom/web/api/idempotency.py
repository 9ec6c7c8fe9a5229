"""Idempotency keys: a repeated call with the same key creates nothing twice.

Dies half-way:
    before the note                           nothing happened
    between note and creation                 the repeated call takes over and creates it
    between creation and the stored response  the repeated call finds it by the time in its note
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from postroom.act import Act
from postroom.domain.errors import PostroomError
from postroom.domain.texts import _
from postroom.records import idempotency
from postroom.records.idempotency import CallBegun, CallInProgress, KeyReused, StoredAnswer
from postroom.web.api.auth import ApiCaller
from postroom.web.api.etags import Representation, entity_tag
from postroom.web.api.openapi import IDEMPOTENCY_KEY_PATTERN
from postroom.web.api.problems import ApiProblem, invalid

_KEY = re.compile(IDEMPOTENCY_KEY_PATTERN)
Create = Callable[[Act, str], Awaitable[tuple[Representation, str]]]


async def create_once(caller: ApiCaller, key: str | None, create: Create) -> Response:
    """Respond 201 with what was created, now or by the same call before.

    `create` returns what it created and its path. It gets the context of the first attempt, by
    whose time it must recognise what that created, and an id of the call, empty without a key.
    Whatever may change with time is checked in `create`, not before it, so that a repeated call
    gets the same response.
    """
    if key is None:
        return _response(_answer(*await create(caller.act, "")))
    begun = await _begin(caller, key)
    if isinstance(begun, StoredAnswer):
        return _response(begun)
    try:
        act = caller.context.act(caller.trace, begun.note.begun_at)
        answer = _answer(*await create(act, begun.call))
    except (PostroomError, ApiProblem):
        await idempotency.forget(caller.tables, begun)
        raise
    await idempotency.finish(caller.tables, begun, answer)
    return _response(answer)


async def _begin(caller: ApiCaller, key: str) -> CallBegun | StoredAnswer:
    if not _KEY.fullmatch(key):
        raise invalid(
            _("“Idempotency-Key” must be 1 to 100 printable ASCII characters without spaces."),
            "Idempotency-Key",
        )
    called = f"{caller.request.method} {caller.request.scope['path']}\n".encode()
    fingerprint = hashlib.sha256(called + await caller.request.body()).hexdigest()
    begun = await idempotency.begin(caller.tables, caller.key.id, key, fingerprint, caller.now)
    if isinstance(begun, KeyReused):
        raise invalid(
            _("This Idempotency-Key was used for another call. Use a new one for each call."),
            "Idempotency-Key",
        )
    if isinstance(begun, CallInProgress):
        seconds = max(1, math.ceil(begun.wait.total_seconds()))
        raise ApiProblem(
            409,
            _("The same call is still in progress. Try again in {seconds} s.", seconds=seconds),
            {"Retry-After": str(seconds)},
        )
    return begun


def _answer(created: Representation, location: str) -> StoredAnswer:
    body = msgspec.json.encode(created.value).decode()
    etag = entity_tag(created.etag)
    return StoredAnswer(status=HTTPStatus.CREATED, body=body, location=location, etag=etag)


def _response(answer: StoredAnswer) -> Response:
    headers = {"Location": answer.location, "ETag": answer.etag}
    return Response(answer.body, answer.status, headers, "application/json")
