"""The consent record: who agreed to what, when and from where; it outlives the subscription."""

from __future__ import annotations

import io
import re
from datetime import timedelta
from typing import Any

import pytest

from postroom.domain.address import STORAGE_KEY_CHARS_MAX, parse_address
from postroom.domain.consent import (
    COMMAND_LINE,
    Consent,
    ConsentSource,
    Event,
    SourceKind,
    Trace,
    by_user,
)
from postroom.domain.token import sign
from postroom.flow import subscribe, sweep
from postroom.importing.csv_people import People
from postroom.importing.import_people import ImportObserver, ImportTerms, import_people
from postroom.records import consents, lists, recipients, subscribers
from postroom.records.names import STORAGE_NAMES
from postroom.records.rows import all_rows
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import KEY_CHARS_MAX, Conflict, KeysWithin, Page
from tests.acting import acting
from tests.scenario.town import LIST, SITE, Town, address_of

FORM = Trace(
    source=ConsentSource(SourceKind.FORM),
    client="192.0.2.7",
    shown="We send you an email with a link.",
)
LINK = Trace(
    source=ConsentSource(SourceKind.LINK), client="2001:db8::7", shown="Confirm your subscription"
)
ONE_CLICK = Trace(source=ConsentSource(SourceKind.ONE_CLICK), client="198.51.100.1")
MAIL = Trace(source=ConsentSource(SourceKind.CONFIRMATION_EMAIL))
FAIR = ConsentSource(SourceKind.IMPORT, "people.csv", basis="asked at the fair")


async def history(town: Town, name: str) -> list[Consent]:
    key = parse_address(address_of(name)).storage_key
    return (await consents.history(town.storage.tables, LIST, key)).events


async def events(town: Town, name: str) -> list[str]:
    return [consent.event.value for consent in await history(town, name)]


async def sign_up(town: Town, name: str, trace: Trace = FORM) -> None:
    address, now = parse_address(address_of(name)), town.clock.now()
    await subscribe.sign_up(acting(town.storage, now, trace), LIST, address, {})


async def confirm(town: Town, name: str) -> None:
    guid = (await town.subscriber(name)).guid
    token = sign(SITE.secret, "confirm", LIST, guid)
    tables, now = town.storage.tables, town.clock.now()
    await subscribe.confirm(acting(tables, now, LINK), SITE.secret, LIST, guid, token)


async def leave(town: Town, name: str) -> None:
    guid = (await town.subscriber(name)).guid
    await subscribe.leave(acting(town.storage, town.clock.now(), ONE_CLICK), LIST, guid)


async def test_a_whole_life_is_on_record_and_stays_after_leaving(town: Town) -> None:
    await town.found_list()
    began = town.clock.now()
    await sign_up(town, "ada")
    town.clock.move(60)
    await town.open_sender()
    await town.quiet()
    await town.pass_time(60)
    await confirm(town, "ada")
    await town.pass_time(60)
    await leave(town, "ada")
    assert await history(town, "ada") == [
        FORM.consent(Event.ASKED, began),
        MAIL.consent(Event.MAILED, began + timedelta(minutes=1)),
        LINK.consent(Event.CONFIRMED, began + timedelta(minutes=2)),
        ONE_CLICK.consent(Event.UNSUBSCRIBED, began + timedelta(minutes=3)),
    ]


async def test_a_mail_that_was_refused_is_not_on_record_as_mailed(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "perm-fail")
    await town.open_sender()
    await town.quiet()
    assert await events(town, "perm-fail") == ["asked"]


async def test_asking_again_is_on_record_once_a_mail_follows(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    await sign_up(town, "ada")  # at once: no second mail, no second event
    assert await events(town, "ada") == ["asked"]
    town.clock.move(601)
    await sign_up(town, "ada")
    assert await events(town, "ada") == ["asked", "asked"]


async def test_people_who_join_again_have_one_history(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    town.clock.move(1)
    await leave(town, "ada")
    town.clock.move(1)
    await sign_up(town, "ada")
    assert await events(town, "ada") == ["added", "unsubscribed", "asked"]


async def test_what_administrators_do_is_on_record_with_their_name(town: Town) -> None:
    await town.found_list()
    tables, address = town.storage.tables, parse_address(address_of("ada"))
    editor = by_user("grace", "192.0.2.9")
    key = address.storage_key

    async def set_verified(verified: bool) -> None:
        town.clock.move(1)
        found = await subscribers.find(tables, LIST, key)
        assert found
        await subscribe.edit(
            acting(tables, town.clock.now(), editor),
            LIST,
            key,
            verified=verified,
            attributes={},
            etag=found[1],
        )

    await subscribe.add(acting(tables, town.clock.now(), editor), LIST, address, {}, verified=False)
    for verified in (True, True, False):  # the second changes nothing
        await set_verified(verified)
    town.clock.move(1)
    await subscribe.remove(acting(tables, town.clock.now(), editor), LIST, address)
    found = await history(town, "ada")
    assert [each.event for each in found] == ["added", "confirmed", "unconfirmed", "removed"]
    assert {(each.source, each.client) for each in found} == {(editor.source, editor.client)}


async def test_an_edit_of_a_row_that_changed_meanwhile_records_nothing(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    key = parse_address(address_of("ada")).storage_key
    with pytest.raises(Conflict):
        await subscribe.edit(
            acting(town.storage, town.clock.now()),
            LIST,
            key,
            verified=False,
            attributes={},
            etag="0",
        )
    assert (await town.subscriber("ada")).verified
    assert await events(town, "ada") == ["added"]


async def bring(town: Town, *names: str, source: ConsentSource = FAIR) -> None:
    file = io.StringIO("email\n" + "".join(f"{address_of(name)}\n" for name in names))
    terms = ImportTerms(acting(town.storage, town.clock.now(), Trace(source=source)), LIST, True)
    await import_people(terms, People(iter(file), {}), ImportObserver())


async def test_an_import_is_on_record_with_its_basis_without_an_extra_row(town: Town) -> None:
    await town.found_list()
    began = town.clock.now()
    await bring(town, "ada", "bob")
    keys = KeysWithin(LIST, "consent:", "consent:~")
    rows = [row async for row in all_rows(town.storage.tables, "mailinglist", keys)]
    assert not rows
    imported = Consent(event=Event.IMPORTED, at=began, source=FAIR)
    assert await history(town, "ada") == [imported]
    town.clock.move(1)
    await leave(town, "ada")
    town.clock.move(1)
    await sign_up(town, "ada")
    assert await events(town, "ada") == ["imported", "unsubscribed", "asked"]
    assert (await history(town, "ada"))[0] == imported


async def test_the_record_goes_with_its_list_and_with_nothing_else(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    await leave(town, "ada")
    await lists.start_deleting(town.storage.tables, LIST)
    await sweep.finish_deletions(town.storage.tables)
    assert await history(town, "ada") == []


async def test_records_are_in_nobodys_way(town: Town) -> None:
    """Neither the audience nor a list of everyone sees them."""
    await town.found_list()
    await town.join("ada", "bob")
    await sign_up(town, "eve")
    await leave(town, "bob")
    await sweep.fold_counts(town.storage.tables)
    tables = town.storage.tables
    people, was_last = await recipients.verified_after(tables, LIST, "", limit=10)
    assert ([one.address for one in people], was_last) == (["ada@contoso.edu"], True)
    everyone = [one.address async for one in subscribers.everyone(tables, LIST)]
    assert everyone == [address_of(name) for name in ("ada", "bob", "eve")]
    left = await subscribers.left_since(tables, LIST, town.clock.now())
    assert len(left.departures) == 1


async def test_one_persons_record_is_not_anothers(town: Town) -> None:
    await town.found_list()
    await town.join("ada", "ada2")
    assert len(await history(town, "ada")) == len(await history(town, "ada2")) == 1
    assert await history(town, "ad") == []


async def test_only_the_latest_of_very_many_events_are_shown(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consents, "EVENTS_SHOWN_MAX", 2)
    await town.found_list()
    await sign_up(town, "ada")
    town.clock.move(601)
    await sign_up(town, "ada")
    town.clock.move(1)
    await confirm(town, "ada")
    assert await events(town, "ada") == ["asked", "confirmed"]


@pytest.mark.parametrize(("shown_max", "has_older"), [(2, True), (3, False)])
async def test_the_record_says_whether_there_are_older_events(
    town: Town, monkeypatch: pytest.MonkeyPatch, shown_max: int, has_older: bool
) -> None:
    """Also where the oldest is the import, which has no row of its own."""
    monkeypatch.setattr(consents, "EVENTS_SHOWN_MAX", shown_max)
    await town.found_list()
    await bring(town, "ada")
    town.clock.move(1)
    await leave(town, "ada")
    town.clock.move(1)
    await sign_up(town, "ada")
    key = parse_address(address_of("ada")).storage_key
    found = await consents.history(town.storage.tables, LIST, key)
    assert found.has_older is has_older
    assert [each.event for each in found.events][-2:] == ["unsubscribed", "asked"]


async def test_showing_a_long_record_reads_only_what_is_shown(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consents, "EVENTS_SHOWN_MAX", 2)
    await town.found_list()
    tables, key, began = town.storage.tables, "ada@contoso.edu", town.clock.now()
    for hour in range(50):
        asked = FORM.consent(Event.ASKED, began + timedelta(hours=hour))
        await consents.note_for_all(tables, LIST, [key], asked)
    scan, read = tables.scan, 0

    async def counted(*arguments: Any, **options: Any) -> Page:
        nonlocal read
        page = await scan(*arguments, **options)
        read += len(page.rows)
        return page

    monkeypatch.setattr(tables, "scan", counted)
    found = await consents.history(tables, LIST, key)
    assert [each.at - began for each in found.events] == [timedelta(hours=48), timedelta(hours=49)]
    assert read == 3  # one more, to tell that there are older ones


async def test_a_storage_that_answers_in_short_pages_hides_no_event(town: Town) -> None:
    tables = MemoryStorage(town.clock, STORAGE_NAMES, page_rows=2, empty_first_page=True).tables
    asked = [
        FORM.consent(Event.ASKED, town.clock.now() + timedelta(hours=hour)) for hour in range(5)
    ]
    for each in asked:
        await consents.note_for_all(tables, LIST, ["ada@contoso.edu"], each)
    found = await consents.history(tables, LIST, "ada@contoso.edu")
    assert (found.events, found.has_older) == (asked, False)


def test_what_is_kept_of_a_trace_is_bounded(town: Town) -> None:
    endless = Trace(source=FAIR, client="y" * 10_000, shown="z" * 10_000)
    kept = endless.consent(Event.ASKED, town.clock.now())
    assert len(kept.client + kept.shown) < 3000


def test_the_row_of_the_longest_address_has_a_key_that_storage_takes(town: Town) -> None:
    consent = COMMAND_LINE.consent(Event.ADDED, town.clock.now())
    row = consents.event_row("x" * STORAGE_KEY_CHARS_MAX, consent)
    assert len(row.key) <= KEY_CHARS_MAX
    assert re.fullmatch(r"consent:x+:\d{15}-[0-9a-f]+", row.key)
