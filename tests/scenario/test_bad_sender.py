"""A list whose From no mail can carry: its rows are of a time when nobody refused it."""

from __future__ import annotations

from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.flow import subscribe
from postroom.records import lists
from postroom.records.names import DEAD_LETTER_QUEUE
from tests.acting import acting
from tests.scenario.test_unreadable_rows import to_another
from tests.scenario.town import LIST, Town, address_of, once_each


async def test_a_sign_up_that_cannot_be_confirmed_is_kept_for_people_and_ends_no_sender(
    town: Town,
) -> None:
    now = town.clock.now()
    made = MailingList(
        name=LIST, description="", sender="Jürgen <jürgen@contoso.edu>", created_at=now
    )
    await lists.create(town.storage.tables, made)
    address = parse_address(address_of("ada"))
    await subscribe.sign_up(acting(town.storage, now), LIST, address, {})
    await to_another(town)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["other"])
    assert (await town.subscriber("ada")).confirmation
    assert await town.items(DEAD_LETTER_QUEUE) == 0
