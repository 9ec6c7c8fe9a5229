"""The SMTP transport against servers that lie, babble or hang up."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from postroom.domain.outcome import Deferred, Outcome, Scope, Sent, Unknown
from postroom.transport.smtp.protocol import LINE_BYTES_MAX, REPLY_LINES_MAX
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Timeouts, Tls
from tests.letters import Letter, Witness, letters

GREETING = b"220 hostile\r\n"
PLAIN = b"250 hostile\r\n"
PIPELINING = b"250-hostile\r\n250 PIPELINING\r\n"
CHUNKING = b"250-hostile\r\n250-PIPELINING\r\n250 CHUNKING\r\n"
OK = b"250 ok\r\n"
GO_ON = b"354 go on\r\n"

Dialogue = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(dialogue: Dialogue) -> AsyncIterator[int]:
    """A server that holds this dialogue with every client; gives its port."""
    open_dialogues: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_dialogues.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await dialogue(reader, writer)
        writer.transport.abort()
        open_dialogues.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in list(open_dialogues):
            task.cancel()
        await asyncio.gather(*open_dialogues)


def says(*replies: bytes, then: Dialogue | None = None) -> Dialogue:
    """Greets, answers one line of the client with each reply, and goes on with `then`."""

    async def dialogue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(replies[0])
        for reply in replies[1:]:
            await reader.readuntil(b"\n")
            writer.write(reply)
        await (then or stays)(reader, writer)

    return dialogue


async def stays(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Listens until the client takes its leave."""
    await writer.drain()
    while (data := await reader.read(65536)) and b"QUIT" not in data:
        pass


async def sent_to(
    dialogue: Dialogue, *recipients: str, **settings: object
) -> tuple[list[Outcome], Witness]:
    async with server(dialogue) as port:
        given = {"host": "127.0.0.1", "port": port, "tls": Tls.NONE, **settings}
        transport = SmtpTransport(SmtpConfig(**given))  # type: ignore[arg-type]
        witness = Witness()
        mails = letters(*(recipients or ("student@contoso.edu",)))
        outcomes = await transport.lane().send(mails, witness)
        await transport.close()
    assert len(witness.answers) == len(outcomes)
    return outcomes, witness


def assert_deferred(outcome: Outcome, words: str) -> None:
    assert isinstance(outcome, Deferred)
    assert outcome.scope is Scope.PROVIDER
    assert words in outcome.words


@pytest.mark.parametrize(
    ("start", "flood"),
    [(b"220 ", b"x" * 4096), (b"", b"220-babble\r\n" * 300), (b"", b"\r\n" * 2048)],
    ids=["a line", "lines", "empty lines"],
)
async def test_a_greeting_without_end_is_cut_off(start: bytes, flood: bytes) -> None:
    said = 0

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal said
        writer.write(start)
        while True:
            writer.write(flood)
            said += len(flood)
            await writer.drain()

    outcomes, witness = await sent_to(babble)
    assert_deferred(outcomes[0], "the server")
    assert not witness.handed_over
    assert said < 64 * 1024 * 1024


@pytest.mark.parametrize("offers", [PLAIN, PIPELINING])
async def test_a_reply_without_end_after_the_hand_over_leaves_doubt(offers: bytes) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n.\r\n")
        while True:
            writer.write(b"250-babble\r\n" * 300)
            await writer.drain()

    outcomes, witness = await sent_to(says(GREETING, offers, OK, OK, GO_ON, then=babble))
    assert outcomes == [Unknown("handed over, then the server sent an endless reply")]
    assert witness.handed_over == [10]


async def test_long_replies_within_the_limits_are_understood() -> None:
    line = b"250-" + b"x" * (LINE_BYTES_MAX - 10) + b"\r\n"
    long = line * (REPLY_LINES_MAX - 1) + OK
    outcomes, _ = await sent_to(says(GREETING, long, long, long, GO_ON, then=takes_content(long)))
    assert [type(outcome) for outcome in outcomes] == [Sent]


def takes_content(*replies: bytes) -> Dialogue:
    async def dialogue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in replies:
            await reader.readuntil(b"\r\n.\r\n")
            writer.write(reply)
        await stays(reader, writer)

    return dialogue


@pytest.mark.parametrize(
    "words",
    [b"HTTP/1.1 400 Bad Request\r\n", b"\xff\xfe\x00\r\n", b"999 what\r\n", b"2 5\r\n", b"25\r\n"],
)
async def test_a_server_that_does_not_speak_smtp_gets_nothing(words: bytes) -> None:
    outcomes, witness = await sent_to(says(words))
    assert_deferred(outcomes[0], "does not speak SMTP")
    assert not witness.handed_over


async def test_replies_in_the_smallest_pieces_are_understood() -> None:
    async def crumbs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply, end in [(OK, b"\n"), (OK, b"\n"), (GO_ON, b"\n"), (OK, b"\r\n.\r\n")]:
            await reader.readuntil(end)
            for octet in reply:
                writer.write(bytes([octet]))
                await writer.drain()
                await asyncio.sleep(0)
        await stays(reader, writer)

    outcomes, _ = await sent_to(says(GREETING, PLAIN, then=crumbs))
    assert outcomes == [Sent("250 ok")]


async def test_several_replies_in_one_piece_are_understood() -> None:
    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"DATA\r\n")
        writer.write(OK + OK + GO_ON)
        await reader.readuntil(b"\r\n.\r\n")
        writer.write(OK + OK + b"550 5.1.1 no\r\n" + b"554 5.5.1 no\r\n")
        await stays(reader, writer)

    recipients = ("a@contoso.edu", "b@contoso.edu")
    outcomes, _ = await sent_to(says(GREETING, PIPELINING, then=at_once), *recipients)
    assert [outcome.words for outcome in outcomes] == ["250 ok", "550 5.1.1 no"]


async def test_words_slipped_in_before_tls_are_not_believed() -> None:
    offers = b"250-hostile\r\n250 STARTTLS\r\n"
    for extra in (b"250 injected\r\n", b"250 inj"):
        outcomes, witness = await sent_to(
            says(GREETING, offers, b"220 go ahead\r\n" + extra), tls=Tls.REQUIRE
        )
        assert isinstance(outcomes[0], Deferred)
        assert not witness.handed_over


async def test_a_handshake_that_is_cut_off_is_not_waited_for_for_ever() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    offers = b"250-hostile\r\n250 STARTTLS\r\n"
    outcomes, _ = await sent_to(
        says(GREETING, offers, b"220 go ahead\r\n", then=cut),
        tls=Tls.REQUIRE,
        timeouts=Timeouts(connect_s=2.0),
    )
    assert_deferred(outcomes[0], "The TLS handshake")


async def test_a_password_that_the_server_repeats_does_not_come_back() -> None:
    offers = b"250-hostile\r\n250 AUTH LOGIN\r\n"
    for secret in (b"hush", base64.b64encode(b"hush")):
        refusal = b"535 5.7.8 not with " + secret + b"\r\n"
        outcomes, _ = await sent_to(
            says(GREETING, offers, b"334 \r\n", b"334 \r\n", refusal),
            username="lists",
            password="hush",
        )
        assert_deferred(outcomes[0], "rejects the login: 535")
        assert secret.decode() not in outcomes[0].words


async def test_a_user_that_the_server_repeats_does_not_come_back() -> None:
    offers = b"250-hostile\r\n250 AUTH LOGIN\r\n"
    refusal = b"535 5.7.8 no lists for lists@contoso.edu, listless one\r\n"
    outcomes, _ = await sent_to(
        says(GREETING, offers, b"334 \r\n", b"334 \r\n", refusal),
        username="lists",
        password="hush",
    )
    assert_deferred(outcomes[0], "rejects the login: 535 5.7.8 no … for …, listless one")


@pytest.mark.parametrize(
    "replies", [[OK, OK, OK], [GO_ON], [OK, GO_ON]], ids=["DATA", "MAIL", "RCPT"]
)
async def test_a_server_out_of_step_before_the_hand_over_gets_no_content(
    replies: list[bytes],
) -> None:
    outcomes, witness = await sent_to(says(GREETING, PLAIN, *replies))
    assert_deferred(outcomes[0], "out of step")
    assert not witness.handed_over


async def test_354_to_a_content_is_not_taken_for_sent() -> None:
    outcomes, _ = await sent_to(says(GREETING, PLAIN, OK, OK, GO_ON, then=takes_content(GO_ON)))
    assert isinstance(outcomes[0], Unknown)


@pytest.mark.parametrize("step", range(4))
async def test_354_in_a_window_leaves_doubt(step: int) -> None:
    replies = [OK] * 4
    replies[step] = GO_ON

    async def out_of_step(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"Subject")
        writer.write(b"".join(replies))
        await stays(reader, writer)

    outcomes, _ = await sent_to(says(GREETING, CHUNKING, then=out_of_step))
    assert isinstance(outcomes[0], Unknown)
    assert "out of step" in outcomes[0].words


async def test_a_server_that_answers_more_than_was_asked_is_not_used_again() -> None:
    clients = 0

    async def too_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal clients
        clients += 1
        await reader.readuntil(b"Subject")
        writer.write(OK * 5)
        await stays(reader, writer)

    async with server(says(GREETING, CHUNKING, then=too_much)) as port:
        transport = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE))
        lane = transport.lane()
        for _ in range(2):
            assert await lane.send(letters("a@contoso.edu"), Witness()) == [Sent("250 ok")]
        await transport.close()
    assert clients == 2


async def test_the_last_words_of_a_server_while_idle_are_heard() -> None:
    clients = 0
    spoke = asyncio.Event()

    async def times_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal clients
        clients += 1
        await reader.readuntil(b"\r\n.\r\n")
        writer.write(OK)
        await leave.wait()
        writer.write(b"421 4.4.2 idle for too long\r\n")
        await writer.drain()
        spoke.set()
        await stays(reader, writer)

    leave = asyncio.Event()
    async with server(says(GREETING, PLAIN, OK, OK, GO_ON, then=times_out)) as port:
        transport = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE))
        lane = transport.lane()
        assert await lane.send(letters("a@contoso.edu"), Witness()) == [Sent("250 ok")]
        leave.set()
        await spoke.wait()
        assert await lane.send(letters("b@contoso.edu"), Witness()) == [Sent("250 ok")]
        await transport.close()
    assert clients == 2


async def test_a_line_that_was_idle_for_long_is_asked_before_mail_goes_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postroom.transport.smtp.transport.IDLE_S_MAX", 0.0)
    asked: list[bytes] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n.\r\n")
        writer.write(OK)
        asked.append(await reader.readuntil(b"\n"))  # and never answers

    async with server(says(GREETING, PLAIN, OK, OK, GO_ON, then=once)) as port:
        transport = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE))
        lane = transport.lane()
        for _ in range(2):
            witness = Witness()
            assert await lane.send(letters("a@contoso.edu"), witness) == [Sent("250 ok")]
        await transport.close()
    assert asked[0] == b"RSET\r\n"


async def never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_a_silent_server_is_not_waited_for_for_ever() -> None:
    patience = Timeouts(command_s=0.05)
    outcomes, _ = await sent_to(says(GREETING, PLAIN, then=never_reads), timeouts=patience)
    assert_deferred(outcomes[0], "did not answer for 0.05 s")


async def test_a_server_that_takes_no_data_is_not_waited_for_for_ever() -> None:
    patience = Timeouts(block_s=0.05)
    async with server(says(GREETING, CHUNKING, then=never_reads)) as port:
        transport = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE, timeouts=patience))
        mails = [Letter(1, "a@contoso.edu", body=b"long\r\n" * 2_000_000)]
        outcomes = await transport.lane().send(mails, Witness())
        await transport.close()
    assert outcomes == [Unknown("handed over, then the server took no data for 0.05 s")]


async def test_no_more_mails_are_piled_up_for_a_server_that_does_not_read() -> None:
    async def answers_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"LAST\r\n")
        writer.write(OK * 3)
        await never_reads(reader, writer)

    patience = Timeouts(block_s=0.05)
    async with server(says(GREETING, CHUNKING, then=answers_only)) as port:
        transport = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE, timeouts=patience))
        body, witness = b"long\r\n" * 2_000_000, Witness()
        mails = [Letter(number, f"s{number}@contoso.edu", body=body) for number in range(8)]
        outcomes = await transport.lane().send(mails, witness)
        await transport.close()
    assert witness.handed_over == [0]
    assert [type(outcome) for outcome in outcomes] == [Unknown] + [Deferred] * 7


async def test_a_close_does_not_wait_for_a_server_that_ignores_quit() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n.\r\n")
        writer.write(OK)
        await never_reads(reader, writer)

    dialogue = says(GREETING, PLAIN, OK, OK, GO_ON, then=deaf)
    outcomes, _ = await sent_to(dialogue, timeouts=Timeouts(quit_s=0.02))
    assert outcomes == [Sent("250 ok")]
