"""Forms that create something act once, however often they are submitted.

Each form carries a token, created when it was shown. A reload or a second click submits the same
fields with the same token: nothing is created again, and the response is the same. Other fields
with the same token are a new submission, because somebody went back and changed the form. The token
is valid for one user and one form, so nobody repeats another's submission. A secret that is shown
only once, a key or a link, is not stored and not shown again; a user who missed it creates another.

Dies half-way (and then is submitted again):
    before the note                           nothing happened
    between note and creation                 it is created now
    between creation and the stored response  it finds what was created by the time in the note; a
                                              secret that was never shown is replaced
    after that                                it responds with what was created and where
Nobody is locked out: a failed submission can be repeated at once, one that died after the time
limit of its page. Notes are kept for a day; a form submitted again after that acts again.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from http import HTTPStatus

import msgspec
from starlette.requests import Request

from postroom.domain.errors import PostroomError
from postroom.records import idempotency
from postroom.records.idempotency import TAKEN_FOR, CallBegun, StoredAnswer
from postroom.storage.port import StorageError
from postroom.web.context import context_of
from postroom.web.forms import ONCE, Form
from postroom.web.security import limits_for
from postroom.web.signed_in import SignedIn

# A second click waits for the first, for less time than any page may take.
CHECKS_MAX = 16
CHECK_EVERY_S = 0.25
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,64}")


class Submission(msgspec.Struct, frozen=True):
    """One submission of a form that acts."""

    at: datetime  # stored with what is created, to find it again
    call: str = ""  # identifies this submission; empty if the form had no token
    is_again: bool = False  # an earlier one acted and may have died at any point


class SubmitResult(msgspec.Struct, frozen=True):
    what: str  # stored: its path or name
    secret: str | None = None  # only for the page, never stored; None if none or shown before


class AlreadySubmitted(Exception):
    """The same form was submitted before and is still being processed."""


Handler = Callable[[Submission], Awaitable[SubmitResult]]


async def act_once(request: Request, signed_in: SignedIn, form: Form, act: Handler) -> SubmitResult:
    """Act, or return the result of the same form when it was submitted before.

    `act` raises a PostroomError if it did nothing. If `submission.is_again`, it must recognise what
    an earlier submission created.
    """
    context = context_of(request)
    if not _TOKEN.fullmatch(form.value(ONCE)):  # an old page, or a script
        return await act(Submission(context.clock.now()))
    begun = await _begin(request, signed_in, form)
    if isinstance(begun, StoredAnswer):
        return SubmitResult(begun.location)
    tables = context.storage.tables
    try:
        done = await act(Submission(begun.note.begun_at, begun.call, begun.is_again))
        answer = StoredAnswer(status=HTTPStatus.SEE_OTHER, location=done.what)
        await idempotency.finish(tables, begun, answer)
    except PostroomError:
        await idempotency.forget(tables, begun)
        raise
    except StorageError:
        with contextlib.suppress(StorageError):
            await idempotency.release(tables, begun)
        raise
    return done


async def _begin(request: Request, signed_in: SignedIn, form: Form) -> CallBegun | StoredAnswer:
    context = context_of(request)
    user = hashlib.sha256(signed_in.user.key.encode("utf-8", "surrogatepass")).hexdigest()
    fields = sorted(form.values.items())  # the token is one of them
    content = msgspec.json.encode([request.url.path, request.url.query, fields])
    fingerprint = hashlib.sha256(content).hexdigest()
    page_s = limits_for(request.url.path).answer_s
    for _ in range(CHECKS_MAX):
        found = await idempotency.begin(
            context.storage.tables,
            f"user-{user}",
            fingerprint,
            fingerprint,
            context.clock.now(),
            taken_for=timedelta(seconds=page_s) if page_s else TAKEN_FOR,
        )
        if isinstance(found, (CallBegun, StoredAnswer)):
            return found
        await context.clock.sleep(CHECK_EVERY_S)
    raise AlreadySubmitted
