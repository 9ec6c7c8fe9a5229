"""What Postfix and the SMTP transport agree on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import trustme

from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown
from postroom.transport.smtp.config import WINDOW
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Tls
from tests.interop.postfix import SIZE_BYTES_MAX, Postfix
from tests.letters import Letter

MAILS = 400
LANES = 4
SLICE = 25

# Dots at line starts, a line of the greatest length, text beyond ASCII: what a carrier may damage.
BODY = "\r\n".join([".", "..two", ".end", "x" * 998, "Grüße aus der Geschichte", ".", ""])

numbers = count()


@dataclass(frozen=True)
class EncodedLetter(Letter):
    """A letter in the two encodings that a server may accept."""

    text: str = BODY
    sender: str = "donotreply@contoso.edu"

    def source(self, *, eight_bit: bool) -> bytes:
        body = self.text if eight_bit else self.text.replace("ü", "ue").replace("ß", "ss")
        encoding = "8bit" if eight_bit else "7bit"
        headers = [
            "From: donotreply@contoso.edu",
            "Subject: New lecture series",
            "MIME-Version: 1.0",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Transfer-Encoding: {encoding}",
        ]
        return "\r\n".join([*headers, "", body]).encode()


class OpenWatch:
    """Lets everything go and keeps what it is told."""

    def __init__(self) -> None:
        self.handed_over: list[int] = []
        self.outcomes: dict[int, Outcome] = {}

    def may_hand_over(self) -> bool:
        return True

    def handing_over(self, positions: Sequence[int]) -> None:
        self.handed_over += positions

    def returned(self, positions: Sequence[int]) -> None:
        self.handed_over = [at for at in self.handed_over if at not in positions]

    def answered(self, outcomes: Mapping[int, Outcome]) -> None:
        self.outcomes.update(outcomes)


def students(number: int) -> list[str]:
    """Addresses that no other test has used."""
    return [f"student{next(numbers)}@contoso.edu" for _ in range(number)]


def letters(*recipients: str, body: str = BODY) -> list[EncodedLetter]:
    return [
        EncodedLetter(position, recipient, text=body)
        for position, recipient in enumerate(recipients)
    ]


Open = Callable[..., SmtpTransport]


@pytest.fixture
async def transport_to() -> AsyncIterator[Open]:
    opened: list[SmtpTransport] = []

    def open_to(port: int, *, tls: Tls = Tls.NONE, ca_file: str = "") -> SmtpTransport:
        opened.append(SmtpTransport(SmtpConfig("127.0.0.1", port, tls=tls, ca_file=ca_file)))
        return opened[-1]

    yield open_to
    for transport in opened:
        await transport.close()


@pytest.fixture(params=["chunking", "pipelining", "plain"])
def port(request: pytest.FixtureRequest, postfix: Postfix) -> int:
    return int(getattr(postfix, f"{request.param}_port"))


async def send_in_slices(transport: SmtpTransport, mails: list[EncodedLetter]) -> list[Outcome]:
    """All mails over several lanes, slice by slice, as a sender does."""
    slices = [mails[start : start + SLICE] for start in range(0, len(mails), SLICE)]

    async def run_lane(first: int) -> list[Outcome]:
        lane = transport.lane()
        return [o for s in slices[first::LANES] for o in await lane.send(s, OpenWatch())]

    outcomes = await asyncio.gather(*(run_lane(first) for first in range(LANES)))
    return [outcome for lane_outcomes in outcomes for outcome in lane_outcomes]


async def test_every_accepted_mail_arrives_once(
    postfix: Postfix, port: int, transport_to: Open
) -> None:
    recipients = students(MAILS)
    outcomes = await send_in_slices(transport_to(port), letters(*recipients))
    assert all(isinstance(outcome, Sent) for outcome in outcomes), Counter(outcomes)
    await postfix.has_relayed(outcome.words for outcome in outcomes)
    assert postfix.next_hop.counts(recipients) == Counter(recipients)


async def test_the_content_arrives_as_it_was_written(
    postfix: Postfix, port: int, transport_to: Open
) -> None:
    (recipient,) = students(1)
    mails = letters(recipient)
    (outcome,) = await transport_to(port).lane().send(mails, OpenWatch())
    await postfix.has_relayed([outcome.words])
    (content,) = postfix.next_hop.contents[recipient]
    eight_bit = port != postfix.plain_port
    assert content.endswith(mails[0].source(eight_bit=eight_bit).partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    ("offer", "used"), [("chunking", "bdat"), ("pipelining", "data"), ("plain", "data")]
)
async def test_what_postfix_offers_is_used(
    postfix: Postfix, transport_to: Open, offer: str, used: str
) -> None:
    transport = transport_to(getattr(postfix, f"{offer}_port"))
    seen = len(postfix.log.lines)
    await transport.lane().send(letters(*students(10)), OpenWatch())
    await transport.close()
    await postfix.log.until_each([rf"disconnect from .* mail=10 rcpt=10 {used}=10 "], since=seen)
    assert not [line for line in postfix.log.lines[seen:] if "improper command pipelining" in line]


async def test_a_refusal_in_the_middle_of_a_slice_is_of_that_mail_alone(
    postfix: Postfix, port: int, transport_to: Open
) -> None:
    first, last = students(2)
    nobody, busy, blocked = (f"{name}@contoso.edu" for name in ("nobody", "busy", "blocked"))
    watch = OpenWatch()
    mails = letters(first, nobody, busy, blocked, last)
    outcomes = await transport_to(port).lane().send(mails, watch)
    sent, unknown, busy_for_now, unwelcome, sent_too = outcomes
    assert isinstance(sent, Sent)
    assert isinstance(sent_too, Sent)
    assert isinstance(unknown, Rejected)
    assert unknown.address_fault
    assert unknown.words.startswith("550 5.1.1 ")
    assert isinstance(busy_for_now, Deferred)
    assert busy_for_now.scope is Scope.ADDRESS
    assert isinstance(unwelcome, Rejected)
    assert not unwelcome.address_fault
    assert watch.outcomes == dict(enumerate(outcomes))
    await postfix.has_relayed([sent.words, sent_too.words])
    expected = Counter({first: 1, last: 1, nobody: 0, busy: 0, blocked: 0})
    assert postfix.next_hop.counts(expected) == expected


async def test_a_421_in_the_middle_of_a_slice_costs_the_others_nothing(
    postfix: Postfix, port: int, transport_to: Open
) -> None:
    """Postfix closes with commands unread, so its kernel resets the connection.

    If that destroys replies on their way to us, those mails are truly in doubt: Postfix may have
    taken them. Without PIPELINING nothing is unread.
    """
    before, after = students(6), students(20)
    mails = letters(*before, "closing@contoso.edu", *after)
    outcomes = await transport_to(port).lane().send(mails, OpenWatch())
    refused = outcomes.pop(len(before))
    in_doubt = {
        recipient
        for recipient, outcome in zip(before + after, outcomes, strict=True)
        if isinstance(outcome, Unknown)
    }
    assert isinstance(refused, Deferred) or in_doubt
    assert len(in_doubt) < WINDOW
    assert not in_doubt or port == postfix.chunking_port
    sent = [outcome for outcome in outcomes if isinstance(outcome, Sent)]
    assert len(sent) + len(in_doubt) == len(outcomes)
    await postfix.has_relayed(outcome.words for outcome in sent)
    arrived = postfix.next_hop.counts(before + after)
    assert all(arrived[one] == 1 or one in in_doubt for one in before + after)
    assert max(arrived.values()) == 1


async def test_a_mail_too_big_for_postfix_is_rejected_without_blame_on_the_address(
    postfix: Postfix, port: int, transport_to: Open
) -> None:
    big, small = students(2)
    mails = [
        EncodedLetter(0, big, text="x" * 70 + "\r\n" * SIZE_BYTES_MAX),
        EncodedLetter(1, small),
    ]
    rejected, sent = await transport_to(port).lane().send(mails, OpenWatch())
    assert isinstance(rejected, Rejected)
    assert not rejected.address_fault
    assert isinstance(sent, Sent)


async def test_mail_goes_over_a_line_whose_certificate_is_verified(
    postfix: Postfix, port: int, transport_to: Open
) -> None:
    recipients = students(50)
    transport = transport_to(port, tls=Tls.REQUIRE, ca_file=postfix.ca_file)
    seen = len(postfix.log.lines)
    outcomes = await transport.lane().send(letters(*recipients), OpenWatch())
    assert all(isinstance(outcome, Sent) for outcome in outcomes), Counter(outcomes)
    await transport.close()
    signs = [r"TLS connection established", r"starttls=1 mail=50 rcpt=50"]
    await postfix.log.until_each(signs, since=seen)
    await postfix.has_relayed(outcome.words for outcome in outcomes)
    assert postfix.next_hop.counts(recipients) == Counter(recipients)


async def test_nothing_goes_to_a_server_with_a_certificate_of_somebody_else(
    postfix: Postfix, transport_to: Open, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    watch = OpenWatch()
    (recipient,) = students(1)
    transport = transport_to(postfix.chunking_port, tls=Tls.REQUIRE, ca_file=str(other))
    (outcome,) = await transport.lane().send(letters(recipient), watch)
    assert isinstance(outcome, Deferred)
    assert outcome.scope is Scope.PROVIDER
    assert "certificate" in outcome.words
    assert watch.handed_over == []
    assert recipient not in postfix.next_hop.contents


@pytest.mark.parametrize("offer", ["chunking", "pipelining"])
async def test_an_address_beyond_ascii_is_reached(
    postfix: Postfix, transport_to: Open, offer: str
) -> None:
    recipient = f"schüler{next(numbers)}@contoso.edu"
    transport = transport_to(getattr(postfix, f"{offer}_port"))
    (outcome,) = await transport.lane().send(letters(recipient), OpenWatch())
    assert isinstance(outcome, Sent), outcome
    await postfix.has_relayed([outcome.words])
    assert postfix.next_hop.counts([recipient]) == {recipient: 1}


async def test_an_address_beyond_ascii_is_rejected_where_smtputf8_is_not_offered(
    postfix: Postfix, transport_to: Open
) -> None:
    recipient = f"schüler{next(numbers)}@contoso.edu"
    transport = transport_to(postfix.plain_port)
    (outcome,) = await transport.lane().send(letters(recipient), OpenWatch())
    assert isinstance(outcome, Rejected)
    assert "SMTPUTF8" in outcome.words
