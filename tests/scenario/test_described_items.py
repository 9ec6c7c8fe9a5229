"""Work items as the described system writes them, and its restart flag."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from structlog.typing import EventDict

from postroom.domain.dead_letter import EXPLANATIONS, Reason
from postroom.domain.message import Books
from postroom.domain.work_item import BatchItem, parse_mail_item
from postroom.flow.send import BUSY_DELAY_S, OWN_DELAY_S
from postroom.intervals import LOCAL
from postroom.records import dead_letters, leases
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.scheduler import Scheduler
from postroom.storage.port import CLAIM_ITEMS_MAX
from tests.scenario.test_confirmations import sign_up
from tests.scenario.test_forgotten_items import lose_all_items
from tests.scenario.town import LEASE_S, Town, address_of, once_each, students

OTHER_LIST = "contoso2"
INTERVALS = replace(LOCAL, lease_s=LEASE_S)


def described(ref: str, name: str) -> str:
    return f"2012-10-15,{ref},{address_of(name)},0"


async def the_dead_letter(town: Town) -> tuple[str, Reason]:
    [letter] = await dead_letters.oldest(town.storage.queues)
    return letter.queue, letter.reason


# A mail item without a batch number


async def test_an_item_without_a_batch_number_finds_the_recipients_batch(
    town: Town, pairs: None
) -> None:
    names = students(9)
    ref = await town.mailing(*names)
    await lose_all_items(town)
    for name in names[::2]:  # one of every batch
        await town.storage.queues.put(MAIL_QUEUE, described(ref, name))
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(names)
    assert (await town.read(ref)).books == Books(sent=9)


async def test_an_item_of_a_delivery_that_is_sent_sends_nothing(town: Town, pairs: None) -> None:
    names = students(4)
    ref = await town.mailing(*names, "temp-fail")  # which keeps the message from being archived
    await town.open_sender()
    await town.quiet()
    await town.storage.queues.put(MAIL_QUEUE, described(ref, names[0]))
    await town.quiet()
    assert town.arrived() == once_each(names)
    assert await town.items(DEAD_LETTER_QUEUE) == 0


async def test_an_item_of_an_archived_message_is_completed(town: Town) -> None:
    ref = await town.mailing("ada")
    await town.open_sender()
    await town.quiet()
    assert await town.is_archived(ref)
    await town.storage.queues.put(MAIL_QUEUE, described(ref, "ada"))
    await town.quiet()
    assert town.arrived() == once_each(["ada"])
    assert (await town.items(), await town.items(DEAD_LETTER_QUEUE)) == (0, 0)


@pytest.mark.parametrize("name", ["aaron", "student000x", "zoe"])  # before, between and after them
async def test_an_address_that_a_message_is_not_for_is_a_dead_letter_with_the_reason(
    town: Town, pairs: None, log_lines: list[EventDict], name: str
) -> None:
    ref = await town.mailing(*students(5))
    await town.storage.queues.put(MAIL_QUEUE, described(ref, name))
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(students(5))
    assert await the_dead_letter(town) == (MAIL_QUEUE, Reason.NO_DELIVERY)
    assert "not for this address" in str(EXPLANATIONS[Reason.NO_DELIVERY])
    [line] = [line for line in log_lines if line["event"] == "item_buried"]
    assert (line["kind"], line["ref"]) == ("recipient", ref)
    assert name not in str(line)


async def test_an_item_of_a_message_that_does_not_exist_is_a_dead_letter(town: Town) -> None:
    await town.storage.queues.put(MAIL_QUEUE, described("634852858215726983", "student1"))
    await town.open_sender()
    await town.quiet()
    assert await the_dead_letter(town) == (MAIL_QUEUE, Reason.NO_DELIVERY)


async def test_an_item_that_comes_before_its_batch_waits_for_it(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    ref = await town.compose(due_in_s=2 * BUSY_DELAY_S)
    await town.storage.queues.put(MAIL_QUEUE, described(ref, "ada"))
    await town.open_sender()
    await town.live_through(4 * BUSY_DELAY_S, every_s=BUSY_DELAY_S)
    await town.live_through(6 * OWN_DELAY_S, every_s=OWN_DELAY_S)  # until the second claim lapses
    assert town.arrived() == once_each(["ada"])
    assert (await town.items(), await town.items(DEAD_LETTER_QUEUE)) == (0, 0)


# A subscribe item that is a GUID alone


@pytest.mark.parametrize("spelling", [str, lambda guid: str(UUID(guid)).upper()])
async def test_a_guid_alone_finds_its_subscriber(town: Town, spelling: type[str]) -> None:
    await town.found_list(OTHER_LIST)
    await town.found_list()
    await sign_up(town, "ada", "zoe")
    claims = await town.storage.queues.claim(SINGLE_MAIL_QUEUE, limit=CLAIM_ITEMS_MAX, lease_s=1.0)
    for claim in claims:
        await town.storage.queues.complete(claim)
    guid = (await town.subscriber("ada")).guid
    await town.storage.queues.put(SINGLE_MAIL_QUEUE, spelling(guid))
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["ada"])
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_a_guid_that_no_list_knows_is_a_dead_letter_with_the_reason(town: Town) -> None:
    await town.found_list()
    await town.storage.queues.put(SINGLE_MAIL_QUEUE, "6f32b03b-90ed-41a9-b8ac-c1310c67b66a")
    await town.open_sender()
    await town.quiet()
    assert await the_dead_letter(town) == (SINGLE_MAIL_QUEUE, Reason.NO_SUBSCRIBER)


async def test_a_guid_of_somebody_who_has_confirmed_is_completed(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    guid = (await town.subscriber("ada")).guid
    await town.storage.queues.put(SINGLE_MAIL_QUEUE, guid)
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    assert (await town.items(SINGLE_MAIL_QUEUE), await town.items(DEAD_LETTER_QUEUE)) == (0, 0)


# The restart flag


async def flags(town: Town) -> dict[int, bool]:
    """The restart flag of every batch's item."""
    bodies = [item.body for item in await town.storage.queues.peek(MAIL_QUEUE, limit=32)]
    items = [parse_mail_item(body) for body in bodies]
    return {item.batch: item.restart for item in items if isinstance(item, BatchItem)}


async def begun(town: Town, ref: str) -> int:
    """Let the first scheduler write some of the batches; how many."""
    while not (await town.read(ref)).batches:
        assert await town.scheduler.step()
    return (await town.read(ref)).batches


async def test_only_items_made_after_a_restart_have_the_flag(town: Town, pairs: None) -> None:
    await town.found_list()
    await town.join(*students(9))
    ref = await town.compose()
    before = await begun(town, ref)
    assert 0 < before < 5
    town.clock.move(3 * LEASE_S)
    town.scheduler = Scheduler(town.storage, town.clock, "scheduler.2", intervals=INTERVALS)
    await town.fan_out()
    assert await flags(town) == {batch: batch >= before for batch in range(5)}


async def test_a_scheduler_that_leads_again_after_another_sets_the_flag(
    town: Town, pairs: None
) -> None:
    await town.found_list()
    await town.join(*students(9))
    ref = await town.compose()
    before = await begun(town, ref)
    await town.scheduler.stop()
    assert await leases.hold(
        town.storage.tables, leases.SCHEDULER, "scheduler.2", now=town.clock.now(), lease_s=LEASE_S
    )
    town.clock.move(3 * LEASE_S)
    await town.fan_out()
    assert await flags(town) == {batch: batch >= before for batch in range(5)}


async def test_without_a_restart_no_item_has_the_flag(town: Town, pairs: None) -> None:
    await town.mailing(*students(9))
    assert await flags(town) == dict.fromkeys(range(5), False)


async def test_the_senders_log_says_when_it_meets_the_flag(
    town: Town, pairs: None, log_lines: list[EventDict]
) -> None:
    await town.found_list()
    await town.join(*students(9))
    ref = await town.compose()
    before = await begun(town, ref)
    town.clock.move(3 * LEASE_S)
    town.scheduler = Scheduler(town.storage, town.clock, "scheduler.2", intervals=INTERVALS)
    await town.fan_out()
    await town.open_sender()
    await town.quiet()
    met = [line for line in log_lines if line["event"] == "item_after_restart"]
    assert {line["batch"] for line in met} == set(range(before, 5))
    assert {line["ref"] for line in met} == {ref}
    assert town.arrived() == once_each(students(9))
