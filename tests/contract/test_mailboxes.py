"""Every kind of bounce mailbox: list a few mails, fetch one, put some away, lose none."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.bounce_mailbox.directory import DirectoryMailbox
from postroom.bounce_mailbox.imap import ImapMailbox
from postroom.bounce_mailbox.imap_config import ImapConfig
from postroom.bounce_mailbox.maildir import MaildirMailbox
from postroom.bounce_mailbox.port import FETCHED_BYTES_MAX, BounceMailbox, Filing
from postroom.domain.tls import Tls
from tests.imap_server import PASSWORD, RECEIVED_AT, USER, ImapServer

ONE, TWO, THREE = (f"Subject: mail {number}\r\n\r\nHello\r\n".encode() for number in (1, 2, 3))


@dataclass
class Place:
    """A mailbox, and a way to put mails in and to look past its back."""

    mailbox: BounceMailbox
    deliver: Callable[[bytes], None]
    waiting: Callable[[], list[bytes]]
    processed: Callable[[], list[bytes]]
    unknown: Callable[[], list[bytes]]


def contents(folder: Path) -> list[bytes]:
    if not folder.is_dir():
        return []
    return sorted(path.read_bytes() for path in folder.iterdir() if path.is_file())


def settle(path: Path) -> None:
    os.utime(path, (RECEIVED_AT.timestamp(), RECEIVED_AT.timestamp()))


def write_settled(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    settle(path)


@asynccontextmanager
async def directory(folder: Path, *, deletes: bool = False) -> AsyncIterator[Place]:
    numbers = iter(range(1000))
    yield Place(
        DirectoryMailbox(folder, deletes_recorded=deletes),
        lambda content: write_settled(folder / f"{next(numbers)}.eml", content),
        lambda: contents(folder),
        lambda: contents(folder / "Postroom-processed"),
        lambda: contents(folder / "Postroom-unknown"),
    )


@asynccontextmanager
async def maildir(folder: Path, *, deletes: bool = False) -> AsyncIterator[Place]:
    for name in ("new", "cur", "tmp"):
        (folder / name).mkdir()
    numbers = iter(range(1000))

    def deliver(content: bytes) -> None:
        number = next(numbers)
        where = folder / "new" / f"{number}.host" if number % 2 else folder / f"cur/{number}.h:2,S"
        write_settled(where, content)

    def kept(name: str) -> list[bytes]:
        return contents(folder / name / "new") + contents(folder / name / "cur")

    yield Place(
        MaildirMailbox(folder, deletes_recorded=deletes),
        deliver,
        lambda: sorted(kept("")),
        lambda: kept(".Postroom-processed"),
        lambda: kept(".Postroom-unknown"),
    )


def config_of(server: ImapServer) -> ImapConfig:
    return ImapConfig("127.0.0.1", server.port, USER, PASSWORD, tls=Tls.NONE)


@asynccontextmanager
async def imap(server: ImapServer, *, deletes: bool = False) -> AsyncIterator[Place]:
    def kept(name: str) -> list[bytes]:
        found = [folder for path, folder in server.folders.items() if path.endswith(name)]
        return sorted(content for folder in found for content in folder.contents)

    def deliver(content: bytes) -> None:
        server.inbox.add(content)

    async with server:
        mailbox = ImapMailbox(config_of(server), deletes_recorded=deletes)
        yield Place(
            mailbox,
            deliver,
            lambda: sorted(server.inbox.contents),
            lambda: kept("Postroom-processed"),
            lambda: kept("Postroom-unknown"),
        )
        await mailbox.close()


SERVERS: dict[str, Callable[[], ImapServer]] = {
    "imap": ImapServer,
    "imap without MOVE": lambda: ImapServer(("UIDPLUS",), delimiter="."),
    "imap with nothing": lambda: ImapServer((), may_create_below=False, delimiter=""),
}
KINDS = ["directory", "maildir", *SERVERS]


@asynccontextmanager
async def opened(kind: str, folder: Path, *, deletes: bool = False) -> AsyncIterator[Place]:
    if kind in SERVERS:
        place = imap(SERVERS[kind](), deletes=deletes)
    else:
        place = {"directory": directory, "maildir": maildir}[kind](folder, deletes=deletes)
    async with place as found:
        yield found


@pytest_asyncio.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with opened(request.param, tmp_path) as found:
        yield found


async def listed(place: Place, limit: int = 50) -> dict[bytes, str]:
    """The waiting mails by their content."""
    found = {}
    for id_ in await place.mailbox.waiting(limit=limit):
        mail = await place.mailbox.fetch(id_)
        assert mail
        found[mail.content] = id_
    return found


async def test_an_empty_mailbox_has_nothing(place: Place) -> None:
    assert await place.mailbox.waiting(limit=10) == []
    assert await place.mailbox.count() == 0


async def test_mails_are_listed_and_fetched_and_stay(place: Place) -> None:
    place.deliver(ONE)
    place.deliver(TWO)
    assert set(await listed(place)) == {ONE, TWO}
    assert place.waiting() == [ONE, TWO]
    assert await place.mailbox.count() == 2


async def test_a_mail_knows_when_it_was_received(place: Place) -> None:
    place.deliver(ONE)
    (id_,) = await place.mailbox.waiting(limit=1)
    mail = await place.mailbox.fetch(id_)
    assert mail
    assert mail.received_at == RECEIVED_AT
    assert mail.received_at.tzinfo is UTC


async def test_only_a_few_are_listed_and_none_of_those_left_out(place: Place) -> None:
    for content in (ONE, TWO, THREE):
        place.deliver(content)
    first = await place.mailbox.waiting(limit=2)
    assert len(first) == 2
    await place.mailbox.close()
    rest = await place.mailbox.waiting(limit=10, besides=first)
    assert len(rest) == 1
    assert set(rest).isdisjoint(first)


async def test_recorded_mails_are_put_away_and_not_listed_again(place: Place) -> None:
    place.deliver(ONE)
    place.deliver(TWO)
    ids = await listed(place)
    assert await place.mailbox.put_away([ids[ONE]], Filing.RECORDED) == set()
    assert set(await listed(place)) == {TWO}
    assert place.processed() == [ONE]


async def test_ignored_mails_are_kept_with_the_recorded_ones(place: Place) -> None:
    place.deliver(ONE)
    assert (
        await place.mailbox.put_away(list((await listed(place)).values()), Filing.IGNORED) == set()
    )
    assert place.processed() == [ONE]


async def test_unknown_mails_are_kept_apart(place: Place) -> None:
    place.deliver(ONE)
    await place.mailbox.put_away(list((await listed(place)).values()), Filing.UNKNOWN)
    assert place.unknown() == [ONE]
    assert await place.mailbox.waiting(limit=10) == []


async def test_putting_away_twice_does_no_harm(place: Place) -> None:
    place.deliver(ONE)
    ids = list((await listed(place)).values())
    await place.mailbox.put_away(ids, Filing.RECORDED)
    await place.mailbox.put_away(ids, Filing.RECORDED)
    assert place.processed() == [ONE]
    assert await place.mailbox.fetch(ids[0]) is None


async def test_a_huge_mail_is_not_fetched_whole(place: Place) -> None:
    huge = ONE + b"x" * (FETCHED_BYTES_MAX + 1000)
    place.deliver(huge)
    assert list(await listed(place)) == [huge[:FETCHED_BYTES_MAX]]


@pytest.mark.parametrize("kind", KINDS)
async def test_recorded_mails_alone_are_deleted_on_request(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, deletes=True) as place:
        for content in (ONE, TWO, THREE):
            place.deliver(content)
        ids = await listed(place)
        await place.mailbox.put_away([ids[ONE]], Filing.RECORDED)
        await place.mailbox.put_away([ids[TWO]], Filing.IGNORED)
        await place.mailbox.put_away([ids[THREE]], Filing.UNKNOWN)
        assert place.waiting() == []
        assert place.processed() == [TWO]
        assert place.unknown() == [THREE]


# --- Folders ------------------------------------------------------------------------------------


async def test_a_mail_never_replaces_another_of_the_same_name(tmp_path: Path) -> None:
    mailbox = DirectoryMailbox(tmp_path)
    for content in (ONE, TWO):
        write_settled(tmp_path / "bounce.eml", content)
        await mailbox.put_away(["bounce.eml"], Filing.UNKNOWN)
    assert contents(tmp_path / "Postroom-unknown") == [ONE, TWO]


async def test_a_file_that_may_still_be_written_waits(tmp_path: Path) -> None:
    (tmp_path / "new.eml").write_bytes(ONE)
    future = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
    os.utime(tmp_path / "new.eml", (future, future))
    write_settled(tmp_path / ".hidden.eml", TWO)
    assert await DirectoryMailbox(tmp_path).waiting(limit=10) == []


async def test_links_and_pipes_are_no_mails(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(ONE)
    folder = tmp_path / "mails"
    folder.mkdir()
    (folder / "link.eml").symlink_to(outside)
    os.mkfifo(folder / "pipe.eml")
    mailbox = DirectoryMailbox(folder)
    assert await mailbox.waiting(limit=10) == []
    assert await mailbox.fetch("link.eml") is None
