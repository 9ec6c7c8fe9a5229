"""Somebody who reads pages in the language of brackets, and what they found in English."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from postroom.domain.feedback import BounceReason
from postroom.records.names import QUEUES
from postroom.web.context import WebContext
from tests import webhook_posts
from tests.web import returned
from tests.web.office import LIST
from tests.web.people import SECOND
from tests.web.pseudo import untranslated
from tests.web.signed_in import Worker

PEOPLE = ["ada", "ben", "eve", "fay", "gus", "zoe"]
OTHERS = ["owner", "viewer", "editor", "new", "student1", "gone", "dead"]
DATA = [
    *(f"{name}@contoso.edu" for name in (*PEOPLE, *OTHERS)),
    *(
        "student0@contoso.edu",
        "a@contoso.edu",
        "donotreply@contoso.edu",
        "s•••••1@contoso.edu",
        "post.contoso.edu",
        "contoso.edu",
    ),
    *(
        LIST,
        SECOND,
        f"/s/{LIST}",
        "History <b>news</b>",
        "New lectures",
        "Café number",
        "people.csv",
    ),
    *("first_name", "city", "Ada", "Köln", "email", "name=", "unsubscribe_url", "nobody"),
    *("They asked", "a test", "Web site", "550 5.1.1 mailbox unavailable", "UTF-8", "127.0.0.1"),
    "host.1",  # of a trace
    "The disk is full.",  # why a backup failed
    *("Headline", "Main text", "Button", "Closing", "View in browser"),  # of a template
    *("Postroom", "UTC", "https://", "…"),
    *("SendGrid", "Amazon SES", "Azure Communication Services", "Mailgun", "Postmark"),
    *(webhook_posts.SnsTopic().arn, "fabrikam.edu", "tailspin.edu", returned.CAUSE.words),
    *(f"{returned.address_at(at)}" for at in range(len(BounceReason))),
    "250 2.0.0 Ok",
    *QUEUES,
    *(each.words for each in (returned.DEAD, returned.FULL, returned.BLOCKED)),
    # What an inbox shows of a mail, which is in the language of its list.
    *("Dear [name]", "– a", "– a a", "You are receiving this because you subscribed to"),
    "Unsubscribe",
    *("debug", "info", "warning", "error"),  # levels of the log, as they are stored
    "postroom.toml",
]
KEY = re.compile(r"prk_[\w-]+|\b[0-9a-f]{8}\b")  # and its id


@dataclass
class Visit:
    """Somebody who reads everything, and what they saw."""

    owner: Worker
    first_start: list[str]  # pages from before there was an account
    seen: set[str] = field(default_factory=set)
    english: list[str] = field(default_factory=list)

    async def get(self, path: str, status: int = 200, /, **more: str) -> str:
        answer = await self.owner.get(path, **more)
        return self._read(path, answer, status)

    async def post(self, path: str, status: int, /, **fields: str) -> str:
        return self._read(path, await self.owner.post(path, **fields), status)

    async def as_anybody(self, path: str, status: int = 200) -> str:
        return self._read(path, await self.owner.office.browser.get(path), status)

    def read(self, where: str, page: str) -> None:
        page = KEY.sub("", page)
        self.english += [f"{where}: {piece}" for piece in untranslated(page, DATA)]

    def _read(self, path: str, answer: httpx2.Response, status: int) -> str:
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:400]}"
        self.seen.add(path.partition("?")[0])
        self.read(path, answer.text)
        return answer.text


def context_under(visit: Visit) -> WebContext:
    context: WebContext = app_under(visit).state.context
    return context


def app_under(visit: Visit) -> Any:
    spoken = visit.owner.browser._transport.app  # type: ignore[attr-defined]
    return spoken._app._app


@contextlib.contextmanager
def other_context(visit: Visit, context: WebContext) -> Iterator[None]:
    """As if the settings were others, for a while; the webhooks begin anew."""
    state = app_under(visit).state
    before, state.context = state.context, context
    state.made = {}
    try:
        yield
    finally:
        state.context, state.made = before, {}
