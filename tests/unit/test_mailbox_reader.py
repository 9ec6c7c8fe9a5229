"""The reader of the bounce mailbox: one at a time, no mail blocks the others, trouble is seen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest

from postroom.bounce_mailbox import reader as reader_module
from postroom.bounce_mailbox.imap import ImapMailbox
from postroom.bounce_mailbox.imap_config import ImapConfig
from postroom.bounce_mailbox.interpretation import interpret
from postroom.bounce_mailbox.port import Filing, MailboxUnavailable, ReturnedMail
from postroom.bounce_mailbox.reader import (
    COUNTS_EVERY_S,
    FAULT_REST_S_MAX,
    MAILS_TOGETHER,
    POSTPONED_S,
    MailboxReader,
)
from postroom.domain.delivery_token import delivery_tokens
from postroom.domain.feedback import FeedbackEvent
from postroom.domain.tls import Tls
from postroom.records import feedback, webhooks
from postroom.records.names import STORAGE_NAMES
from postroom.records.webhooks import WebhookCounts
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage, Unavailable
from tests import returned_mails as mails
from tests.clock import START, MovableClock
from tests.imap_server import PASSWORD, USER, ImapServer

SECRET = "secret"
REF = "000637000000000000"
TOKENS = delivery_tokens(SECRET.encode(), REF, 0, range(99))


@dataclass
class ListedMailbox:
    """Mails in memory, and what goes wrong with which."""

    mails: dict[str, bytes] = field(default_factory=dict)
    put: dict[str, Filing] = field(default_factory=dict)
    is_away: bool = False
    breaks_at: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    unmovable: set[str] = field(default_factory=set)
    lists: int = 0
    description = "a list of mails"

    async def waiting(self, *, limit: int, besides: Collection[str] = ()) -> list[str]:
        self.lists += 1
        if self.is_away:
            raise MailboxUnavailable("The mailbox is away")
        return [id_ for id_ in self.mails if id_ not in besides][:limit]

    async def fetch(self, id_: str) -> ReturnedMail | None:
        if id_ in self.breaks_at:
            raise MailboxUnavailable("The connection broke")
        return None if id_ in self.unreadable else ReturnedMail(self.mails[id_], START)

    async def put_away(self, ids: Sequence[str], filing: Filing) -> set[str]:
        for id_ in set(ids) - self.unmovable:
            del self.mails[id_]
            self.put[id_] = filing
        return set(ids) & self.unmovable

    async def count(self) -> int:
        return len(self.mails)

    async def close(self) -> None:
        pass


def new_storage(clock: MovableClock) -> MemoryStorage:
    return MemoryStorage(clock, STORAGE_NAMES)


def bounces(count: int) -> dict[str, bytes]:
    return {str(at): mails.report(TOKENS[at]) for at in range(count)}


async def stored_events(storage: Storage) -> list[FeedbackEvent]:
    found: list[FeedbackEvent] = []
    for shard in feedback.SHARDS:
        rows, _more = await feedback.pending(storage.tables, shard, limit=500)
        found += map(feedback.event_of, rows)
    return found


async def read_all(reader: MailboxReader) -> None:
    for _step in range(1000):
        if not await reader.step():
            return
    raise AssertionError("it never ends")


async def counts_in(storage: Storage) -> WebhookCounts:
    return await webhooks.find_counts(storage.tables, "mailbox")


async def test_every_mail_is_stored_and_put_away_and_those_who_act_are_woken() -> None:
    clock = MovableClock()
    storage = new_storage(clock)
    mailbox = ListedMailbox(bounces(99))
    woken: list[bool] = []
    reader = MailboxReader(storage, clock, "us", SECRET, mailbox, wake=lambda: woken.append(True))
    await read_all(reader)
    assert {event.delivery for event in await stored_events(storage)} == set(TOKENS.values())
    assert set(mailbox.put.values()) == {Filing.RECORDED}
    assert len(woken) == -(-99 // MAILS_TOGETHER)
    assert await counts_in(storage) == WebhookCounts(events=99, last_at=START)


async def test_forged_bounces_change_nothing_and_are_kept_and_counted() -> None:
    clock = MovableClock()
    storage = new_storage(clock)
    forged = {name: mails.report(mails.forged(TOKENS[int(name)])) for name in bounces(99)}
    mailbox = ListedMailbox(forged | {"none": mails.report("")})
    await read_all(MailboxReader(storage, clock, "us", SECRET, mailbox))
    assert await stored_events(storage) == []
    assert set(mailbox.put.values()) == {Filing.UNKNOWN}
    assert (await counts_in(storage)).unknown == 100


async def test_one_reader_at_a_time_reads() -> None:
    clock = MovableClock()
    storage = new_storage(clock)
    first, second = ListedMailbox(), ListedMailbox()
    us = MailboxReader(storage, clock, "us", SECRET, first)
    them = MailboxReader(storage, clock, "them", SECRET, second)
    for _poll in range(10):
        await us.step()
        await them.step()
        clock.move(us.poll_s)
    assert (first.lists, second.lists) == (10, 0)
    await us.close()
    await them.step()
    assert second.lists == 1


async def test_the_lease_of_a_dead_process_is_taken_at_once() -> None:
    clock = MovableClock()
    storage = new_storage(clock)
    await MailboxReader(storage, clock, "dead", SECRET, ListedMailbox()).step()
    mailbox = ListedMailbox()
    us = MailboxReader(storage, clock, "us", SECRET, mailbox, is_dead=lambda owner: owner == "dead")
    await us.step()
    assert mailbox.lists == 1


@pytest.mark.parametrize("fault", ["breaks_at", "unreadable", "unmovable"])
async def test_a_mail_that_makes_trouble_does_not_hold_up_the_others(fault: str) -> None:
    clock = MovableClock()
    storage = new_storage(clock)
    mailbox = ListedMailbox(bounces(99))
    setattr(mailbox, fault, {"0", "51"})
    reader = MailboxReader(storage, clock, "us", SECRET, mailbox)
    for _poll in range(4):
        await read_all(reader)
        clock.move(await reader.rest_s())
    assert set(mailbox.mails) == {"0", "51"}
    setattr(mailbox, fault, set())
    clock.move(POSTPONED_S)
    await read_all(reader)
    assert mailbox.mails == {}
    assert len(await stored_events(storage)) == 99


async def test_a_mail_that_no_parser_survives_is_kept_for_people(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = MovableClock()
    storage = new_storage(clock)

    def crash(mail: ReturnedMail, *rest: object) -> object:
        if mail.content == b"poison":
            raise RecursionError
        return interpret(mail, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(reader_module, "interpret", crash)
    mailbox = ListedMailbox({"poison": b"poison"} | bounces(3))
    await read_all(MailboxReader(storage, clock, "us", SECRET, mailbox))
    assert mailbox.put.pop("poison") is Filing.UNKNOWN
    assert set(mailbox.put.values()) == {Filing.RECORDED}


async def test_an_event_that_storage_refuses_is_kept_for_people(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = MovableClock()
    storage = new_storage(clock)
    take_in = feedback.take_in

    async def refuse_one(storage: Storage, events: Sequence[FeedbackEvent]) -> None:
        if any(event.delivery == TOKENS[1] for event in events):
            raise ValueError("a property is too long")
        await take_in(storage, events)

    monkeypatch.setattr(feedback, "take_in", refuse_one)
    mailbox = ListedMailbox(bounces(3))
    await read_all(MailboxReader(storage, clock, "us", SECRET, mailbox))
    assert mailbox.put == {"0": Filing.RECORDED, "1": Filing.UNKNOWN, "2": Filing.RECORDED}
    assert len(await stored_events(storage)) == 2


async def test_while_storage_is_away_every_mail_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MovableClock()
    storage = new_storage(clock)

    async def fail(storage: Storage, events: Sequence[FeedbackEvent]) -> None:
        raise Unavailable("no answer")

    monkeypatch.setattr(feedback, "take_in", fail)
    mailbox = ListedMailbox(bounces(3))
    with pytest.raises(Unavailable):
        await MailboxReader(storage, clock, "us", SECRET, mailbox).step()
    assert len(mailbox.mails) == 3


async def test_trouble_is_counted_and_tried_again_less_and_less_often() -> None:
    clock = MovableClock()
    storage = new_storage(clock)
    mailbox = ListedMailbox(is_away=True)
    reader = MailboxReader(storage, clock, "us", SECRET, mailbox, is_sending=lambda: True)
    rests = []
    for _poll in range(6):
        assert not await reader.step()
        rests.append(await reader.rest_s())
    assert rests == [60.0, 120.0, 240.0, 480.0, FAULT_REST_S_MAX, FAULT_REST_S_MAX]
    counts = await counts_in(storage)
    assert (counts.refused, counts.refused_at) == (6, START)
    assert counts.refusal == "The mailbox is away"
    assert counts.last_at is None
    mailbox.is_away = False
    clock.move(FAULT_REST_S_MAX)
    await reader.step()
    assert await reader.rest_s() == 10.0
    assert (await counts_in(storage)).last_at == clock.now()


async def test_an_idle_mailbox_is_noted_now_and_then() -> None:
    clock = MovableClock()
    storage = new_storage(clock)
    reader = MailboxReader(storage, clock, "us", SECRET, ListedMailbox())
    seen = set()
    for _poll in range(10):
        await reader.step()
        seen.add((await counts_in(storage)).last_at)
        clock.move(COUNTS_EVERY_S / 5)
    assert len(seen) == 2


async def test_a_reader_that_is_stopping_reads_no_further_mail() -> None:
    clock = MovableClock()
    mailbox = ListedMailbox(bounces(3))
    reader = MailboxReader(new_storage(clock), clock, "us", SECRET, mailbox)
    reader.stop()
    assert not await reader.step()
    assert mailbox.lists == 0


async def test_over_imap_the_mail_at_which_the_connection_breaks_waits() -> None:
    clock = MovableClock()
    storage = new_storage(clock)
    async with ImapServer() as server:
        uids = [server.inbox.add(content) for content in bounces(20).values()]
        server.broken_uids = {uids[0], uids[7]}
        config = ImapConfig("127.0.0.1", server.port, USER, PASSWORD, tls=Tls.NONE)
        reader = MailboxReader(storage, clock, "us", SECRET, ImapMailbox(config))
        for _poll in range(4):
            await read_all(reader)
            clock.move(await reader.rest_s())
        assert [mail.uid for mail in server.inbox.mails] == [uids[0], uids[7]]
        assert len(server.folders["INBOX/Postroom-processed"].mails) == 18
        await reader.close()
    assert len(await stored_events(storage)) == 18
