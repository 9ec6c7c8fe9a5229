"""Attachments through every transport: all of them arrive, and nobody copies them for each mail."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.address import parse_address
from postroom.domain.outcome import Outcome, Sent, Untried
from postroom.mail.dkim import DkimSigner
from postroom.mail.mime import CompiledMail, compile_mail
from postroom.mail.rendition import SplicedMail
from postroom.records import outbox
from postroom.transport.smtp.signing import Sign
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Tls
from postroom_bench.sink import Sink, SinkOptions
from tests.attached import SMALL, Files, attachments_in, encoded
from tests.clock import MovableClock
from tests.contract.transports import (
    TRANSPORTS,
    ContractLetter,
    FolderHarness,
    Harness,
    OutboxHarness,
    ProviderHarness,
    SmtpHarness,
    deliver,
)
from tests.dkim_keys import rsa_key, verifies
from tests.letters import COMPILED, Witness

KEY = rsa_key()
LARGE = bytes(range(256)) * 4096  # encoded it is written piece by piece
SHAPES = {
    "chunking": SinkOptions(chunking=True, keep_contents=True),
    "pipelining": SinkOptions(keep_contents=True),
    "neither": SinkOptions(pipelining=False, keep_contents=True),
}
in_every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


@dataclass(frozen=True)
class LetterWithFiles(ContractLetter):
    """With attachments, and as a mail that all its parts can be compared with."""

    whole: CompiledMail = COMPILED

    @property
    def compiled(self) -> CompiledMail:
        return self.whole

    def spliced(self, *, eight_bit: bool) -> SplicedMail:
        return self.whole.splice(
            parse_address(self.recipient),
            self.merge_values,
            message_id=self.message_id,
            date="Wed, 18 Nov 2026 00:00:00 +0000",
            unsubscribe_url=self.merge_values["unsubscribe_url"],
            eight_bit=eight_bit,
        )


def letters_with(files: Files, count: int) -> list[LetterWithFiles]:
    attached = encoded(*((name, content) for name, _, content in files))
    compiled = compile_mail(msgspec.structs.replace(COMPILED.parts, attachments=attached))
    return [
        LetterWithFiles(10 + at, f"student{at}@contoso.edu", whole=compiled) for at in range(count)
    ]


@pytest_asyncio.fixture(params=TRANSPORTS)
async def harness(
    request: pytest.FixtureRequest, clock: MovableClock, tmp_path: Path
) -> AsyncIterator[Harness]:
    async with TRANSPORTS[request.param](clock, tmp_path) as harness:
        if isinstance(harness, SmtpHarness):
            harness.sink.options = replace(harness.sink.options, keep_contents=True)
        yield harness
        await harness.transport.close()


async def arrived_with(harness: Harness) -> list[Files]:
    match harness:
        case ProviderHarness():
            return [mail.attachments for mail in harness.stub.accepted]
        case SmtpHarness():
            return [attachments_in(mail.content) for mail in harness.sink.mails]
        case OutboxHarness():
            mails, _ = await outbox.newest(harness.storage.tables, limit=200)
            return [
                attachments_in((await outbox.read(harness.storage, mail.key))[1]) for mail in mails
            ]
        case FolderHarness():
            return [attachments_in(path.read_bytes()) for path in harness.folder.glob("*.eml")]
    raise NotImplementedError


async def test_every_recipient_gets_every_attachment(harness: Harness) -> None:
    outcomes = await deliver(harness, letters_with(SMALL, 7))
    assert [type(outcome) for outcome in outcomes] == [Sent] * 7
    assert await arrived_with(harness) == [SMALL] * 7
    assert harness.complaints() == []


async def test_the_test_mailbox_stores_attachments_once_and_forgets_them(
    clock: MovableClock,
) -> None:
    harness = OutboxHarness(clock)
    await deliver(harness, letters_with((("a.bin", "", LARGE),), 5))
    names, _ = await harness.storage.blobs.list()
    sizes = [len(await harness.storage.blobs.get(name) or b"") for name in names]
    assert sum(size > len(LARGE) for size in sizes) == 1
    await outbox.delete_newest(harness.storage, limit=100)
    assert (await harness.storage.blobs.list())[0] == []


@pytest.mark.parametrize("name", ["sendgrid", "ses", "acs"])
async def test_a_provider_is_not_asked_for_more_than_it_takes(
    name: str, clock: MovableClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [key] = [each for each in TRANSPORTS if name in each]
    async with TRANSPORTS[key](clock, tmp_path) as harness:
        assert isinstance(harness, ProviderHarness)
        provider = harness.transport.provider  # type: ignore[attr-defined]
        monkeypatch.setattr(type(provider), "mail_bytes_max", 2000)
        outcomes = await deliver(harness, letters_with(SMALL, 2))
        await harness.transport.close()
        assert not harness.stub.accepted
    for outcome in outcomes:
        assert isinstance(outcome, Untried)
        assert outcome.too_large
        assert "accepts at most 2000" in outcome.words


async def send(
    sink: Sink, mails: Sequence[LetterWithFiles], witness: Witness, sign: Sign | None = None
) -> list[Outcome]:
    transport = SmtpTransport(SmtpConfig("127.0.0.1", sink.port, Tls.NONE), sign)
    try:
        return await transport.lane().send(mails, witness)
    finally:
        await transport.close()


@pytest.mark.slow
@in_every_shape
@pytest.mark.parametrize("signs", [False, True])
async def test_large_attachments_arrive_in_every_shape_of_the_dialogue(
    shape: SinkOptions, signs: bool
) -> None:
    files: Files = (("a.bin", "application/octet-stream", LARGE), SMALL[1])
    mails = letters_with(files, 5)
    async with Sink(shape) as sink:
        sign = DkimSigner([KEY]).sign if signs else None
        outcomes = await send(sink, mails, Witness(), sign)
    assert [type(outcome) for outcome in outcomes] == [Sent] * 5
    assert [attachments_in(mail.content) for mail in sink.mails] == [files] * 5
    for mail, letter in zip(sink.mails, mails, strict=True):
        source = letter.spliced(eight_bit=False).source
        assert mail.content.endswith(source)
        assert verifies(mail.content, KEY) if signs else mail.content == source


@in_every_shape
async def test_a_refusal_in_the_middle_does_not_stop_the_others(shape: SinkOptions) -> None:
    mails = letters_with((("a.bin", "", LARGE),), 4)
    mails[1] = replace(mails[1], recipient="perm-fail@contoso.edu")
    mails[2] = replace(mails[2], recipient="policy@contoso.edu")
    async with Sink(shape) as sink:
        await send(sink, mails, Witness())
    assert [mail.recipient for mail in sink.mails] == [mails[0].recipient, mails[3].recipient]


@in_every_shape
async def test_a_server_with_a_smaller_limit_costs_nobody_an_attempt(shape: SinkOptions) -> None:
    witness = Witness()
    async with Sink(replace(shape, size_max=100_000)) as sink:
        outcomes = await send(sink, letters_with((("a.bin", "", LARGE),), 3), witness)
    assert not sink.mails
    assert not witness.handed_over
    for outcome in outcomes:
        assert isinstance(outcome, Untried)
        assert outcome.too_large
        assert "the server accepts at most 100000" in outcome.words


async def test_many_lanes_share_the_attachments_in_memory() -> None:
    """A server that reads nothing: each lane may buffer a piece, but not the whole."""
    mails = letters_with((("a.bin", "", LARGE * 8),), 1)
    lanes = 4
    tail = len(mails[0].compiled.tail)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 sink ESMTP\r\n")
        await reader.readline()
        writer.write(b"250-sink\r\n250-PIPELINING\r\n250 CHUNKING\r\n")
        await stop.wait()
        writer.close()

    stop = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0, limit=1024)
    port = server.sockets[0].getsockname()[1]
    transport = SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE))
    witnesses = [Witness() for _ in range(lanes)]
    tracemalloc.start()
    try:
        sends = [asyncio.ensure_future(transport.lane().send(mails, each)) for each in witnesses]
        async with asyncio.timeout(60):
            while not all(each.handed_over for each in witnesses):  # noqa: ASYNC110
                await asyncio.sleep(0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        stop.set()
        await asyncio.gather(*sends)
        await transport.close()
        server.close()
    assert peak < tail  # of all lanes together, less than one copy
