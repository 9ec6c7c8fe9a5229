"""Servers that answer 421, and servers that contradict themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown
from postroom.transport.smtp import protocol
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Tls
from tests.contract.test_smtp_hostile import (
    CHUNKING,
    GREETING,
    OK,
    PIPELINING,
    PLAIN,
    sent_to,
    server,
)
from tests.letters import Witness, letters, many_letters

CLOSING = b"421 4.7.0 enough for now\r\n"
PEOPLE = [f"student{number}@contoso.edu" for number in range(20)]

# What the server says to a command of a mail; None: what everybody says.
Script = Callable[["Server", str, str], bytes | None]


class Server:
    """A server that speaks BDAT and DATA, takes mails, and asks a script first."""

    def __init__(self, script: Script, offers: bytes = CHUNKING, *, hangs_up: bool = True) -> None:
        self._script = script
        self._offers = offers
        self._hangs_up = hangs_up  # after a 421
        self.connections = 0
        self.mails = 0  # that were begun, in all connections
        self.taken: list[str] = []
        self.pipelined: list[int] = []  # mails seen in each connection

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.pipelined.append(0)
        recipient = ""
        writer.write(GREETING)
        while line := await reader.readline():
            verb = line.split()[0].upper().decode()
            if verb == "QUIT":
                return
            if verb == "MAIL":
                self.mails += 1
                self.pipelined[-1] += 1
                recipient = ""
            if verb == "RCPT":
                recipient = line[line.index(b"<") + 1 : line.index(b">")].decode()
            if verb == "BDAT":
                await reader.readexactly(int(line.split()[1]))
            reply = self._script(self, verb, recipient) or self._usual(verb)
            writer.write(reply)
            if verb == "DATA" and reply.startswith(b"354"):
                await reader.readuntil(b"\r\n.\r\n")
                verb, reply = "DOT", self._script(self, "DOT", recipient) or OK
                writer.write(reply)
            if verb in ("BDAT", "DOT") and reply.startswith(b"250"):
                self.taken.append(recipient)
            if reply.startswith(b"421") and self._hangs_up:
                await writer.drain()
                return

    def _usual(self, verb: str) -> bytes:
        return {"EHLO": self._offers, "DATA": b"354 go on\r\n"}.get(verb, OK)


def always(verb: str, reply: bytes) -> Script:
    return lambda _, said, __: reply if said == verb else None


def at_mail(number: int, verb: str, reply: bytes) -> Script:
    return lambda srv, said, _: reply if (said, srv.mails) == (verb, number) else None


def kinds(outcomes: list[Outcome]) -> set[type[Outcome]]:
    return {type(outcome) for outcome in outcomes}


@pytest.mark.parametrize("offers", [CHUNKING, PIPELINING, PLAIN], ids=["bdat", "data", "turns"])
@pytest.mark.parametrize("verb", ["RSET", "MAIL", "RCPT", "DATA"])
async def test_who_stands_behind_a_421_is_neither_in_doubt_nor_tried(
    offers: bytes, verb: str
) -> None:
    outcomes, _ = await sent_to(Server(always(verb, CLOSING), offers), *PEOPLE)
    if (verb, offers) in (("DATA", CHUNKING), ("RSET", PIPELINING), ("RSET", PLAIN)):
        assert kinds(outcomes) == {Sent}  # a command that this dialogue does not need
        return
    for outcome in outcomes:
        assert isinstance(outcome, Deferred)
        assert (outcome.scope, outcome.reached) == (Scope.PROVIDER, False)
        assert "421 4.7.0 enough for now" in outcome.words


@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "BDAT"])
async def test_after_one_421_everybody_gets_their_mail_once(verb: str) -> None:
    friendly = Server(at_mail(5, verb, CLOSING))
    outcomes, _ = await sent_to(friendly, *PEOPLE)
    if verb == "BDAT":  # the answer to this very mail: its own attempt
        assert outcomes[4] == Deferred("421 4.7.0 enough for now", Scope.PROVIDER)
        outcomes[4:5] = []
    assert kinds(outcomes) == {Sent}
    assert len(friendly.taken) == len(set(friendly.taken)) == len(outcomes)
    assert friendly.connections <= 3


async def test_after_a_fruitless_connection_one_mail_tries_the_next() -> None:
    """Then the number on the wire grows again, as the server answers."""
    grumpy = Server(always("MAIL", CLOSING))
    async with server(grumpy) as port:
        transport = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE, window=8))
        lane = transport.lane()
        await lane.send(many_letters(20), Witness())
        assert lane._window.mails == 1
        grumpy._script = always("", OK)
        for _ in range(5):
            assert kinds(await lane.send(many_letters(20), Witness())) == {Sent}
        assert lane._window.mails == 8
        await transport.close()
    assert grumpy.connections == 3


async def test_a_connection_that_just_breaks_leaves_one_window_in_doubt_and_then_one_mail() -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING)
        await reader.readline()
        writer.write(CHUNKING)
        await reader.readuntil(b"BDAT")

    outcomes, _ = await sent_to(breaks, *PEOPLE, window=8)
    doubts = [outcome for outcome in outcomes if isinstance(outcome, Unknown)]
    assert len(doubts) == 8 + 1


async def test_a_server_that_says_421_and_stays_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "CLOSING_S_MAX", 0.05)

    async def stays_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING)
        await reader.readline()
        writer.write(CHUNKING)
        await reader.readuntil(b"MAIL")
        writer.write(OK + CLOSING)
        while await reader.read(65536):
            pass

    outcomes, _ = await sent_to(stays_on, *PEOPLE)
    assert kinds(outcomes) == {Deferred}


@pytest.mark.parametrize("verb", ["RSET", "MAIL", "RCPT"])
async def test_what_a_server_takes_behind_a_421_is_in_doubt(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CLOSING_S_MAX", 0.5)
    goes_on = Server(at_mail(3, verb, CLOSING), hangs_up=False)
    outcomes, _ = await sent_to(goes_on, *PEOPLE)
    certain = sum(isinstance(outcome, Sent) for outcome in outcomes)
    doubts = [outcome for outcome in outcomes if isinstance(outcome, Unknown)]
    assert certain + len(doubts) == len(PEOPLE) == len(set(goes_on.taken))
    assert doubts
    assert len(goes_on.taken) == len(PEOPLE)  # nobody twice


@pytest.mark.parametrize("verb", ["MAIL", "RCPT"])
@pytest.mark.parametrize("refusal", [b"451 4.3.0 later\r\n", b"550 5.7.1 no\r\n"])
async def test_a_mail_that_is_refused_and_then_taken_is_in_doubt(verb: str, refusal: bytes) -> None:
    outcomes, witness = await sent_to_twofaced(at_mail(2, verb, refusal))
    assert [type(outcome) for outcome in outcomes] == [Sent, Unknown, Sent]
    assert "refused, and then accepted: 250" in outcomes[1].words
    assert dict(witness.answers)[11] == outcomes[1]  # the last word of the journal


async def test_a_mail_that_is_refused_and_stays_refused_is_in_no_doubt() -> None:
    def refuses(srv: Server, verb: str, _: str) -> bytes | None:
        says_no = srv.mails == 2 and verb in ("RCPT", "BDAT")
        return b"550 5.1.1 no such user\r\n" if says_no else None

    outcomes, _ = await sent_to_twofaced(refuses)
    assert [type(outcome) for outcome in outcomes] == [Sent, Rejected, Sent]


async def sent_to_twofaced(script: Script) -> tuple[list[Outcome], Witness]:
    async with server(Server(script)) as port:
        transport = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE))
        witness = Witness()
        outcomes = await transport.lane().send(many_letters(3), witness)
        await transport.close()
    return outcomes, witness


async def test_a_recipient_that_makes_the_server_close_holds_up_nobody() -> None:
    def closes(srv: Server, verb: str, recipient: str) -> bytes | None:
        return CLOSING if verb == "RCPT" and recipient == PEOPLE[3] else None

    async with server(Server(closes)) as port:
        transport = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE, window=8))
        lane = transport.lane()
        outcomes = await lane.send(letters(*PEOPLE), Witness())
        again = await lane.send(letters(PEOPLE[3]), Witness())
        await transport.close()
    poison = outcomes.pop(3)
    assert kinds(outcomes) == {Sent}
    for outcome in (poison, *again):  # its own attempt: it waits longer and longer, and has an end
        assert isinstance(outcome, Deferred)
        assert (outcome.scope, outcome.reached) == (Scope.ADDRESS, True)
