"""Forms that create something act once, however often they are sent.

Each carries a token, made when it was shown. A page that is loaded again, or a second click on the
button, sends the same words with the same token: nothing is created again, and the answer is as
before. Other words with the same token are another thing: somebody went back and typed the next.
The token counts for one user and one form, so nobody repeats what another has sent. What is shown
only once, a key or a link, is not noted and so not shown again; who missed it makes another.

Dies half-way:
    before the note                          nothing happened
    between note and creation                sent again, it is created now
    between creation and the answer noted    sent again, it finds what it made, by the time in its
                                             note; what was to be shown once was not, and is
                                             replaced
    after that                               sent again, it is told what was made and where
Nobody is locked out: what failed is taken over at once when it is sent again, and what died, when
the time of its page is over. A note is kept for a day; a form that is sent again after that acts
again.
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
from postroom.storage.port import StorageError, Tables
from postroom.web.context import context_of
from postroom.web.forms import ONCE, Form
from postroom.web.security import limits_for
from postroom.web.signed_in import SignedIn

# A second click waits for the first, for less time than any page has.
LOOKS_MAX = 16
LOOK_EVERY_S = 0.25
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,64}")


class Submission(msgspec.Struct, frozen=True):
    """The sending of a form that acts."""

    at: datetime  # what is created carries it, and is known by it
    call: str = ""  # tells it from every other; empty: the form came without a token
    is_again: bool = False  # an earlier one acted, and may have got anywhere


class SubmitResult(msgspec.Struct, frozen=True):
    what: str  # noted: where it is, or what it is called
    secret: str | None = None  # for the page alone, noted nowhere; None: none, or shown before


class AlreadySubmitted(Exception):
    """The same form was sent before, and is still at work."""


Handler = Callable[[Submission], Awaitable[SubmitResult]]


async def act_once(request: Request, signed_in: SignedIn, form: Form, act: Handler) -> SubmitResult:
    """What was done, now or when the same form was sent before.

    `act` raises a PostroomError if it did nothing. If its turn is again, it must recognise what an
    earlier one has made.
    """
    context = context_of(request)
    if not _TOKEN.fullmatch(form.value(ONCE)):  # an old page, or a script
        return await act(Submission(context.clock.now()))
    begun = await _begun(request, signed_in, form)
    if isinstance(begun, StoredAnswer):
        return SubmitResult(begun.location)
    return await _acted(context.storage.tables, begun, act)


async def _begun(request: Request, signed_in: SignedIn, form: Form) -> CallBegun | StoredAnswer:
    context = context_of(request)
    user, form_sent = _hashed(signed_in.user.key), _fingerprint(request, form)
    page_s = limits_for(request.url.path).answer_s
    for _ in range(LOOKS_MAX):
        found = await idempotency.begin(
            context.storage.tables,
            f"user-{user}",
            form_sent,
            form_sent,
            context.clock.now(),
            taken_for=timedelta(seconds=page_s) if page_s else TAKEN_FOR,
        )
        if isinstance(found, (CallBegun, StoredAnswer)):
            return found
        await context.clock.sleep(LOOK_EVERY_S)
    raise AlreadySubmitted


async def _acted(tables: Tables, begun: CallBegun, act: Handler) -> SubmitResult:
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


def _fingerprint(request: Request, form: Form) -> str:
    """Of where it was sent, and every word of it; the token is one of them."""
    sent = sorted(form.values.items())
    return _hashed(msgspec.json.encode([request.url.path, request.url.query, sent]).decode())


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
