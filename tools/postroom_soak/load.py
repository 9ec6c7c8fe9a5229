"""The steady load of a soak: people sign up and unsubscribe, files are imported, messages go out.

Whatever was acknowledged is noted, so that it can be asked for in the end. A call that fails while
a fault lasts is not noted, and made again later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx2

from postroom.act import Act
from postroom.actions import sign_in
from postroom.actions.sign_in import Browser
from postroom.domain.address import parse_address
from postroom.domain.errors import PostroomError
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import OnDoubt
from postroom.domain.user import Role, User
from postroom.flow import subscribe
from postroom.importing import jobs
from postroom.records import keys, lists, messages, subscribers, users
from postroom.storage.port import StorageError
from postroom.wiring import Parts
from postroom_bench.installation import DOMAIN, Installation

STEADY, CHURN, IMPORTED = "steady", "churn", "imported"
SIGN_UPS_EVERY_S = 0.2
LEAVES_EVERY_S = 0.5
MESSAGES_EVERY_S = 5.0
IMPORTS_EVERY_S = 20.0
IMPORT_PEOPLE = 300
CHURN_PEOPLE = 400
UNDER_WAY_MAX = 3  # messages
JOB_POLLS_MAX = 600
OWN_PAGE = {"sec-fetch-site": "same-origin"}
CHOICE = {"email": "0", "header": "yes", "purpose": "confirmed", "basis": "they asked for it"}
_TROUBLE = (StorageError, PostroomError, httpx2.HTTPError, OSError)


@dataclass
class SentMessage:
    """A message of the soak, and who must get it: on the list when it was written."""

    ref: str
    list_name: str
    on_doubt: OnDoubt
    written_s: float
    members: frozenset[str]


@dataclass
class Load:
    installation: Installation
    parts: Parts
    web: httpx2.AsyncClient
    people: int
    is_over: bool = False
    messages: list[SentMessage] = field(default_factory=list)
    signed_up: list[str] = field(default_factory=list)  # with their answer 202
    left: dict[str, float] = field(default_factory=dict)  # address, and when
    imported: set[str] = field(default_factory=set)
    failed_calls: int = 0
    _members: dict[str, str] = field(default_factory=dict)  # of the churn list: address, GUID
    _key: str = ""

    async def prepare(self) -> None:
        tables, now = self.parts.storage.tables, self.parts.clock.now()
        await self.installation.people(self.parts, self.people, list_name=STEADY)
        for name in (CHURN, IMPORTED):
            mailing_list = MailingList(
                name=name, description="News", sender="donotreply@contoso.edu", created_at=now
            )
            await lists.create(tables, mailing_list)
        for number in range(CHURN_PEOPLE):
            await self._join(f"member{number}@{DOMAIN}")
        self._key, _ = await keys.create(tables, "soak", (CHURN,), now)
        address = parse_address(f"editor@{DOMAIN}")
        user = User(
            address=address.typed,
            key=address.storage_key,
            role=Role.EDITOR,
            password="nobody types it here",
            created_at=now,
            sessions_from=now,
        )
        await users.add(tables, user)
        token = await sign_in.begin(tables, user, Browser("127.0.0.1", "a soak"), now)
        self.web.cookies.set("postroom", token)

    async def run(self) -> None:
        """Everything at once, until `is_over`."""
        await asyncio.gather(
            self._repeat(self._sign_up, SIGN_UPS_EVERY_S),
            self._repeat(self._leave, LEAVES_EVERY_S),
            self._repeat(self._write_message, MESSAGES_EVERY_S),
            self._repeat(self._import, IMPORTS_EVERY_S),
        )

    async def _repeat(self, call: Callable[[], Awaitable[None]], every_s: float) -> None:
        while not self.is_over:
            try:
                await call()
            except _TROUBLE:
                self.failed_calls += 1
            await asyncio.sleep(every_s)

    def _act(self) -> Act:
        parts = self.parts
        return Act(parts.storage, parts.clock, parts.clock.now(), wake=parts.wakeups.ring)

    async def _sign_up(self) -> None:
        address = f"newcomer{len(self.signed_up)}-{time.monotonic_ns()}@{DOMAIN}"
        answer = await self.web.post(
            "/api/v1/subscribe",
            json={"list": CHURN, "email": address},
            headers={"Authorization": f"Bearer {self._key}"},
        )
        if answer.status_code == httpx2.codes.ACCEPTED:
            self.signed_up.append(address)
        else:
            self.failed_calls += 1

    async def _join(self, address: str) -> None:
        await subscribe.add(self._act(), CHURN, parse_address(address), {}, verified=True)
        key = parse_address(address).storage_key
        found = await subscribers.find(self.parts.storage.tables, CHURN, key)
        assert found
        self._members[address] = found[0].guid

    async def _leave(self) -> None:
        """Somebody unsubscribes, and somebody else joins."""
        address = next(iter(self._members))
        await subscribe.leave(self._act(), CHURN, self._members[address])
        del self._members[address]
        self.left[address] = time.monotonic()
        await self._join(f"joiner{len(self.left)}@{DOMAIN}")

    async def _write_message(self) -> None:
        tables = self.parts.storage.tables
        under_way = 0
        for each in self.messages[-UNDER_WAY_MAX:]:
            under_way += (await messages.read(tables, each.ref)).completed_at is None
        if under_way == UNDER_WAY_MAX:
            return
        number = len(self.messages)
        list_name = CHURN if number % 4 == 3 else STEADY
        on_doubt = OnDoubt.HOLD if number % 2 else OnDoubt.RESEND
        members = frozenset(self._members) if list_name == CHURN else self._steady()
        written_s = time.monotonic()
        ref = await self.installation.message(self.parts, on_doubt, list_name=list_name)
        self.messages.append(SentMessage(ref, list_name, on_doubt, written_s, members))

    def _steady(self) -> frozenset[str]:
        return frozenset(f"student{number}@{DOMAIN}" for number in range(self.people))

    async def _import(self) -> None:
        first = len(self.imported)
        people = [f"imported{first + number}@{DOMAIN}" for number in range(IMPORT_PEOPLE)]
        content = "email\n" + "\n".join(people) + "\n"
        answer = await self.web.post(
            "/admin/imports/upload",
            data={"list": IMPORTED},
            files={"file": ("people.csv", content.encode(), "text/csv")},
            headers=OWN_PAGE,
        )
        path = answer.headers.get("location", "").removesuffix("/columns")
        if not path:
            return
        await self._press(path, "columns", **CHOICE)
        await self._until_ended(path)
        await self._press(path, "start")
        await self._until_ended(path)
        job, _ = await jobs.read(self.parts.storage.tables, path.rpartition("/")[2])
        if job.is_finished:
            self.imported.update(people)

    async def _press(self, path: str, button: str, **fields: str) -> None:
        answer = await self.web.post(f"{path}/{button}", data=fields, headers=OWN_PAGE)
        if answer.status_code != httpx2.codes.SEE_OTHER:
            raise OSError(f"{button} was answered by {answer.status_code}")

    async def _until_ended(self, path: str) -> None:
        for _ in range(JOB_POLLS_MAX):
            job, _etag = await jobs.read(self.parts.storage.tables, path.rpartition("/")[2])
            if not job.is_running:
                return
            await asyncio.sleep(0.2)
