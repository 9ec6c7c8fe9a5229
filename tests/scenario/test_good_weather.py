"""Good weather: everybody gets one mail, and the books say so."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import EmailMessage

from postroom.domain.delivery import State
from postroom.domain.message import Books, Status
from postroom.records import batches, messages
from postroom.records.archive import TABLE
from postroom.records.rows import all_rows
from postroom.storage.port import KeysAcross, KeysWithin
from tests.clock import PATIENCE_S
from tests.scenario.town import SITE, Town, once_each, students


def parsed(content: bytes) -> EmailMessage:
    mail = message_from_bytes(content, policy=policy.default)
    assert isinstance(mail, EmailMessage)
    assert not mail.defects
    return mail


async def test_everybody_gets_the_message_once(town: Town) -> None:
    names = students(250)
    ref = await town.mailing(*names)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(names)
    message = await town.read(ref)
    assert message.status is Status.COMPLETED
    assert message.books == Books(sent=250)
    assert message.audience == 250


async def test_the_archive_keeps_the_servers_words_and_the_living_keep_nothing(town: Town) -> None:
    ref = await town.mailing(*students(120))
    await town.open_sender()
    await town.quiet()
    assert await town.is_archived(ref)
    rows = [
        row
        for batch in range(2)
        async for row in all_rows(
            town.storage.tables, TABLE, KeysWithin(batches.partition(ref, batch))
        )
    ]
    assert len(rows) == 120
    assert all(row.properties["EmailSent"] is True for row in rows)
    assert {row.properties["Details"] for row in rows} == {"250 2.0.0 Ok: queued"}
    assert await town.items() == 0
    left_over = [row async for row in all_rows(town.storage.tables, "message", KeysAcross())]
    # Neither deliveries, the due entry nor the message; headers and ledgers guard what was written.
    listed = [row.key for row in left_over if row.partition == messages.DIRECTORY]
    kept = {row.key.rstrip("0123456789") for row in left_over if row.key not in listed}
    assert len(listed) == 1
    assert sorted(kept) == ["batch", "ledger"]


async def test_a_mail_reads_as_the_standards_want_it(town: Town) -> None:
    await town.found_list()
    await town.join("ada", attributes={"first_name": "Ada"})
    await town.join("bob")
    await town.compose()
    await town.open_sender()
    await town.quiet()
    [ada, bob] = [parsed(mail.content) for mail in town.sink.mails]
    guid = (await town.subscriber("ada")).guid
    assert ada["To"] == "ada@contoso.edu"
    assert ada["From"] == "History Department <donotreply@contoso.edu>"
    assert ada["Subject"] == "New lecture series"
    assert ada["List-Unsubscribe"] == f"<{SITE.url}/u/contoso1/{guid}>"
    assert ada["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert ada["List-Id"] == "History news <contoso1.post.contoso.edu>"
    assert ada["Date"].datetime == town.clock.now()
    assert len(ada.get_all("Message-ID", [])) == 1
    for part in ("plain", "html"):
        body = ada.get_body((part,))
        assert body is not None
        assert "Dear Ada" in body.get_content()
        assert f"{SITE.url}/u/contoso1/{guid}" in body.get_content()
    fallback = bob.get_body(("plain",))
    assert fallback is not None
    assert "Dear student" in fallback.get_content()


async def test_the_message_id_is_the_persons_own_and_the_same_at_every_try(town: Town) -> None:
    await town.mailing("ada", "drop-after-dot-once")
    await town.open_sender()
    await town.quiet()
    await town.pass_time(61)
    await town.quiet()
    ids = {(mail.recipient, mail.message_id) for mail in town.sink.mails}
    assert len(town.sink.mails) == 3
    assert len(ids) == 2
    assert len({message_id for _, message_id in ids}) == 2


async def test_a_list_of_nobody_is_completed_at_once(town: Town) -> None:
    ref = await town.mailing()
    assert (await town.read(ref)).status is Status.COMPLETED
    assert await town.is_archived(ref)


async def test_a_message_is_not_mailed_before_its_time(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    ref = await town.compose(due_in_s=60)
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    assert (await messages.read(town.storage.tables, ref)).status is Status.PENDING
    await town.pass_time(60)
    await town.quiet()
    assert await town.states(ref) == {"ada": State.SENT}


async def test_a_lane_that_gets_free_takes_the_next_item_at_once(town: Town, pairs: None) -> None:
    """Not at the next poll: a bell that rings before the lane counts as free would waste it."""
    await town.mailing(*students(8))
    role = await town.open_sender(lanes=1)
    for _ in range(4):
        assert await role.step()
        assert await role.wakeup.wait(PATIENCE_S)
    assert town.arrived() == once_each(students(8))
