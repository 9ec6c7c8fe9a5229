"""Test mails: to whoever asked alone, marked as a test, harmless to follow."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest

from postroom.actions import send_test_mail
from postroom.domain.errors import NotFound
from postroom.domain.trial import Trial, TrialState
from postroom.domain.user import Role, User
from postroom.flow import compose, subscribe
from postroom.flow.subscribe import UnsubscribeResult
from postroom.records import messages, trials, users
from postroom.records.names import DEAD_LETTER_QUEUE, SINGLE_MAIL_QUEUE
from tests.acting import acting
from tests.scenario.town import LIST, SITE, Town, address_of, once_each


async def writer(town: Town, name: str = "ada") -> User:
    now, address = town.clock.now(), address_of(name)
    user = User(
        address=address,
        key=address,
        role=Role.EDITOR,
        password="",
        created_at=now,
        sessions_from=now,
    )
    await users.add(town.storage.tables, user)
    return user


def parsed(content: bytes) -> EmailMessage:
    mail = message_from_bytes(content, policy=policy.default)
    assert isinstance(mail, EmailMessage)
    return mail


async def test_a_test_goes_to_whoever_asked_and_to_nobody_else(town: Town) -> None:
    await town.found_list()
    await town.join("bob")
    ref, ada = await town.compose(), await writer(town)
    await send_test_mail.ask_for_test(acting(town.storage, town.clock.now()), ref, ada.key, "one")
    await town.open_sender()
    await town.sender_alone()
    assert town.arrived() == once_each(["ada"])
    mail = parsed(town.sink.mails[0].content)
    assert mail["Subject"].startswith("[Test] ")
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_somebody_on_the_list_gets_it_with_their_own_attributes(town: Town) -> None:
    await town.found_list()
    await town.join("ada", attributes={"first_name": "Ada"})
    ref = await town.compose()
    await town.open_sender()
    for number, name in enumerate(("ada", "bob")):
        user = await writer(town, name)
        act = acting(town.storage, town.clock.now())
        await send_test_mail.ask_for_test(act, ref, user.key, str(number))
        await town.sender_alone()
    first, second = (mail.content for mail in town.sink.mails)
    assert b"Dear Ada" in first
    assert b"Dear student" in second


async def test_the_link_in_a_test_changes_nothing(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    ref, ada = await town.compose(), await writer(town)
    await send_test_mail.ask_for_test(acting(town.storage, town.clock.now()), ref, ada.key, "one")
    await town.open_sender()
    await town.sender_alone()
    link = str(parsed(town.sink.mails[0].content)["List-Unsubscribe"]).strip("<>")
    guid = link.rpartition("/")[2]
    assert link == SITE.unsubscribe_url(LIST, guid)
    left = await subscribe.leave(acting(town.storage, town.clock.now()), LIST, guid)
    assert left is UnsubscribeResult.UNKNOWN
    assert (await town.subscriber("ada")).verified


async def test_two_tests_are_two_mails_and_one_test_is_one_whatever_happens(town: Town) -> None:
    await town.found_list()
    ref, ada = await town.compose(), await writer(town)
    for nonce in ("one", "two", "two"):  # the second “two” as after a crash
        await send_test_mail.ask_for_test(
            acting(town.storage, town.clock.now()), ref, ada.key, nonce
        )
    await town.open_sender()
    await town.sender_alone()
    names = [parsed(mail.content)["Message-ID"] for mail in town.sink.mails]
    assert len(names) == 3
    assert len(set(names)) == 2


async def test_a_draft_edited_since_the_last_test_is_tested_again(town: Town) -> None:
    await town.found_list()
    ref, ada = await town.compose(), await writer(town)
    await town.open_sender()
    await send_test_mail.ask_for_test(acting(town.storage, town.clock.now()), ref, ada.key, "one")
    await town.sender_alone()
    found = await messages.find_live(town.storage.tables, ref)
    assert found
    revision = compose.Revision(html="<p>Second words</p>", text=None)
    await compose.edit(town.storage, ref, revision, found[1])
    await send_test_mail.ask_for_test(acting(town.storage, town.clock.now()), ref, ada.key, "two")
    await town.sender_alone()
    assert b"Second words" in town.sink.mails[-1].content


async def test_a_test_of_a_message_deleted_meanwhile_is_forgotten(town: Town) -> None:
    await town.found_list()
    ref, ada = await town.compose(), await writer(town)
    await send_test_mail.ask_for_test(acting(town.storage, town.clock.now()), ref, ada.key, "one")
    await compose.discard(town.storage, ref)
    await town.open_sender()
    await town.sender_alone()
    assert not town.sink.mails
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_an_item_that_says_nothing_goes_to_the_dead_letters(town: Town) -> None:
    await town.storage.queues.put(SINGLE_MAIL_QUEUE, "test,what,is,this,then")
    await town.open_sender()
    await town.sender_alone()
    assert await town.items(SINGLE_MAIL_QUEUE) == 0
    assert await town.items(DEAD_LETTER_QUEUE) == 1


async def test_a_message_that_is_not_there_cannot_be_tested(town: Town) -> None:
    with pytest.raises(NotFound):
        await send_test_mail.ask_for_test(
            acting(town.storage, town.clock.now()), "123456789012345678", "ada", "one"
        )


# --- What became of it --------------------------------------------------------------------------


async def outcome(town: Town, ref: str, user: User) -> tuple[TrialState, str]:
    found = await trials.find(town.storage.tables, ref, user.key)
    assert found
    return found.state, found.words


async def asked(town: Town, name: str) -> tuple[str, User]:
    """A test mail to somebody of that name, asked for."""
    await town.found_list()
    ref, user = await town.compose(), await writer(town, name)
    await send_test_mail.ask_for_test(acting(town.storage, town.clock.now()), ref, user.key, "one")
    return ref, user


async def test_a_test_that_was_sent_says_so(town: Town) -> None:
    ref, ada = await asked(town, "ada")
    assert await outcome(town, ref, ada) == (TrialState.WAITING, "")
    await town.open_sender()
    await town.sender_alone()
    state, words = await outcome(town, ref, ada)
    assert state is TrialState.SENT
    assert words.startswith("250 ")


async def test_a_test_that_was_refused_says_so_in_the_servers_words(town: Town) -> None:
    ref, user = await asked(town, "perm-fail")
    await town.open_sender()
    await town.sender_alone()
    state, words = await outcome(town, ref, user)
    assert state is TrialState.REFUSED
    assert words.startswith("550 ")


async def test_a_test_that_is_put_off_again_and_again_is_given_up_in_the_end(town: Town) -> None:
    ref, user = await asked(town, "temp-fail")
    await town.open_sender()
    await town.sender_alone()
    state, words = await outcome(town, ref, user)
    assert state is TrialState.DEFERRED
    assert words.startswith("450 ")
    await town.live_through(3600, every_s=300)
    assert (await outcome(town, ref, user))[0] is TrialState.GIVEN_UP


async def test_a_test_waits_for_the_mail_server_as_long_as_it_takes(town: Town) -> None:
    ref, ada = await asked(town, "ada")
    greeting = town.sink.options.greeting
    town.sink.options = replace(town.sink.options, greeting="421 4.3.2 later")
    await town.open_sender()
    await town.sender_alone()
    assert await outcome(town, ref, ada) == (TrialState.WAITING, "")
    town.sink.options = replace(town.sink.options, greeting=greeting)
    await town.live_through(30, every_s=15)
    assert (await outcome(town, ref, ada))[0] is TrialState.SENT


async def test_the_outcome_of_an_older_test_is_not_told_of_a_newer_one(town: Town) -> None:
    ref, ada = await asked(town, "ada")
    newer = Trial(ref=ref, user=ada.key, nonce="two", asked_at=town.clock.now())
    await trials.ask(town.storage.tables, newer)
    await town.open_sender()
    await town.sender_alone()
    assert await trials.find(town.storage.tables, ref, ada.key) == newer


async def test_a_test_of_a_message_that_is_gone_says_so(town: Town) -> None:
    ref, ada = await asked(town, "ada")
    await compose.discard(town.storage, ref)
    await town.open_sender()
    await town.sender_alone()
    state, words = await outcome(town, ref, ada)
    assert state is TrialState.UNWRITABLE
    assert "no message" in words


async def test_outcomes_are_forgotten_after_a_day(town: Town) -> None:
    ref, ada = await asked(town, "ada")
    now = town.clock.now()
    await trials.forget_old(town.storage.tables, now + timedelta(hours=23))
    assert await trials.find(town.storage.tables, ref, ada.key)
    await trials.forget_old(town.storage.tables, now + timedelta(hours=25))
    assert await trials.find(town.storage.tables, ref, ada.key) is None
