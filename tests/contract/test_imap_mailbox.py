"""The bounce mailbox over IMAP: logins, faults of servers, and mails of other people."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from postroom.bounce_mailbox.imap import ImapMailbox
from postroom.bounce_mailbox.imap_config import ImapConfig, ImapTimeouts, parse_imap_url
from postroom.bounce_mailbox.port import Filing, MailboxUnavailable
from postroom.domain.tls import Tls
from postroom_bench.ports import held_port
from tests.imap_server import PASSWORD, USER, ImapServer, ServerFolder

MAIL = b"Subject: failure notice\r\n\r\nNo such user\r\n"
OTHERS = b"Subject: holiday\r\n\r\nNot a bounce\r\n"
DELETED = r"\Deleted"


OPENED: list[ImapMailbox] = []


@pytest_asyncio.fixture(autouse=True)
async def closed_mailboxes() -> AsyncIterator[None]:
    yield
    while OPENED:
        await OPENED.pop().close()


def mailbox_on(server: ImapServer, **changes: object) -> ImapMailbox:
    config = ImapConfig("127.0.0.1", server.port, USER, PASSWORD, tls=Tls.NONE)
    OPENED.append(ImapMailbox(replace(config, **changes)))  # type: ignore[arg-type]
    return OPENED[-1]


async def trouble_of(mailbox: ImapMailbox) -> str:
    with pytest.raises(MailboxUnavailable) as trouble:
        await mailbox.waiting(limit=10)
    assert PASSWORD not in str(trouble.value)
    return str(trouble.value)


# --- Reaching the server ------------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [("AUTH=PLAIN",), ()], ids=["PLAIN", "LOGIN"])
async def test_both_logins_work(capabilities: tuple[str, ...]) -> None:
    async with ImapServer(capabilities) as server:
        assert await mailbox_on(server).waiting(limit=1) == []


@pytest.mark.parametrize("capabilities", [("AUTH=PLAIN",), (), ("LOGINDISABLED",)])
async def test_a_refused_login_is_named(capabilities: tuple[str, ...]) -> None:
    async with ImapServer(capabilities) as server:
        words = await trouble_of(mailbox_on(server, password="wrong"))
    assert f"The mail server 127.0.0.1:{server.port} rejects the login" in words


async def test_a_missing_folder_is_named() -> None:
    async with ImapServer() as server:
        words = await trouble_of(mailbox_on(server, folder="Bounces"))
    assert words.startswith("The folder Bounces on 127.0.0.1")


async def test_a_folder_in_which_nothing_may_be_changed_is_refused() -> None:
    async with ImapServer(is_read_only=True) as server:
        assert "nothing may be changed" in await trouble_of(mailbox_on(server))


async def test_a_server_that_is_away_is_named() -> None:
    with held_port() as port:
        server = ImapServer(port=port)
        words = await trouble_of(mailbox_on(server))
    assert words == f"Cannot connect to the mail server 127.0.0.1:{port}: connection refused"


@pytest.mark.parametrize("command", ["CAPABILITY", "AUTHENTICATE", "SELECT", "SEARCH"])
async def test_a_silent_server_is_not_waited_for_for_ever(command: str) -> None:
    timeouts = ImapTimeouts(connect_s=0.2, reply_s=0.2, call_s=60.0)
    async with ImapServer(faults={command: ["silent"]}) as server:
        assert "does not answer" in await trouble_of(mailbox_on(server, timeouts=timeouts))


async def test_a_call_that_takes_too_long_is_broken_off() -> None:
    timeouts = ImapTimeouts(call_s=0.3)
    async with ImapServer(faults={"SEARCH": ["silent"]}) as server:
        mailbox = mailbox_on(server, timeouts=timeouts)
        assert "does not answer" in await trouble_of(mailbox)
        assert await mailbox.waiting(limit=1) == []


@pytest.mark.parametrize("command", ["AUTHENTICATE", "SELECT", "SEARCH"])
@pytest.mark.parametrize("fault", ["drop", "no", "bad"])
async def test_after_a_fault_the_next_call_connects_again(command: str, fault: str) -> None:
    async with ImapServer(faults={command: [fault]}) as server:
        server.inbox.add(MAIL)
        mailbox = mailbox_on(server)
        await trouble_of(mailbox)
        assert len(await mailbox.waiting(limit=10)) == 1


async def test_a_connection_that_the_server_ended_is_replaced_unnoticed() -> None:
    async with ImapServer() as server:
        mailbox = mailbox_on(server)
        assert await mailbox.waiting(limit=10) == []
        server.drop_connections()
        server.inbox.add(MAIL)
        assert len(await mailbox.waiting(limit=10)) == 1
        assert server.connected == 2


@pytest.mark.parametrize("tls", [Tls.IMPLICIT, Tls.REQUIRE])
async def test_tls_is_used_and_verified(tls: Tls, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with ImapServer(tls=context, has_implicit_tls=tls is Tls.IMPLICIT) as server:
        server.inbox.add(MAIL)
        words = await trouble_of(mailbox_on(server, tls=tls))
        assert "certificate of the mail server" in words
        mailbox = mailbox_on(server, tls=tls, ca_file=str(tmp_path / "ca.pem"))
        assert len(await mailbox.waiting(limit=10)) == 1
        await mailbox.close()


async def test_without_starttls_no_password_is_sent() -> None:
    async with ImapServer() as server:
        await trouble_of(mailbox_on(server, tls=Tls.REQUIRE))
        assert not [each for each in server.commands if each.startswith(("LOGIN", "AUTH"))]


# --- Mails --------------------------------------------------------------------------------------


async def test_a_mail_that_cannot_be_read_is_nothing() -> None:
    async with ImapServer(faults={"FETCH": ["no", "bad"]}) as server:
        server.inbox.add(MAIL)
        mailbox = mailbox_on(server)
        (id_,) = await mailbox.waiting(limit=10)
        assert await mailbox.fetch(id_) is None
        assert await mailbox.fetch(id_) is None
        assert await mailbox.fetch(id_) is not None


async def test_reading_marks_no_mail_as_read() -> None:
    async with ImapServer() as server:
        server.inbox.add(MAIL)
        mailbox = mailbox_on(server)
        (id_,) = await mailbox.waiting(limit=10)
        await mailbox.fetch(id_)
        assert server.inbox.mails[0].flags == set()


async def test_ids_of_a_folder_that_was_created_again_name_no_mail() -> None:
    async with ImapServer() as server:
        server.inbox.add(MAIL)
        mailbox = mailbox_on(server)
        (id_,) = await mailbox.waiting(limit=10)
        server.folders["INBOX"] = ServerFolder(validity=8)
        server.inbox.add(OTHERS)
        await mailbox.close()
        assert await mailbox.fetch(id_) is None
        assert await mailbox.put_away([id_], Filing.RECORDED) == {id_}
        assert server.inbox.contents == [OTHERS]


@pytest.mark.parametrize("capabilities", [("UIDPLUS",), ()], ids=["UIDPLUS", "plain"])
async def test_mails_that_others_marked_as_deleted_are_not_expunged(
    capabilities: tuple[str, ...],
) -> None:
    async with ImapServer(capabilities) as server:
        server.inbox.add(OTHERS, DELETED)
        server.inbox.add(MAIL)
        mailbox = mailbox_on(server)
        ids = await mailbox.waiting(limit=10)
        assert len(ids) == 1
        assert await mailbox.put_away(ids, Filing.RECORDED) == set()
        assert OTHERS in server.inbox.contents
        assert await mailbox.waiting(limit=10) == []
        assert server.folders["INBOX/Postroom-processed"].contents == [MAIL]


@pytest.mark.parametrize("filing", [Filing.UNKNOWN, Filing.IGNORED])
@pytest.mark.parametrize("takes_keywords", [True, False])
async def test_without_a_folder_only_recorded_mails_are_deleted(
    filing: Filing, takes_keywords: bool
) -> None:
    async with ImapServer(
        may_create=False, may_create_below=False, takes_keywords=takes_keywords
    ) as server:
        server.inbox.add(MAIL)
        server.inbox.add(OTHERS)
        mailbox = mailbox_on(server)
        recorded, other = await mailbox.waiting(limit=10)
        assert await mailbox.put_away([recorded], Filing.RECORDED) == set()
        stays = await mailbox.put_away([other], filing)
        assert stays == (set() if takes_keywords else {other})
        assert server.inbox.contents == [OTHERS]
        assert await mailbox.waiting(limit=10, besides=stays) == []


async def test_if_some_cannot_be_moved_the_others_are() -> None:
    async with ImapServer(faults={"MOVE": ["no", "no"]}) as server:
        for _mail in range(3):
            server.inbox.add(MAIL)
        mailbox = mailbox_on(server)
        ids = await mailbox.waiting(limit=10)
        assert await mailbox.put_away(ids, Filing.RECORDED) == {ids[0]}
        assert len(server.inbox.contents) == 1


async def test_a_copy_without_its_deletion_leaves_the_mail_to_be_read_again() -> None:
    async with ImapServer((), faults={"STORE": ["drop"]}) as server:
        server.inbox.add(MAIL)
        mailbox = mailbox_on(server)
        ids = await mailbox.waiting(limit=10)
        with pytest.raises(MailboxUnavailable):
            await mailbox.put_away(ids, Filing.RECORDED)
        assert await mailbox.waiting(limit=10) == ids


async def test_a_long_backlog_is_searched_once() -> None:
    async with ImapServer() as server:
        for _mail in range(120):
            server.inbox.add(MAIL)
        mailbox = mailbox_on(server)
        seen = [id_ for _poll in range(3) for id_ in await mailbox.waiting(limit=50)]
        assert len(set(seen)) == 120
        assert sum(each.startswith("UID SEARCH") for each in server.commands) == 1


# --- Addresses ----------------------------------------------------------------------------------


def test_an_address_has_defaults() -> None:
    config = parse_imap_url("imap://bounces%40contoso.edu:s%2Fcret@mail.contoso.edu")
    assert (config.username, config.password) == ("bounces@contoso.edu", "s/cret")
    assert (config.port, config.folder, config.tls) == (993, "INBOX", Tls.IMPLICIT)
    assert "s/cret" not in repr(config)
    other = parse_imap_url("imap://b:p@[::1]:1143/Mail/R%C3%BCck?tls=none")
    assert (other.host, other.port, other.folder, other.tls) == ("::1", 1143, "Mail/Rück", Tls.NONE)
    assert parse_imap_url("imap://b:p@mail.contoso.edu?tls=require").port == 143


@pytest.mark.parametrize(
    "url",
    [
        "imap://mail.contoso.edu",
        "imap://b:s3cret@",
        "imap://b:s3cret@mail.contoso.edu?tls=none",
        "imap://b:s3cret@mail.contoso.edu?tls=maybe",
        "imap://b:s3cret@mail.contoso.edu?starttls=yes",
        "imap://b:s3cret@mail.contoso.edu:99999",
        "imap://b:s3cret@mail.contoso.edu:0",
        "imap://b:s3cret%0D%0Ax@mail.contoso.edu",
        "imap://b:s3cret/@mail.contoso.edu",
    ],
)
def test_a_wrong_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_imap_url(url)
    assert "s3cret" not in str(refusal.value)


async def test_folders_with_other_letters_are_encoded() -> None:
    async with ImapServer() as server:
        server.folders["R&APw-ck & &AOk-".replace(" & ", " &- ")] = ServerFolder()
        assert await mailbox_on(server, folder="Rück & é").waiting(limit=1) == []
