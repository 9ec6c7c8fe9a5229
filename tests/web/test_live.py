"""Live pages: one reader for all, nothing said twice, and an end when there is nothing more."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio
from starlette.types import ASGIApp

from postroom.domain.delivery import Deferral, Ledger
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Books, Message, Status
from postroom.domain.user import Role
from postroom.flow.render import Site
from postroom.records import batches, lists, messages, users
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.wakeup import WakeUps
from postroom.web import live_updates
from postroom.web.app import create_app
from postroom.web.context import WebContext
from postroom.web.server import WebServer
from tests.web.office import LIST, NOW, Office
from tests.web.signed_in import Worker, sign_in_as

PATIENCE_S = 60.0  # of real time, for what takes milliseconds unless something is broken


class HandClock:
    """Whoever sleeps wakes when the test says so."""

    def __init__(self) -> None:
        self._now = NOW
        self.sleepers: list[asyncio.Future[None]] = []
        self._somebody_sleeps = asyncio.Event()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self.now().timestamp()

    async def sleep(self, seconds: float) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self.sleepers.append(sleeper)
        self._somebody_sleeps.set()
        try:
            await sleeper
        finally:
            self.sleepers.remove(sleeper)

    async def tick(self, seconds: float = 1.0) -> None:
        """Let time pass once the reader rests, and wait until it rests again."""
        await self.asleep()
        self._now += timedelta(seconds=seconds)
        self._somebody_sleeps.clear()
        for sleeper in self.sleepers:
            sleeper.set_result(None)
        await self.asleep()

    async def asleep(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._somebody_sleeps.wait()


class Stream:
    """One viewer's stream of events, as a browser would have it."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.chunks: asyncio.Queue[str] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._is_asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._is_asked:
            self._is_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status.set_result(message["status"])
        elif message.get("body"):
            self.chunks.put_nowait(message["body"].decode())

    def leave(self) -> None:
        self._gone.set()

    async def chunk(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await self.chunks.get()

    async def event(self) -> tuple[str, str]:
        """The next event that is no comment."""
        while (chunk := await self.chunk()).startswith(":"):
            pass
        name, _, data = chunk.removeprefix("event: ").partition("\n")
        return name, data


class Room:
    """An application, a clock in our hand, and somebody signed in."""

    def __init__(self, app: ASGIApp, clock: HandClock, worker: Worker) -> None:
        self.app = app
        self.clock = clock
        self.worker = worker
        self.storage = worker.office.storage

    @asynccontextmanager
    async def watching(
        self, path: str, stopping: asyncio.Event | None = None
    ) -> AsyncIterator[Stream]:
        cookie = self.worker.browser.cookies["__Host-postroom"]
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"cookie", f"__Host-postroom={cookie}".encode())],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        if stopping:
            scope["postroom.stopping"] = stopping
        stream = Stream()
        serving = asyncio.ensure_future(self.app(scope, stream.receive, stream.send))
        try:
            yield stream
        finally:
            stream.leave()
            async with asyncio.timeout(PATIENCE_S):
                await serving

    async def message(self, **more: Any) -> Message:
        about: dict[str, Any] = {"status": Status.PROCESSING, "audience": 3}
        about |= {"books": Books(queued=3)} | more
        written = Message(
            ref="",
            list_name=LIST,
            list_created_at=NOW,
            subject="News",
            sender="a@contoso.edu",
            created_at=NOW,
            due_at=NOW,
            queuing_at=NOW,
            fanned_out=True,
            **about,
        )
        made, _ = await messages.reserve(self.storage.tables, written)
        return made

    async def change(self, ref: str, **changes: Any) -> None:
        found = await messages.find_live(self.storage.tables, ref)
        assert found
        changed = msgspec.structs.replace(found[0], **changes)
        await messages.replace(self.storage.tables, changed, found[1])


@pytest_asyncio.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    clock = HandClock()
    storage, site = (
        MemoryStorage(clock, STORAGE_NAMES),
        Site("https://post.contoso.edu", "a secret"),
    )
    sample = MailingList(name=LIST, description="", sender="a@contoso.edu", created_at=NOW)
    await lists.create(storage.tables, sample)
    app = create_app(WebContext(storage, clock, WakeUps(tmp_path / "bells"), site))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=site.url) as browser:
        worker = await sign_in_as(Office(storage, site, browser), Role.EDITOR)
        async with worker.browser:
            yield Room(app, clock, worker)


def live(message: Message) -> str:
    return f"/admin/messages/{message.ref}/live"


async def test_books_follow_without_a_reload(room: Room) -> None:
    message = await room.message()
    async with room.watching(live(message)) as stream:
        name, data = await stream.event()
        assert name == "books"
        assert "<strong>3</strong> recipients, all accounted for." in data
        await room.change(message.ref, books=Books(queued=1, sent=2))
        await room.clock.tick()
        name, data = await stream.event()
        assert "2 + 1 =" in data
        assert "mails/s" in data


async def test_nothing_is_sent_while_nothing_changes(room: Room) -> None:
    message = await room.message()
    async with room.watching(live(message)) as stream:
        await stream.event()
        for _ in range(3):
            await room.clock.tick()
        await room.change(message.ref, books=Books(sending=3))
        await room.clock.tick()
        assert "<strong>3</strong> recipients" in (await stream.event())[1]  # the very next event


async def test_buttons_come_only_when_they_change(room: Room) -> None:
    message = await room.message()
    async with room.watching(live(message)) as stream:
        assert "message-actions" in (await stream.event())[1]
        await room.change(message.ref, books=Books(sending=3))
        await room.clock.tick()
        assert "message-actions" not in (await stream.event())[1]
        await room.change(message.ref, status=Status.PAUSED)
        await room.clock.tick()
        assert "Resume" in (await stream.event())[1]


async def test_buttons_follow_the_numbers_that_they_name(room: Room) -> None:
    message = await room.message()
    async with room.watching(live(message)) as stream:
        await stream.event()
        await room.change(message.ref, books=Books(queued=2, held=1))
        await room.clock.tick()
        assert "Review 1 held delivery…" in (await stream.event())[1]
        await room.change(message.ref, books=Books(held=2, failed=1))
        await room.clock.tick()
        data = (await stream.event())[1]
        assert "Review 2 held deliveries…" in data
        assert "Retry 1 failed" in data


async def test_a_paused_message_has_no_rate_and_says_so_once(room: Room) -> None:
    message = await room.message()
    async with room.watching(live(message)) as stream:
        await stream.event()
        await room.change(message.ref, books=Books(queued=1, sent=2))
        await room.clock.tick()
        assert "mails/s" in (await stream.event())[1]
        await room.change(message.ref, status=Status.PAUSED)
        await room.clock.tick()
        data = (await stream.event())[1]
        assert "mails/s" not in data
        assert re.findall(r"(?i)\bpaused\b", data) == ["Paused"]


async def test_who_waits_to_retry_is_counted_with_the_time_of_the_next_try(room: Room) -> None:
    message = await room.message(batches=1, books=Books(queued=2, sent=1))
    retry_at = (NOW + timedelta(minutes=6, seconds=1)).timestamp()
    waits = {at: Deferral(1, retry_at + at, NOW.timestamp(), "450 later") for at in (0, 1)}
    ledger = Ledger(
        ref=message.ref, batch=0, states="qqs", first="key0", last="key2", deferred=waits
    )
    await batches.insert_ledgers(room.storage.tables, [ledger])
    async with room.watching(live(message)) as stream:
        data = (await stream.event())[1]
        assert "<h2>Waiting to retry</h2>" in data
        assert "2 emails are waiting to be retried, next at" in data
        assert "2026-11-15 09:06 UTC" in data
        assert "mails/s" not in data
    page = (await room.worker.get(f"/admin/messages/{message.ref}")).text  # without script
    assert "2 emails are waiting to be retried, next at" in page


async def test_a_stream_ends_when_the_message_is_completed(room: Room) -> None:
    message = await room.message()
    async with room.watching(live(message)) as stream:
        await stream.event()
        done = {"status": Status.COMPLETED, "completed_at": NOW, "books": Books(sent=3)}
        await room.change(message.ref, **done)
        await room.clock.tick()
        assert "<h2>Sent</h2>" in (await stream.event())[1]
        assert (await stream.event())[0] == "done"


async def test_a_stream_ends_when_the_message_is_deleted(room: Room) -> None:
    message = await room.message()
    async with room.watching(live(message)) as stream:
        await stream.event()
        found = await messages.find_live(room.storage.tables, message.ref)
        assert found
        await messages.delete_live(room.storage.tables, message.ref, found[1])
        await room.clock.tick()
        assert (await stream.event())[0] == "done"


async def test_all_who_watch_share_one_reader_which_rests_when_they_leave(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = await room.message()
    reads = 0
    find = messages.find

    async def counted(*arguments: Any) -> Message | None:
        nonlocal reads
        reads += 1
        return await find(*arguments)

    async with room.watching(live(message)) as one, room.watching(live(message)) as two:
        await one.event()
        await two.event()
        monkeypatch.setattr(messages, "find", counted)
        await room.clock.tick()
        assert reads == 1
        assert len(room.clock.sleepers) == 1
    assert room.clock.sleepers == []


async def test_a_stream_ends_within_ten_seconds_of_its_session(room: Room) -> None:
    message = await room.message()
    async with room.watching(live(message)) as stream:
        await stream.event()
        [session] = await users.sessions_of(room.storage.tables, room.worker.user, NOW)
        await users.end_session(room.storage.tables, session.id)
        await room.clock.tick(10)
        assert (await stream.event())[0] == "done"


async def test_one_browser_has_only_so_many_streams(room: Room) -> None:
    message = await room.message()
    path = live(message)
    async with (
        room.watching(path) as one,
        room.watching(path) as two,
        room.watching("/admin/live") as three,
        room.watching(path) as four,
    ):
        for stream in (one, two, three, four):
            await stream.chunk()
        async with room.watching(path) as fifth:
            assert await fifth.status == 429


async def test_streams_opened_at_the_same_moment_are_counted_too(room: Room) -> None:
    path = live(await room.message())
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(room.watching(path)) for _ in range(6)]
        statuses = [await stream.status for stream in streams]
    assert sorted(statuses) == [200] * 4 + [429] * 2
    async with room.watching(path) as again:  # all places were given back
        assert await again.status == 200


async def test_proxies_hear_from_a_stream_that_has_nothing_to_say(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_updates, "HEARTBEAT_S", 0.01)
    async with room.watching(live(await room.message())) as stream:
        await stream.event()
        assert await stream.chunk() == ": still here\n\n"


async def test_the_overview_is_live_too(room: Room) -> None:
    async with room.watching("/admin/live") as stream:
        assert (await stream.event())[0] == "overview"
        await room.message()
        await room.clock.tick()
        assert "News" in (await stream.event())[1]


async def test_open_streams_end_when_the_server_stops(room: Room) -> None:
    stopping = asyncio.Event()
    async with room.watching(live(await room.message()), stopping) as stream:
        await stream.event()
        stopping.set()
    assert stream.chunks.empty()  # and no “done”: the browser comes back


async def test_a_server_with_an_open_stream_stops_at_once(room: Room) -> None:
    message = await room.message()
    server = WebServer(room.app, grace_s=60)
    cookie = room.worker.browser.cookies["__Host-postroom"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.run(listener))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        lines = [f"GET {live(message)} HTTP/1.1", "Host: x", f"Cookie: __Host-postroom={cookie}"]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(PATIENCE_S):
            await reader.readuntil(b"event: books")
            server.stop()
            await serving
        writer.close()
        await writer.wait_closed()
