"""Suppression by people: nobody mails a suppressed address, and everybody can see why."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from postroom.actions import ask_to_confirm, manage_suppressions, send_test_mail
from postroom.domain.address import parse_address
from postroom.domain.asking import CannotAsk
from postroom.domain.confirmation import ConfirmationState
from postroom.domain.delivery import State
from postroom.domain.suppression import Suppression, SuppressionReason, SuppressionScope
from postroom.domain.trial import TrialState
from postroom.importing.import_suppressions import (
    SuppressionCounts,
    SuppressionTerms,
    import_suppressions,
)
from postroom.importing.suppression_rows import SuppressionRows
from postroom.records import lists, subscribers, suppressions, trials
from postroom.records.names import DEAD_LETTER_QUEUE, SINGLE_MAIL_QUEUE
from postroom.records.suppression_filter import (
    LOOK_BACK_EVERY_S,
    NEAR_SKEW,
    REFRESH_EVERY_S,
    SKEW,
    SuppressionFilter,
)
from postroom.storage.counting import CountingStorage
from tests.acting import acting
from tests.scenario.test_confirmations import attempts_of, sign_up
from tests.scenario.test_test_mail import writer
from tests.scenario.town import LIST, SITE, Town, address_of, once_each, students

SECOND = timedelta(seconds=1)


class Quiet:
    """Watches an import and says nothing."""

    def may_go_on(self) -> bool:
        return True

    def refused(self, row: object) -> None:
        raise AssertionError(row)

    def counted(self, counts: SuppressionCounts) -> None:
        return


async def suppress(
    town: Town, name: str, scope: SuppressionScope = SuppressionScope.ALL, *list_names: str
) -> None:
    act = acting(town.storage, town.clock.now())
    address = parse_address(address_of(name))
    await manage_suppressions.add(act, SITE.secret, address, scope, list_names=list_names)
    town.clock.move(REFRESH_EVERY_S)


async def test_a_confirmation_to_somebody_suppressed_entirely_is_given_up_in_words(
    town: Town,
) -> None:
    await town.found_list()
    await suppress(town, "ada")
    await suppress(town, "ben", SuppressionScope.BULK)
    await sign_up(town, "ada", "ben", "zoe")
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["ben", "zoe"])
    given_up = await attempts_of(town, "ada")
    assert given_up.state is ConfirmationState.GIVEN_UP
    assert given_up.words == "suppressed: added by a person"
    assert await town.items(SINGLE_MAIL_QUEUE) == 0
    assert await town.items(DEAD_LETTER_QUEUE) == 0


async def test_after_the_entry_is_removed_a_person_can_be_asked_again_at_once(town: Town) -> None:
    await town.found_list()
    await suppress(town, "ada")
    await sign_up(town, "ada")
    await town.open_sender()
    await town.quiet()
    act = acting(town.storage, town.clock.now())
    await manage_suppressions.remove(act, SITE.secret, parse_address(address_of("ada")))
    key = parse_address(address_of("ada")).storage_key
    assert await ask_to_confirm.ask_one(act, LIST, key) is None
    assert (await town.subscriber("ada")).confirmation is None
    await town.quiet()
    assert town.arrived() == once_each(["ada"])
    assert await ask_to_confirm.ask_one(act, LIST, key) is CannotAsk.LATELY


async def test_a_run_over_the_list_does_not_repeat_what_was_refused_today(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "perm-fail")
    await town.open_sender()
    await town.quiet()
    found = await ask_to_confirm.tally(town.storage.tables, LIST, town.clock)
    assert (found.askable, found.lately) == (0, 1)


async def test_a_suppressed_user_gets_no_test_email_and_is_told_why(town: Town) -> None:
    await town.found_list()
    ref, ada = await town.compose(), await writer(town)
    await suppress(town, "ada")
    await send_test_mail.ask_for_test(acting(town.storage, town.clock.now()), ref, ada.key, "one")
    await town.open_sender()
    await town.sender_alone()
    assert town.arrived() == {}
    trial = await trials.find(town.storage.tables, ref, ada.key)
    assert trial
    assert trial.state is TrialState.UNWRITABLE
    assert "suppressed for all email (added by a person)" in trial.words


async def test_one_list_is_stopped_and_the_others_are_not(town: Town) -> None:
    await town.found_list("other")
    await town.join("ada", list_name="other")
    ref = await town.mailing("ada", "zoe")
    await suppress(town, "ada", SuppressionScope.LIST, LIST)
    other = await town.compose(list_name="other")
    await town.open_sender()
    await town.quiet()
    assert (await town.read(ref)).books.sent == 1
    assert (await town.fates(other))["ada"][0] is State.SENT


async def test_somebody_erased_while_queued_is_not_mailed_and_leaves_no_trace(town: Town) -> None:
    ref = await town.mailing("ada", "zoe")
    await town.fan_out()
    act = acting(town.storage, town.clock.now())
    ada = parse_address(address_of("ada"))
    assert await manage_suppressions.erase(act, SITE.secret, ada) == [LIST]
    town.clock.move(REFRESH_EVERY_S)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["zoe"])
    assert (await town.fates(ref))["ada"] == (State.SKIPPED, "suppressed: erased")
    assert await subscribers.find(town.storage.tables, LIST, ada.storage_key) is None
    assert await manage_suppressions.erase(act, SITE.secret, ada) == []


async def test_an_import_reaches_senders_that_are_running(town: Town) -> None:
    names = [*students(300), "zoé"]
    await town.found_list()
    watcher = SuppressionFilter(town.storage, town.clock, SITE.secret)
    keys = [parse_address(address_of(name)).storage_key for name in names]
    assert await watcher.suppressed_entirely(keys) == {}
    act = acting(town.storage, town.clock.now())
    terms = SuppressionTerms(act, SITE.secret, SuppressionScope.ALL, group_rows=120)
    lines = [f"{address_of(name)}\n" for name in names]
    counts = await import_suppressions(terms, SuppressionRows(iter(lines)), Quiet())
    assert (counts.added, counts.already, counts.rows) == (301, 0, 301)
    town.clock.move(REFRESH_EVERY_S)
    assert (await watcher.suppressed_entirely(keys)).keys() == set(keys)
    again = await import_suppressions(terms, SuppressionRows(iter(lines)), Quiet())
    assert (again.added, again.already) == (0, 301)
    fresh = SuppressionFilter(town.storage, town.clock, SITE.secret)  # reads the rows
    assert (await fresh.suppressed_entirely(keys)).keys() == set(keys)
    page = await suppressions.page(town.storage.tables, prefix=keys[-1][:2])
    assert [each.key for each in page.entries] == [keys[-1]]


async def test_lanes_that_ask_at_once_share_one_reading(town: Town) -> None:
    """Sixteen lanes that each read the log of a large import kept each other from sending."""
    storage = CountingStorage(town.storage)
    watcher = SuppressionFilter(storage, town.clock, SITE.secret)
    await watcher.refresh()
    first = storage.calls.total
    town.clock.move(REFRESH_EVERY_S)
    await asyncio.gather(*(watcher.refresh() for _lane in range(16)))
    assert storage.calls.total - first == 1


@pytest.mark.parametrize("late", [NEAR_SKEW - SECOND, SKEW - SECOND])
async def test_an_entry_of_a_process_that_stalled_is_noticed(town: Town, late: timedelta) -> None:
    """Its log row is older than others that were read before."""
    await suppress(town, "zoe", SuppressionScope.ALL)
    watcher = SuppressionFilter(town.storage, town.clock, SITE.secret)
    ada = parse_address(address_of("ada")).storage_key
    assert await watcher.suppressed_entirely([ada]) == {}
    now = town.clock.now()
    entry = Suppression(
        key=ada, scope=SuppressionScope.ALL, reason=SuppressionReason.ADDED, since=now - late
    )
    await suppressions.put_new(town.storage.tables, SITE.secret, [(ada, entry)], now - late)
    town.clock.move(REFRESH_EVERY_S if late < NEAR_SKEW else LOOK_BACK_EVERY_S)
    assert (await watcher.suppressed_entirely([ada])).keys() == {ada}


@pytest.mark.parametrize("by_import", [False, True])
async def test_who_is_suppressed_by_a_process_that_stalls_for_long_is_noticed(
    town: Town, monkeypatch: pytest.MonkeyPatch, by_import: bool
) -> None:
    """Between reading the end of the log and writing; others read much newer rows meanwhile."""
    watcher = SuppressionFilter(town.storage, town.clock, SITE.secret)
    await watcher.refresh()
    end_of_log = suppressions.end_of_log

    async def stall(*asked: Any) -> datetime:
        found = await end_of_log(*asked)
        monkeypatch.setattr(suppressions, "end_of_log", end_of_log)
        town.clock.move(2 * SKEW.total_seconds())
        await suppress(town, "zoe")
        await watcher.refresh()
        return found

    monkeypatch.setattr(suppressions, "end_of_log", stall)
    if by_import:
        terms = SuppressionTerms(acting(town.storage, town.clock.now()), SITE.secret)
        await import_suppressions(terms, SuppressionRows(iter([address_of("ada")])), Quiet())
    else:
        await suppress(town, "ada")
    town.clock.move(LOOK_BACK_EVERY_S)
    ada = parse_address(address_of("ada")).storage_key
    assert (await watcher.suppressed([ada], LIST)).keys() == {ada}


async def test_an_import_widens_what_is_there_and_narrows_nothing(town: Town) -> None:
    await town.found_list()
    await suppress(town, "ada", SuppressionScope.LIST, LIST)
    await suppress(town, "ben", SuppressionScope.ALL)
    act = acting(town.storage, town.clock.now())
    rows = SuppressionRows(iter(f"{address_of(name)}\n" for name in ("ada", "ben", "zoe")))
    counts = await import_suppressions(SuppressionTerms(act, SITE.secret), rows, Quiet())
    assert (counts.added, counts.widened, counts.already) == (1, 1, 1)
    ada, ben = await town.suppression("ada"), await town.suppression("ben")
    assert ada
    assert ben
    assert (ada.scope, ben.scope) == (SuppressionScope.BULK, SuppressionScope.ALL)
    assert await lists.find(town.storage.tables, LIST)
