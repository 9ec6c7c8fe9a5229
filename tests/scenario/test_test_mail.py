"""Test mails: to whoever asked alone, marked as a test, harmless to follow."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest

from postroom.domain.errors import NotFound
from postroom.domain.user import Role, User
from postroom.flow import compose, subscribe, test_mail
from postroom.flow.subscribe import Left
from postroom.records import messages, users
from postroom.storage.port import DEAD_LETTERS, SUBSCRIBE_QUEUE
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
    await test_mail.ask_for_test(town.storage, ref, ada.key, "one")
    await town.open_sender()
    await town.sender_alone()
    assert town.arrived() == once_each(["ada"])
    mail = parsed(town.sink.mails[0].content)
    assert mail["Subject"].startswith("[Test] ")
    assert await town.items(SUBSCRIBE_QUEUE) == 0


async def test_the_link_in_a_test_changes_nothing(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    ref, ada = await town.compose(), await writer(town)
    await test_mail.ask_for_test(town.storage, ref, ada.key, "one")
    await town.open_sender()
    await town.sender_alone()
    link = str(parsed(town.sink.mails[0].content)["List-Unsubscribe"]).strip("<>")
    guid = link.rpartition("/")[2]
    assert link == SITE.unsubscribe_url(LIST, guid)
    left = await subscribe.leave(town.storage.tables, LIST, guid, town.clock.now())
    assert left is Left.UNKNOWN
    assert (await town.subscriber("ada")).verified


async def test_two_tests_are_two_mails_and_one_test_is_one_whatever_happens(town: Town) -> None:
    await town.found_list()
    ref, ada = await town.compose(), await writer(town)
    for nonce in ("one", "two", "two"):  # the second “two” as after a crash
        await test_mail.ask_for_test(town.storage, ref, ada.key, nonce)
    await town.open_sender()
    await town.sender_alone()
    names = [parsed(mail.content)["Message-ID"] for mail in town.sink.mails]
    assert len(names) == 3
    assert len(set(names)) == 2


async def test_a_draft_edited_since_the_last_test_is_tested_anew(town: Town) -> None:
    await town.found_list()
    ref, ada = await town.compose(), await writer(town)
    await town.open_sender()
    await test_mail.ask_for_test(town.storage, ref, ada.key, "one")
    await town.sender_alone()
    found = await messages.find_live(town.storage.tables, ref)
    assert found
    revision = compose.Revision(html="<p>Second words</p>", text=None)
    await compose.edit(town.storage, ref, revision, found[1])
    await test_mail.ask_for_test(town.storage, ref, ada.key, "two")
    await town.sender_alone()
    assert b"Second words" in town.sink.mails[-1].content


async def test_a_test_of_a_message_deleted_meanwhile_is_forgotten(town: Town) -> None:
    await town.found_list()
    ref, ada = await town.compose(), await writer(town)
    await test_mail.ask_for_test(town.storage, ref, ada.key, "one")
    await compose.discard(town.storage, ref)
    await town.open_sender()
    await town.sender_alone()
    assert not town.sink.mails
    assert await town.items(SUBSCRIBE_QUEUE) == 0


async def test_an_item_that_says_nothing_goes_to_the_dead_letters(town: Town) -> None:
    await town.storage.queues.put(SUBSCRIBE_QUEUE, "test,what,is,this,then")
    await town.open_sender()
    await town.sender_alone()
    assert await town.items(SUBSCRIBE_QUEUE) == 0
    assert await town.items(DEAD_LETTERS) == 1


async def test_a_message_that_is_not_there_cannot_be_tested(town: Town) -> None:
    with pytest.raises(NotFound):
        await test_mail.ask_for_test(town.storage, "123456789012345678", "ada", "one")
