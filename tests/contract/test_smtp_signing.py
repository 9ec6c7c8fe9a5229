"""What the SMTP transport signs, a receiver verifies: a thousand emails in every server shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.domain.address import parse_address, parse_mailbox
from postroom.domain.outcome import Outcome, Rejected, Sent, Untried
from postroom.flow.render import RenderedMail, SharedParts, Site
from postroom.mail.dkim import DkimSigner
from postroom.mail.dkim_keys import Algorithm, create_key
from postroom.mail.mime import MailParts, compile_mail
from postroom.records.names import STORAGE_NAMES
from postroom.settings import load
from postroom.storage.memory import MemoryStorage
from postroom.transport.port import OutgoingMail
from postroom.transport.smtp.signing import SliceSigner
from postroom.transport.smtp.transport import SmtpConfig, SmtpLane, SmtpTransport, Tls
from postroom.wiring.transports import transport_of
from postroom_bench.sink import Sink, SinkOptions
from tests.clock import MovableClock
from tests.dkim_keys import rsa_key, verifies
from tests.letters import Letter, Witness

KEY = rsa_key()
SLICE = 99
SHAPES = {
    "chunking": SinkOptions(chunking=True, utf8=True, keep_contents=True, keep_commands=True),
    "pipelining": SinkOptions(utf8=True, keep_contents=True, keep_commands=True),
    "neither": SinkOptions(pipelining=False, keep_contents=True, keep_commands=True),
}
in_every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())

TEXT = """\
Guten Tag {{ name }},

.this line begins with a dot, and the next one is only a dot
.
   an indented\tline  with   spaces at its end \t
Ihre Vorlesung „{{ course }}“ ist in Raum 7. 講義は7号室です。

"""
HTML = "<table>\n    <tr>\n\t<td>Hallo {{ name }}: {{ course }}</td>\n    </tr>\n.\n</table>\n"


def newsletters(count: int, sender: str = "news@contoso.edu") -> list[RenderedMail]:
    compiled = compile_mail(
        MailParts(
            sender=parse_mailbox(f"Fakultät, Geschichte <{sender}>"),
            subject="Vorlesungen für {{ name }} in this week and in the next one: „{{ course }}“",
            html=HTML,
            text=TEXT,
            list_id=("News", "news.contoso.edu"),
            feedback_id="1:news:list:postroom",
        )
    )
    names = ["Ada", "Łukasz  Ö.", "<b>&", "李", "\r\n.\r\nx: y", "", " . ", "x" * 200]
    shared = SharedParts(
        compiled,
        parse_address("news@contoso.edu"),
        Site("https://lists.contoso.edu", "a secret"),
        "Wed, 18 Nov 2026 00:00:00 +0000",
        "@contoso.edu>",
    )
    return [
        RenderedMail(
            number,
            str(number),
            parse_address(f"student{number}@contoso.edu"),
            {"name": names[number % len(names)], "course": f"{number}.  Kurs"},
            f"https://lists.contoso.edu/u/news/{number}",
            shared,
        )
        for number in range(count)
    ]


async def send(
    sink: Sink, mails: Sequence[OutgoingMail], witness: Witness, **settings: int
) -> list[Outcome]:
    config = SmtpConfig("127.0.0.1", sink.port, Tls.NONE, **settings)  # type: ignore[arg-type]
    transport = SmtpTransport(config, DkimSigner([KEY]).sign)
    outcomes: list[Outcome] = []
    try:
        lane = transport.lane()
        for at in range(0, len(mails), SLICE):
            outcomes += await lane.send(mails[at : at + SLICE], witness)
    finally:
        await transport.close()
    return outcomes


@pytest.mark.slow
@in_every_shape
async def test_a_receiver_verifies_every_one_of_a_thousand_emails(shape: SinkOptions) -> None:
    async with Sink(shape) as sink:
        outcomes = await send(sink, newsletters(1000), Witness(), mails_per_connection_max=150)
    assert all(isinstance(outcome, Sent) for outcome in outcomes)
    assert len({mail.recipient for mail in sink.mails}) == len(sink.mails) == 1000
    bad = [mail.recipient for mail in sink.mails if not verifies(mail.content, KEY)]
    assert bad == []


@in_every_shape
async def test_signed_emails_are_seven_bit_so_that_no_server_recodes_them(
    shape: SinkOptions,
) -> None:
    async with Sink(shape) as sink:
        await send(sink, newsletters(3), Witness())
    assert all(mail.content.isascii() for mail in sink.mails)
    assert not any(b"8BITMIME" in command for command in sink.commands)


async def test_an_email_of_another_domain_is_sent_unsigned() -> None:
    async with Sink(SHAPES["chunking"]) as sink:
        [mail] = newsletters(1, "news@fabrikam.com")
        assert [type(each) for each in await send(sink, [mail], Witness())] == [Sent]
    assert sink.mails[0].content == mail.spliced(eight_bit=False).source


@in_every_shape
async def test_a_mail_that_must_be_sent_again_is_signed_again(shape: SinkOptions) -> None:
    """The server answers 421 after ten mails, and again, and again."""
    mails = newsletters(60)
    async with Sink(replace(shape, mails_per_connection_max=10)) as sink:
        outcomes = await send(sink, mails, Witness())
    assert all(isinstance(outcome, Sent) for outcome in outcomes)
    assert len(sink.mails) == 60
    assert all(verifies(mail.content, KEY) for mail in sink.mails)


@in_every_shape
async def test_large_mails_are_signed_a_few_at_a_time(shape: SinkOptions) -> None:
    signer = DkimSigner([KEY])
    ahead: list[int] = []  # signed and not yet sent, at each signature
    async with Sink(shape) as sink:

        def sign(source: bytes, tail: bytes = b"") -> bytes:
            ahead.append(len(ahead) + 1 - len(sink.taken))
            return signer.sign(source)

        few = SliceSigner(sign, bytes_max=6000)
        lane = SmtpLane(SmtpConfig("127.0.0.1", sink.port, Tls.NONE), None, few)
        outcomes = await lane.send(newsletters(20), Witness())
        await lane.close()
        few.close()
    assert all(isinstance(outcome, Sent) for outcome in outcomes)
    assert max(ahead) < 5
    assert len(sink.mails) == len(ahead) == 20
    assert all(verifies(mail.content, KEY) for mail in sink.mails)


@in_every_shape
async def test_refused_and_untried_mails_have_their_outcomes(shape: SinkOptions) -> None:
    """A mail that no envelope allows is not sent; after a stop, the rest is untried."""
    mails: list[OutgoingMail] = [*newsletters(4)]
    mails.insert(1, Letter(50, "a b@contoso.edu"))
    mails.insert(0, Letter(51, "<>@contoso.edu"))
    witness = Witness(leave=2)
    async with Sink(shape) as sink:
        outcomes = await send(sink, mails, witness, window=1)  # so that each mail is a write
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Rejected, Sent, Rejected, Sent, Untried, Untried]
    assert len(sink.mails) == 2


async def test_the_settings_make_a_transport_that_signs(tmp_path: Path) -> None:
    key = create_key(tmp_path / "s2.pem", "contoso.edu", "s2", Algorithm.RSA)
    clock = MovableClock()
    async with Sink(SHAPES["chunking"]) as sink:
        environ = {
            "POSTROOM_TRANSPORT": f"smtp://127.0.0.1:{sink.port}",
            "POSTROOM_DKIM_KEYS": f"contoso.edu:s2:{tmp_path}/s2.pem",
        }
        entry = transport_of(load(environ, tmp_path / "none.toml"))
        transport = entry.open(MemoryStorage(clock, STORAGE_NAMES), clock)
        await transport.lane().send(newsletters(2), Witness())
        await transport.close()
    assert [verifies(mail.content, key) for mail in sink.mails] == [True, True]
