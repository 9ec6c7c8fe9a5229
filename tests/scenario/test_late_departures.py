"""Who is taken off a list late, by something that began long before, is not mailed any more."""

from __future__ import annotations

from postroom.act import Act
from postroom.actions import move_subscriber
from postroom.actions.move_subscriber import Destination
from postroom.domain.address import parse_address
from postroom.domain.subscriber import InactiveReason
from postroom.importing.csv_people import Person
from postroom.importing.import_people import ImportObserver, ImportTerms, import_people
from postroom.records import subscribers
from tests.clock import START
from tests.scenario.town import LIST, Town, address_of

AGO_S = 20 * 60.0


async def queued_after_a_departure(town: Town) -> None:
    """A sender has just heard that Bob left; the next message to the others is queued."""
    await town.mailing("ada", "bob", "zoe")
    await town.open_sender()
    await town.quiet()
    await town.pass_time(AGO_S)
    await town.leave("bob")
    await town.compose()
    await town.quiet()
    town.clock.move(1.0)
    await town.compose()
    await town.fan_out()


async def test_an_import_that_keeps_people_off_for_long_keeps_the_queued_off_too(
    town: Town,
) -> None:
    await queued_after_a_departure(town)
    zoe = Person(1, parse_address(address_of("zoe")), {})
    began_then = Act(town.storage, town.clock, START)
    terms = ImportTerms(began_then, LIST, False, keep_out=True)
    await import_people(terms, [zoe], ImportObserver())
    assert (await town.subscriber("zoe")).inactive_reason is InactiveReason.REMOVED
    await town.quiet()
    assert town.arrived() == {"ada": 3, "zoe": 2, "bob": 1}


async def test_a_move_that_is_finished_late_keeps_the_old_address_from_being_mailed(
    town: Town,
) -> None:
    """A form sent again acts with the time of its first try (web/submit_once.py)."""
    await queued_after_a_departure(town)
    found = await subscribers.find(town.storage.tables, LIST, "zoe@contoso.edu")
    assert found
    to = Destination(
        list_name=LIST, address=parse_address("new@contoso.edu"), verified=True, attributes={}
    )
    act = Act(town.storage, town.clock, START)
    await move_subscriber.move(act, LIST, "zoe@contoso.edu", to, etag=found.etag)
    await town.quiet()
    assert town.arrived() == {"ada": 3, "zoe": 2, "bob": 1}
