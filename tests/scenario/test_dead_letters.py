"""Dead letters: what cannot be sent is put aside where people see it, and nobody is lost."""

from __future__ import annotations

import msgspec
import pytest
from structlog.typing import EventDict

from postroom.actions import control_message
from postroom.domain.address import parse_address
from postroom.domain.audit import ActorKind, AuditAction, AuditActor, AuditKind, new_entry
from postroom.domain.dead_letter import EXPLANATIONS, Reason, dead_letter, grouped
from postroom.domain.delivery import State
from postroom.domain.message import Books, Status
from postroom.flow import subscribe
from postroom.flow.send import BUSY_DELAY_S, ItemResult
from postroom.records import audit, batches, dead_letters
from postroom.records.audit import AuditFilter
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.storage.port import ITEM_BYTES_MAX
from tests.acting import acting
from tests.scenario.town import CLAIM_S, LIST, Town, once_each, students


async def die_over_it(town: Town, life: int) -> None:
    clerk = await town.clerk(f"clerk.{life}")
    await clerk.take_until(town.sink.is_waiting.wait())
    await clerk.die()
    town.sink.is_waiting.clear()
    town.clock.move(CLAIM_S)


async def reasons(town: Town) -> list[Reason]:
    return [letter.reason for letter in await dead_letters.oldest(town.storage.queues)]


async def test_a_batch_that_killed_five_senders_is_held_for_people(town: Town) -> None:
    ref = await town.mailing("slow", "zoe")
    for life in range(5):
        await die_over_it(town, life)
    clerk = await town.clerk("clerk.6")
    assert await clerk.take() is ItemResult.DEAD
    await town.quiet()
    message = await town.read(ref)
    assert message.books == Books(held=2, doubts=5)
    assert message.status is Status.COMPLETED
    assert not await town.is_archived(ref)
    [letter] = await dead_letters.oldest(town.storage.queues)
    assert (letter.reason, letter.ref) == (Reason.SENDERS_STOPPED, ref)
    assert await town.items() == 0


async def test_the_held_of_a_dead_letter_can_be_sent_again(town: Town) -> None:
    ref = await town.mailing("slow", "zoe")
    for life in range(5):
        await die_over_it(town, life)
    await town.open_sender()
    await town.quiet()
    town.sink.options = town.answering_at_once()
    await control_message.decide_held(
        town.storage.tables, ref, send_again=True, now=town.clock.now()
    )
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=2, doubts=5)
    assert await town.is_archived(ref)


@pytest.mark.parametrize(
    "body", ["", "nonsense", "2026-11-15,ref,a,0,1", "d,1,a,2,0", "d,1,a,0,-1"]
)
async def test_a_malformed_item_is_put_aside_and_the_others_continue(town: Town, body: str) -> None:
    await town.mailing("ada")
    await town.storage.queues.put(MAIL_QUEUE, body)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["ada"])
    [letter] = await dead_letters.oldest(town.storage.queues)
    assert (letter.queue, letter.body, letter.reason) == (MAIL_QUEUE, body, Reason.MALFORMED)
    assert letter.at == town.clock.now()
    assert await town.items() == 0


async def test_a_malformed_sign_up_is_put_aside(town: Town) -> None:
    await town.found_list()
    await town.storage.queues.put(SINGLE_MAIL_QUEUE, "nonsense")
    await town.open_sender()
    await town.quiet()
    [letter] = await dead_letters.oldest(town.storage.queues)
    assert (letter.queue, letter.reason) == (SINGLE_MAIL_QUEUE, Reason.MALFORMED)
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_a_message_whose_body_is_missing_is_held_until_it_is_back(town: Town) -> None:
    ref = await town.mailing("ada", "zoe")
    await town.storage.blobs.delete(f"{ref}.htm")
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    assert (await town.read(ref)).books == Books(held=2)
    assert await reasons(town) == [Reason.NO_CONTENT]
    await town.storage.blobs.put(f"{ref}.htm", b"<p>Dear student</p>")
    await control_message.decide_held(
        town.storage.tables, ref, send_again=True, now=town.clock.now()
    )
    await town.quiet()
    assert town.arrived() == once_each(["ada", "zoe"])
    assert await town.is_archived(ref)


async def lose_a_row(town: Town) -> str:
    """Somebody deleted the delivery row of Ada by hand."""
    ref = await town.mailing("ada", "zoe")
    key = "to:" + parse_address("ada@contoso.edu").storage_key
    await town.storage.tables.delete("message", batches.partition(ref, 0), key)
    await town.open_sender()
    await town.quiet()
    return ref


async def test_a_batch_with_a_lost_row_is_held_whole(town: Town) -> None:
    ref = await lose_a_row(town)
    assert not town.sink.mails
    assert (await town.read(ref)).books == Books(held=2)
    assert await reasons(town) == [Reason.ROWS_MISSING]


async def test_a_lost_row_does_not_stop_the_scheduler_when_people_decide(town: Town) -> None:
    ref = await lose_a_row(town)
    await control_message.decide_held(
        town.storage.tables, ref, send_again=False, now=town.clock.now()
    )
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=2)
    assert await town.is_archived(ref)


async def test_an_item_of_an_unknown_message_is_dropped(town: Town) -> None:
    await town.storage.queues.put(MAIL_QUEUE, "2026-11-15,123,ada,0,0")
    await town.open_sender()
    await town.quiet()
    assert await town.items() == 0
    assert await town.items(DEAD_LETTER_QUEUE) == 0


async def test_an_item_without_a_ledger_is_looked_for_again_and_then_put_aside(town: Town) -> None:
    ref = await town.mailing(*students(1), "temp-fail")
    await town.storage.queues.put(MAIL_QUEUE, f"2026-11-15,{ref},ada,0,7")
    await town.open_sender()
    await town.quiet()
    assert await town.items(DEAD_LETTER_QUEUE) == 0
    await town.live_through(6 * BUSY_DELAY_S, every_s=BUSY_DELAY_S)
    assert await reasons(town) == [Reason.NO_BATCH]
    assert (await town.states(ref))["student000"] is State.SENT


async def test_a_list_description_with_braces_in_it_spoils_no_confirmation(town: Town) -> None:
    await town.found_list(description="Maths {{ 1 + 1 }} and {{ email }}")
    address = parse_address("ada@contoso.edu")
    await subscribe.sign_up(acting(town.storage, town.clock.now()), LIST, address, {})
    await town.open_sender()
    await town.quiet()
    [mail] = town.sink.mails
    assert (
        b"Subject: Confirm your subscription to Maths {{ 1 + 1 }} and {{ email }}\r\n"
        in mail.content
    )


async def test_every_burial_is_logged_with_its_reason_and_without_an_address(
    town: Town, log_lines: list[EventDict]
) -> None:
    await town.storage.queues.put(MAIL_QUEUE, "2012-10-15,634852858215726983,ada@contoso.edu,0")
    await town.open_sender()
    await town.quiet()
    [line] = [line for line in log_lines if line["event"] == "item_buried"]
    assert line["reason"] == "no_delivery"
    assert "ada" not in str(line)


async def test_an_item_too_long_for_a_letter_is_put_aside_as_well(town: Town) -> None:
    await town.storage.queues.put(MAIL_QUEUE, "\x01" * ITEM_BYTES_MAX)
    await town.open_sender()
    await town.quiet()
    [letter] = await dead_letters.oldest(town.storage.queues)
    assert letter.is_clipped
    assert not letter.can_be_put_back
    assert await town.items() == 0


async def test_only_held_recipients_are_reported_as_on_hold(town: Town) -> None:
    await town.storage.queues.put(MAIL_QUEUE, "nonsense")
    await town.mailing("ada")
    await town.storage.queues.put(DEAD_LETTER_QUEUE, "somebody else's")
    await town.open_sender()
    await town.quiet()
    groups = grouped(await dead_letters.oldest(town.storage.queues))
    assert [group.reason for group in groups] == [Reason.MALFORMED, Reason.UNKNOWN]
    assert not any("on hold" in str(group.explanation) for group in groups)
    held = {reason for reason, text in EXPLANATIONS.items() if "on hold" in str(text)}
    assert held == {Reason.SENDERS_STOPPED, Reason.ROWS_MISSING, Reason.NO_CONTENT}


async def test_letters_are_cleared_away(town: Town) -> None:
    for number in range(40):
        await town.storage.queues.put(MAIL_QUEUE, f"nonsense{number}")
    await town.open_sender()
    await town.quiet()
    assert await dead_letters.clear(town.storage.queues) == 40
    assert await town.items(DEAD_LETTER_QUEUE) == 0


async def test_an_item_put_back_is_decided_by_its_ledger(town: Town) -> None:
    """Its people are held: nobody is mailed, and the letter is gone."""
    ref = await town.mailing("ada", "zoe")
    await town.storage.blobs.delete(f"{ref}.htm")
    await town.storage.queues.put(MAIL_QUEUE, "nonsense")
    await town.open_sender()
    await town.quiet()
    assert await dead_letters.put_back(town.storage.queues) == (1, 1)
    await town.quiet()
    assert (await town.read(ref)).books == Books(held=2)
    assert await reasons(town) == [Reason.MALFORMED]  # nobody would understand it
    assert not town.sink.mails


async def test_the_scheduler_deletes_old_ones_and_old_entries_of_the_audit_log(town: Town) -> None:
    tables = town.storage.tables
    letter = dead_letter(MAIL_QUEUE, "an item", Reason.NO_BATCH, town.clock.now())
    await town.storage.queues.put(DEAD_LETTER_QUEUE, msgspec.json.encode(letter).decode())
    who = AuditActor(ActorKind.COMMAND_LINE, "ops@host")
    entry = new_entry(who, AuditKind.LIST, LIST, AuditAction.CREATE, town.clock.now())
    await audit.begin(tables, entry)
    town.scheduler.dead_letter_days = 2
    town.scheduler.audit_days = 3
    for days, dead, recorded in ((1, 1, 1), (1.5, 0, 1), (1, 0, 0)):
        town.clock.move(days * 86_400)
        await town.scheduler.step()
        assert len(await dead_letters.oldest(town.storage.queues)) == dead
        found = await audit.page(tables, town.clock, AuditFilter(), limit=10)
        assert len(found.entries) == recorded
