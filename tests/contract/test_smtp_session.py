"""The SMTP transport before the first mail: reaching the server, TLS, AUTH, what it offers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
import uvloop

from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Timeouts, Tls
from postroom_bench.ports import held_port
from postroom_bench.sink import Sink, SinkOptions
from tests.letters import Letter, Witness, letters

PASSWORD = "correct horse battery"
USERS = {"lists": PASSWORD}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def server_context(authority: trustme.CA, name: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


async def outcomes_of(
    options: SinkOptions, mails: list[Letter] | None = None, **settings: object
) -> tuple[Sink, list[Outcome], Witness]:
    """Send to a fresh sink with these options and settings."""
    async with sending(options, **settings) as (sink, transport):
        witness = Witness()
        mails = mails or letters("student1@contoso.edu", "student2@contoso.edu")
        outcomes = await transport.lane().send(mails, witness)
    return sink, outcomes, witness


@asynccontextmanager
async def sending(
    options: SinkOptions, **settings: object
) -> AsyncIterator[tuple[Sink, SmtpTransport]]:
    async with Sink(replace(options, keep_commands=True, keep_contents=True)) as sink:
        given = {"host": "127.0.0.1", "port": sink.port, "tls": Tls.NONE, **settings}
        transport = SmtpTransport(SmtpConfig(**given))  # type: ignore[arg-type]
        try:
            yield sink, transport
        finally:
            await transport.close()


def assert_all_wait_for_the_relay(outcomes: list[Outcome], witness: Witness, words: str) -> None:
    assert {type(outcome) for outcome in outcomes} == {Deferred}
    for outcome in outcomes:
        assert isinstance(outcome, Deferred)
        assert outcome.scope is Scope.PROVIDER
        assert words in outcome.words
        assert PASSWORD not in outcome.words
    assert not witness.handed_over
    assert len(witness.answers) == len(outcomes)


async def test_a_server_that_cannot_be_reached_defers_all() -> None:
    witness = Witness()
    with held_port() as port:
        lane = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE)).lane()
        outcomes = await lane.send(letters("a@contoso.edu", "b@contoso.edu"), witness)
    assert_all_wait_for_the_relay(
        outcomes, witness, f"Cannot connect to the mail server 127.0.0.1:{port}: "
    )


async def test_an_empty_slice_does_not_even_connect() -> None:
    async with sending(SinkOptions()) as (sink, transport):
        assert await transport.lane().send([], Witness()) == []
        assert sink.connected == 0


@pytest.mark.parametrize("greeting", ["421 4.3.2 Come back later", "554 5.7.1 Not you"])
async def test_a_server_that_refuses_at_the_greeting_defers_all(greeting: str) -> None:
    _, outcomes, witness = await outcomes_of(SinkOptions(greeting=greeting))
    assert_all_wait_for_the_relay(outcomes, witness, greeting)


async def test_a_server_that_does_not_greet_is_not_waited_for_for_ever() -> None:
    silent = SinkOptions(delay_s=3600.0)
    _, outcomes, witness = await outcomes_of(silent, timeouts=Timeouts(greeting_s=0.02))
    assert_all_wait_for_the_relay(outcomes, witness, "did not answer for 0.02 s")


async def test_a_server_without_ehlo_is_greeted_with_helo() -> None:
    sink, outcomes, _ = await outcomes_of(SinkOptions(ehlo=False), ehlo_name="lists.contoso.edu")
    assert [type(outcome) for outcome in outcomes] == [Sent, Sent]
    assert sink.commands[:2] == [b"EHLO lists.contoso.edu", b"HELO lists.contoso.edu"]


async def test_without_a_name_the_ehlo_is_still_a_name_or_an_address_in_brackets() -> None:
    sink, _, _ = await outcomes_of(SinkOptions())
    name = sink.commands[0].removeprefix(b"EHLO ")
    assert b"." in name
    assert b" " not in name


@pytest.mark.parametrize("chunking", [True, False])
@pytest.mark.parametrize("run_on_uvloop", [True, False])
@pytest.mark.parametrize("tls", [Tls.REQUIRE, Tls.IMPLICIT])
def test_mail_goes_over_tls_both_ways(
    authority: trustme.CA, ca_file: str, tls: Tls, run_on_uvloop: bool, chunking: bool
) -> None:
    options = SinkOptions(
        tls=server_context(authority), implicit_tls=tls is Tls.IMPLICIT, chunking=chunking
    )
    body = b"A long line of a long mail.\r\n" * 20_000
    mails = [Letter(number, f"student{number}@contoso.edu", body=body) for number in range(3)]

    sending = outcomes_of(options, mails, tls=tls, ca_file=ca_file)
    sink, outcomes, _ = uvloop.run(sending) if run_on_uvloop else asyncio.run(sending)
    assert [type(outcome) for outcome in outcomes] == [Sent] * 3
    assert [mail.content for mail in sink.mails] == [mail.source(eight_bit=True) for mail in mails]
    assert (b"STARTTLS" in sink.commands) == (tls is Tls.REQUIRE)


@pytest.mark.parametrize("tls", [Tls.REQUIRE, Tls.IMPLICIT])
@pytest.mark.parametrize("fault", ["unknown authority", "other name"])
async def test_a_wrong_certificate_is_refused_before_anything_is_sent(
    authority: trustme.CA, ca_file: str, tls: Tls, fault: str
) -> None:
    if fault == "unknown authority":
        context = server_context(trustme.CA())
    else:
        context = server_context(authority, "relay.contoso.edu")
    options = SinkOptions(tls=context, implicit_tls=tls is Tls.IMPLICIT, users=USERS)
    sink, outcomes, witness = await outcomes_of(
        options, tls=tls, ca_file=ca_file, username="lists", password=PASSWORD
    )
    assert_all_wait_for_the_relay(outcomes, witness, "is not trusted: ")
    assert not [command for command in sink.commands if command.startswith((b"AUTH", b"MAIL"))]


async def test_where_tls_is_required_a_server_without_it_gets_nothing() -> None:
    sink, outcomes, witness = await outcomes_of(
        SinkOptions(users=USERS), tls=Tls.REQUIRE, username="lists", password=PASSWORD
    )
    assert_all_wait_for_the_relay(outcomes, witness, "does not offer STARTTLS")
    assert len(sink.commands) == 1


def test_an_invalid_ca_file_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"CA file .* cannot be used"):
        SmtpTransport(SmtpConfig("127.0.0.1", 25, Tls.REQUIRE, ca_file=str(tmp_path / "none.pem")))


@pytest.mark.parametrize("mechanisms", ["PLAIN LOGIN", "LOGIN", "PLAIN"])
async def test_the_lane_logs_in(mechanisms: str) -> None:
    options = SinkOptions(users=USERS, mechanisms=mechanisms)
    sink, outcomes, _ = await outcomes_of(options, username="lists", password=PASSWORD)
    assert [type(outcome) for outcome in outcomes] == [Sent, Sent]
    assert b"PLAIN" in sink.commands[1] if "PLAIN" in mechanisms else b"LOGIN" in sink.commands[1]


async def test_the_lane_logs_in_under_tls(authority: trustme.CA, ca_file: str) -> None:
    options = SinkOptions(users=USERS, tls=server_context(authority))
    sink, outcomes, _ = await outcomes_of(
        options, tls=Tls.REQUIRE, ca_file=ca_file, username="lists", password=PASSWORD
    )
    assert [type(outcome) for outcome in outcomes] == [Sent, Sent]
    assert sink.commands[1] == b"STARTTLS"


@pytest.mark.parametrize("mechanisms", ["PLAIN", "LOGIN"])
async def test_a_refused_login_defers_all(mechanisms: str) -> None:
    options = SinkOptions(users={"lists": "another"}, mechanisms=mechanisms)
    _, outcomes, witness = await outcomes_of(options, username="lists", password=PASSWORD)
    assert_all_wait_for_the_relay(outcomes, witness, "rejects the login: 535 5.7.8")


async def test_a_server_that_wants_a_login_we_do_not_have_defers_all() -> None:
    _, outcomes, witness = await outcomes_of(SinkOptions(users=USERS))
    assert_all_wait_for_the_relay(outcomes, witness, "530 5.7.0 Authentication required")


async def test_a_server_without_a_login_we_know_defers_all() -> None:
    options = SinkOptions(users=USERS, mechanisms="GSSAPI")
    _, outcomes, witness = await outcomes_of(options, username="lists", password=PASSWORD)
    assert_all_wait_for_the_relay(outcomes, witness, "offers neither AUTH PLAIN nor AUTH LOGIN")


ENGLISH, GERMAN = b"Gruesse\r\n", "Grüße\r\n".encode()


@pytest.mark.parametrize(
    ("eight_bit", "body", "declared"),
    [(True, GERMAN, b" BODY=8BITMIME"), (False, ENGLISH, b"")],
)
async def test_eight_bits_are_used_and_declared_only_where_offered(
    eight_bit: bool, body: bytes, declared: bytes
) -> None:
    mail = Letter(1, "student@contoso.edu", body=ENGLISH, body_eight_bit=GERMAN)
    sink, outcomes, _ = await outcomes_of(SinkOptions(eight_bit=eight_bit), [mail])
    assert [type(outcome) for outcome in outcomes] == [Sent]
    assert sink.mails[0].content.endswith(body)
    assert sink.commands[1] == b"MAIL FROM:<bounce@lists.contoso.edu>" + declared


async def test_the_size_is_declared_and_a_mail_over_the_limit_stays_here() -> None:
    mails = letters("student@contoso.edu")
    size = len(mails[0].source(eight_bit=True))
    mails.append(Letter(11, "other@contoso.edu", body=b"long\r\n" * 100))
    sink, outcomes, witness = await outcomes_of(SinkOptions(size_max=size), mails)
    assert isinstance(outcomes[0], Sent)
    assert isinstance(outcomes[1], Rejected)
    assert not outcomes[1].address_fault
    assert f"the server accepts at most {size}" in outcomes[1].words
    assert b"SIZE=%d" % size in sink.commands[1]
    assert witness.handed_over == [10]


async def test_an_address_beyond_ascii_needs_a_server_that_offers_smtputf8() -> None:
    mail = Letter(1, "jürgen@contoso.edu")
    sink, outcomes, _ = await outcomes_of(SinkOptions(utf8=True), [mail])
    assert [type(outcome) for outcome in outcomes] == [Sent]
    assert sink.mails[0].recipient == "jürgen@contoso.edu"
    assert sink.commands[1].endswith(b" SMTPUTF8")

    sink, outcomes, witness = await outcomes_of(SinkOptions(), [mail])
    assert isinstance(outcomes[0], Rejected)
    assert not outcomes[0].address_fault
    assert "SMTPUTF8" in outcomes[0].words
    assert not sink.mails
    assert not witness.handed_over


@pytest.mark.parametrize("chunking", [True, False])
@pytest.mark.parametrize("evil", ["\r\n", "\n", "\r", "\0", " ", "<", ">", "\x85", "\u2028", "\t"])
async def test_an_address_can_never_become_a_command(evil: str, chunking: bool) -> None:
    bad = f"a@contoso.edu{evil}RCPT TO:victim@contoso.edu"
    mails = [Letter(1, bad), Letter(2, "b@contoso.edu", sender=bad), Letter(3, "c@contoso.edu")]
    sink, outcomes, witness = await outcomes_of(SinkOptions(chunking=chunking, utf8=True), mails)
    assert [type(outcome) for outcome in outcomes] == [Rejected, Rejected, Sent]
    assert witness.handed_over == [3]
    assert not any(b"victim" in command for command in sink.commands)
