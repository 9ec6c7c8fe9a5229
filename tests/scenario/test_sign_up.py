"""Sign-up: asked once, confirmed by the link in the mail, left by one click."""

from __future__ import annotations

import re
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest

from postroom.domain.address import parse_address
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.subscriber import InactiveReason
from postroom.domain.token import sign
from postroom.flow import subscribe
from postroom.flow.subscribe import ConfirmationResult, UnsubscribeResult
from postroom.records import subscribers
from postroom.records.names import SINGLE_MAIL_QUEUE
from tests.acting import acting
from tests.scenario.town import LIST, SITE, Town, address_of, once_each

LINK = re.compile(rf"{re.escape(SITE.url)}/c/{LIST}/([0-9a-f]+)/([0-9a-f]+)")


async def sign_up(town: Town, name: str) -> None:
    address = parse_address(address_of(name))
    await subscribe.sign_up(
        acting(town.storage, town.clock.now()), LIST, address, {"first_name": name}
    )


async def confirm(town: Town, guid: str, token: str) -> ConfirmationResult:
    now = town.clock.now()
    return await subscribe.confirm(acting(town.storage, now), SITE.secret, LIST, guid, token)


def link_in(content: bytes) -> tuple[str, str]:
    """GUID and token of the link, the same in both parts of the mail."""
    links = set()
    for kind in ("plain", "html"):
        body = parsed(content).get_body((kind,))
        assert body is not None
        found = LINK.search(body.get_content())
        assert found is not None
        links.add((found[1], found[2]))
    [link] = links
    return link


def parsed(content: bytes) -> EmailMessage:
    mail = message_from_bytes(content, policy=policy.default)
    assert isinstance(mail, EmailMessage)
    return mail


async def test_a_sign_up_stores_the_person_unverified_and_queues_one_item(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    ada = await town.subscriber("ada")
    assert not ada.verified
    assert ada.attributes == {"first_name": "ada"}
    assert await town.items(SINGLE_MAIL_QUEUE) == 1
    assert not town.sink.mails  # no mail is sent inside a request


async def test_asking_again_within_ten_minutes_queues_nothing(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    town.clock.move(599)
    await sign_up(town, "ada")
    assert await town.items(SINGLE_MAIL_QUEUE) == 1
    town.clock.move(1)
    await sign_up(town, "ADA")  # the same person
    assert await town.items(SINGLE_MAIL_QUEUE) == 2


async def test_whoever_asks_learns_nothing_about_who_is_there(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    for name in ("ada", "bob"):  # the same answer for both: none at all
        await sign_up(town, name)
    assert await town.items(SINGLE_MAIL_QUEUE) == 1
    assert (await town.subscriber("ada")).attributes == {}  # nor can anybody change her


async def test_a_list_that_is_not_there_is_named(town: Town) -> None:
    with pytest.raises(NotFound, match="There is no list contoso1"):
        await sign_up(town, "ada")


async def test_the_confirmation_mail_carries_the_link_and_says_what_it_is(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["ada"])
    mail = parsed(town.sink.mails[0].content)
    assert mail["Subject"] == "Confirm your subscription to History news"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["List-Unsubscribe"] is None
    assert mail["List-Unsubscribe-Post"] is None
    assert link_in(town.sink.mails[0].content)[0] == (await town.subscriber("ada")).guid
    html = mail.get_body(("html",))
    assert html
    both = re.findall(r'<a href="([^"]+)"', html.get_content())  # the button, and the link itself
    assert len(both) == 2
    assert len(set(both)) == 1
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_the_link_verifies_once_and_a_wrong_one_never(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    await town.open_sender()
    await town.quiet()
    guid, token = link_in(town.sink.mails[0].content)
    assert await confirm(town, guid, "0" * len(token)) is ConfirmationResult.UNKNOWN
    assert await confirm(town, "0" * 32, token) is ConfirmationResult.UNKNOWN
    assert not (await town.subscriber("ada")).verified
    assert await confirm(town, guid, token) is ConfirmationResult.NOW
    assert (await town.subscriber("ada")).verified
    assert await confirm(town, guid, token) is ConfirmationResult.ALREADY


async def test_only_who_confirmed_is_mailed(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    await sign_up(town, "bob")
    await town.open_sender()
    await town.quiet()
    links = {mail.recipient: link_in(mail.content) for mail in town.sink.mails}
    await confirm(town, *links["ada@contoso.edu"])
    town.sink.taken.clear()
    await town.compose()
    await town.quiet()
    assert town.arrived() == once_each(["ada"])


async def test_who_confirmed_before_the_mail_went_out_is_not_asked_again(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    guid = (await town.subscriber("ada")).guid
    await confirm(town, guid, sign(SITE.secret, "confirm", LIST, guid))
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_a_busy_mailbox_is_asked_again_and_a_dead_one_is_not(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "temp-fail-once")
    await sign_up(town, "perm-fail")
    await town.open_sender()
    await town.quiet()
    assert await town.items(SINGLE_MAIL_QUEUE) == 1
    await town.pass_time(60)
    await town.quiet()
    assert town.arrived() == once_each(["temp-fail-once"])
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_leaving_twice_is_leaving_once(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    guid = (await town.subscriber("ada")).guid
    tables, now = town.storage.tables, town.clock.now()
    assert await subscribe.leave(acting(tables, now), LIST, guid) is UnsubscribeResult.NOW
    assert await subscribe.leave(acting(tables, now), LIST, guid) is UnsubscribeResult.ALREADY
    assert await subscribe.leave(acting(tables, now), LIST, "0" * 32) is UnsubscribeResult.UNKNOWN
    ada = await town.subscriber("ada")
    assert ada.inactive_reason is InactiveReason.UNSUBSCRIBED
    assert ada.attributes == {}


async def test_people_who_join_again_get_a_new_guid_and_must_confirm_again(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    old = (await town.subscriber("ada")).guid
    await town.leave("ada")
    town.clock.move(1)
    await sign_up(town, "ada")
    ada = await town.subscriber("ada")
    assert ada.guid != old
    assert not ada.verified
    token = sign(SITE.secret, "confirm", LIST, old)
    assert await confirm(town, old, token) is ConfirmationResult.UNKNOWN
    assert await subscribers.find_by_guid(town.storage.tables, LIST, old) is None


async def test_an_administrator_brings_nobody_back_by_accident(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    with pytest.raises(AlreadyThere, match="already"):
        await town.join("ada")
    await town.leave("ada")
    with pytest.raises(AlreadyThere, match="only if they asked for it"):
        await town.join("ada")
