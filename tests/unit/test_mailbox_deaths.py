"""The reader may be killed at any write: each mail counts once, none is gone unrecorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from postroom.bounce_mailbox.directory import DirectoryMailbox
from postroom.bounce_mailbox.port import Filing
from postroom.bounce_mailbox.reader import POSTPONED_S, MailboxReader
from postroom.domain.delivery_token import delivery_tokens
from postroom.flow.feedback import FeedbackHandler, put_forgotten_items
from postroom.records import feedback
from postroom.storage.port import Storage
from tests import returned_mails as mails
from tests.clock import MovableClock
from tests.contract.test_mailboxes import contents, write_settled
from tests.unit.failing import Fuse, Killed, fused_storage
from tests.unit.test_feedback_deaths import PEOPLE, SECRET, queued_message

EXPECTED = {"bounced": 2, "complained": 1, "unsubscribed": 1, "delivered": 1}


class FusedMailbox(DirectoryMailbox):
    """Putting away is a write, too."""

    def __init__(self, folder: Path, fuse: Fuse) -> None:
        super().__init__(folder, deletes_recorded=True)
        self._fuse = fuse

    async def put_away(self, ids: Sequence[str], filing: Filing) -> set[str]:
        stay: set[str] = set()
        for id_ in ids:
            self._fuse.before_write()
            stay |= await super().put_away([id_], filing)
            self._fuse.after_write()
        return stay


def deliver(folder: Path, ref: str) -> None:
    tokens = delivery_tokens(SECRET.encode(), ref, 0, range(len(PEOPLE)))
    returned = [
        mails.report(tokens[0], PEOPLE[0]),
        mails.report(tokens[1], PEOPLE[1], status="4.2.2", words="452 4.2.2 Mailbox full"),
        mails.complaint(tokens[2], PEOPLE[2]),
        mails.unsubscription(tokens[3], PEOPLE[3]),
        mails.report(tokens[4], PEOPLE[4], action="delivered", status="2.0.0"),
        mails.report(tokens[0], PEOPLE[0]),  # a second copy
        mails.report(mails.forged(tokens[5]), PEOPLE[5]),
        mails.automatic_reply(tokens[5]),
    ]
    for number, content in enumerate(returned):
        write_settled(folder / f"{number}.eml", content)


def names_below(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.eml")}


async def recorded_kinds(storage: Storage, ref: str) -> set[str]:
    """Of events that are stored or counted."""
    kinds = set((await feedback.find_summary(storage.tables, ref)).kinds)
    for shard in feedback.SHARDS:
        rows, _more = await feedback.pending(storage.tables, shard, limit=100)
        kinds |= {feedback.event_of(row).kind.value for row in rows}
    return kinds


async def check_none_is_gone_unrecorded(storage: Storage, ref: str, folder: Path) -> None:
    kinds = await recorded_kinds(storage, ref)
    for number, kind in {2: "complained", 3: "unsubscribed", 4: "delivered"}.items():
        assert (folder / f"{number}.eml").exists() or kind in kinds
    assert {"6.eml", "7.eml"} <= names_below(folder)  # only recorded mails are deleted


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
async def test_killed_at_any_write_each_mail_counts_once(is_after: bool, tmp_path: Path) -> None:
    kills_at = 1
    was_killed = True
    while was_killed:
        folder = tmp_path / str(kills_at)
        folder.mkdir()
        clock = MovableClock()
        fuse = Fuse()
        storage = fused_storage(clock, fuse)
        ref = await queued_message(storage, clock)
        deliver(folder, ref)
        fuse.set(kills_at, is_after=is_after)
        was_killed = await dies(reader_of(storage, clock, folder, fuse, "first"))
        writes = fuse.writes
        fuse.set(-1)
        await check_none_is_gone_unrecorded(storage, ref, folder)
        clock.move(POSTPONED_S)  # its lease expires
        assert not await dies(reader_of(storage, clock, folder, fuse, "second"))
        await put_forgotten_items(storage)
        handler = FeedbackHandler(storage, clock, SECRET)
        while await handler.step():
            pass
        assert (await feedback.find_summary(storage.tables, ref)).kinds == EXPECTED
        assert contents(folder) == []
        assert len(contents(folder / "Postroom-unknown")) == 1
        assert len(contents(folder / "Postroom-processed")) == 1
        kills_at += 1
    assert writes >= 10  # or there was nothing to die at
    assert kills_at == writes + 2


def reader_of(
    storage: Storage, clock: MovableClock, folder: Path, fuse: Fuse, owner: str
) -> MailboxReader:
    return MailboxReader(storage, clock, owner, SECRET, FusedMailbox(folder, fuse))


async def dies(reader: MailboxReader) -> bool:
    try:
        while await reader.step():
            pass
    except Killed:
        return True
    return False
