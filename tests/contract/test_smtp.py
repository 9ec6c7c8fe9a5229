"""The SMTP transport against the scripted sink: what becomes of a mail, in three server shapes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown, Untried
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Timeouts, Tls
from postroom_bench.sink import Sink, SinkOptions
from tests.letters import Letter, Witness, letters, many_letters

SHAPES = {
    "chunking": SinkOptions(chunking=True, keep_contents=True, keep_commands=True),
    "pipelining": SinkOptions(keep_contents=True, keep_commands=True),
    "neither": SinkOptions(pipelining=False, keep_contents=True, keep_commands=True),
}
CHUNKING, PIPELINING = SHAPES["chunking"], SHAPES["pipelining"]

in_every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def transport_to(sink: Sink, **settings: object) -> SmtpTransport:
    config = SmtpConfig("127.0.0.1", sink.port, Tls.NONE)
    return SmtpTransport(replace(config, **settings))  # type: ignore[arg-type]


@asynccontextmanager
async def running(
    shape: SinkOptions, **settings: object
) -> AsyncIterator[tuple[Sink, SmtpTransport]]:
    async with Sink(shape) as sink:
        transport = transport_to(sink, **settings)
        try:
            yield sink, transport
        finally:
            await transport.close()


async def send(transport: SmtpTransport, mails: list[Letter]) -> tuple[list[Outcome], Witness]:
    witness = Witness()
    outcomes = await transport.lane().send(mails, witness)
    check_books(mails, outcomes, witness)
    return outcomes, witness


def check_books(mails: list[Letter], outcomes: list[Outcome], witness: Witness) -> None:
    """Every mail has one outcome, told once; doubt and success only after a hand-over."""
    told = dict(witness.answers)
    assert len(told) == len(witness.answers)
    assert [told[mail.position] for mail in mails] == outcomes
    assert len(set(witness.handed_over)) == len(witness.handed_over)
    for mail, outcome in zip(mails, outcomes, strict=True):
        if isinstance(outcome, Sent | Unknown):
            assert mail.position in witness.handed_over
        if isinstance(outcome, Untried):
            assert mail.position not in witness.handed_over


def recipients(sink: Sink) -> list[str]:
    return [mail.recipient for mail in sink.mails]


@in_every_shape
async def test_an_accepted_mail_is_sent_as_it_is(shape: SinkOptions) -> None:
    async with running(shape) as (sink, transport):
        mails = letters("student1@contoso.edu", "student2@contoso.edu")
        outcomes, witness = await send(transport, mails)
    assert outcomes == [Sent("250 2.0.0 Ok: queued")] * 2
    assert witness.handed_over == [10, 11]
    assert [(m.recipient, m.message_id, m.sender, m.content) for m in sink.mails] == [
        (mail.recipient, mail.message_id, mail.sender, mail.source(eight_bit=True))
        for mail in mails
    ]


@in_every_shape
async def test_each_mail_of_a_mixed_slice_gets_its_own_outcome(shape: SinkOptions) -> None:
    expected: dict[str, Outcome] = {
        "student1@contoso.edu": Sent("250 2.0.0 Ok: queued"),
        "temp-fail@contoso.edu": Deferred("450 4.2.0 Try again later", Scope.ADDRESS),
        "perm-fail@contoso.edu": Rejected("550 5.1.1 No such user", True),
        "student2@contoso.edu": Sent("250 2.0.0 Ok: queued"),
        "full@contoso.edu": Deferred("452 4.2.2 Mailbox full", Scope.ADDRESS),
        "rate@contoso.edu": Deferred("451 4.7.1 Slow down", Scope.DOMAIN),
        "policy@contoso.edu": Rejected("550 5.7.1 Refused by policy", False),
        "student3@contoso.edu": Sent("250 2.0.0 Ok: queued"),
    }
    async with running(shape) as (sink, transport):
        outcomes, _ = await send(transport, letters(*expected))
    assert dict(zip(expected, outcomes, strict=True)) == expected
    assert recipients(sink) == [f"student{n}@contoso.edu" for n in (1, 2, 3)]
    assert sink.connected == 1


@in_every_shape
@pytest.mark.parametrize("resets", [True, False])
async def test_no_mail_travels_under_the_sender_of_a_refused_one(
    shape: SinkOptions, resets: bool
) -> None:
    async with running(replace(shape, reset_on_refusal=resets)) as (sink, transport):
        mails = [
            Letter(number, f"{kind}{number}@contoso.edu", f"bounce+{number}@lists.contoso.edu")
            for number, kind in enumerate(["perm-fail", "student", "full", "temp-fail", "student"])
        ]
        await send(transport, mails)
    assert [mail.sender for mail in sink.mails] == [
        "bounce+1@lists.contoso.edu",
        "bounce+4@lists.contoso.edu",
    ]


@pytest.mark.parametrize("script", ["drop-after-dot", "drop-in-data"])
@in_every_shape
async def test_a_line_that_breaks_after_the_hand_over_leaves_doubt(
    shape: SinkOptions, script: str
) -> None:
    async with running(shape, window=1) as (sink, transport):
        outcomes, _ = await send(
            transport,
            letters("student1@contoso.edu", f"{script}@contoso.edu", "student2@contoso.edu"),
        )
    assert [type(outcome) for outcome in outcomes] == [Sent, Unknown, Sent]
    assert sink.connected == 2
    assert recipients(sink).count(f"{script}@contoso.edu") == (script == "drop-after-dot")


async def test_with_a_window_all_that_is_on_the_wire_is_in_doubt_and_no_more() -> None:
    async with running(CHUNKING, window=4) as (sink, transport):
        mails = [*many_letters(20)]
        mails[4] = Letter(mails[4].position, "drop-after-dot@contoso.edu")
        outcomes, _ = await send(transport, mails)
    doubtful = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Unknown)]
    assert doubtful[0] == 4
    assert len(doubtful) <= 4
    assert all(isinstance(o, Sent) for i, o in enumerate(outcomes) if i not in doubtful)
    assert len(set(recipients(sink))) == len(recipients(sink))


async def test_a_line_that_breaks_before_the_hand_over_is_replaced_and_the_mail_tried_again() -> (
    None
):
    async with running(PIPELINING) as (sink, transport):
        mails = letters("student1@contoso.edu", "drop-at-rcpt-once@contoso.edu", "b@contoso.edu")
        outcomes, _ = await send(transport, mails)
    assert [type(outcome) for outcome in outcomes] == [Sent, Sent, Sent]
    assert sink.connected == 2


@pytest.mark.parametrize("shape", [PIPELINING, SHAPES["neither"]])
async def test_a_mail_that_breaks_every_line_steps_aside_without_doubt(shape: SinkOptions) -> None:
    async with running(shape) as (_, transport):
        mails = letters("student1@contoso.edu", "drop-at-rcpt@contoso.edu", "student2@contoso.edu")
        outcomes, witness = await send(transport, mails)
    assert [type(outcome) for outcome in outcomes] == [Sent, Deferred, Sent]
    assert isinstance(outcomes[1], Deferred)
    assert outcomes[1].scope is Scope.ADDRESS  # the server works for the others
    assert witness.handed_over == [10, 12]


async def test_a_server_that_breaks_every_line_is_left_alone_after_a_few() -> None:
    async with running(PIPELINING) as (sink, transport):
        mails = letters(*(f"drop-at-rcpt{number}@contoso.edu" for number in range(30)))
        outcomes, witness = await send(transport, mails)
    assert all(isinstance(o, Deferred) and o.scope is Scope.PROVIDER for o in outcomes)
    assert not witness.handed_over
    assert sink.connected == 2


@in_every_shape
async def test_421_to_the_content_defers_that_mail_and_the_rest_takes_a_new_line(
    shape: SinkOptions,
) -> None:
    async with running(shape, window=1) as (sink, transport):
        outcomes, _ = await send(
            transport, letters("a@contoso.edu", "busy@contoso.edu", "b@contoso.edu")
        )
    assert outcomes[1] == Deferred("421 4.3.2 Shutting down", Scope.PROVIDER)
    assert [type(outcome) for outcome in outcomes] == [Sent, Deferred, Sent]
    assert sink.connected == 2


@in_every_shape
async def test_where_the_server_ends_connections_by_421_is_learned(shape: SinkOptions) -> None:
    async with running(replace(shape, mails_per_connection_max=10)) as (sink, transport):
        lane, witness, mails = transport.lane(), Witness(), many_letters(60)
        outcomes = await lane.send(mails, witness)
        check_books(mails, outcomes, witness)
    assert [type(outcome) for outcome in outcomes] == [Sent] * len(outcomes)
    assert sink.connected == 6


@in_every_shape
async def test_a_stop_leaves_the_rest_untried_and_nothing_in_doubt(shape: SinkOptions) -> None:
    async with running(shape, window=1) as (sink, transport):  # so that each mail is a write
        lane, witness, mails = transport.lane(), Witness(leave=3), many_letters(8)
        outcomes = await lane.send(mails, witness)
        check_books(mails, outcomes, witness)
        assert [type(outcome) for outcome in outcomes] == [Sent] * 3 + [Untried] * 5
        assert len(sink.mails) == 3
        outcomes = await lane.send(mails[3:], Witness())
    assert [type(outcome) for outcome in outcomes] == [Sent] * 5
    assert sorted(recipients(sink)) == sorted(mail.recipient for mail in mails)


@in_every_shape
async def test_no_answer_after_the_hand_over_is_doubt_and_ends_the_slice(
    shape: SinkOptions,
) -> None:
    patience = Timeouts(final_s=0.5)
    async with running(shape, window=1, timeouts=patience) as (sink, transport):
        mails = letters("a@contoso.edu", "slow@contoso.edu", "b@contoso.edu")
        outcomes, _ = await send(transport, mails)
    assert [type(outcome) for outcome in outcomes] == [Sent, Unknown, Deferred]
    assert outcomes[1] == Unknown("handed over, then the server did not answer for 0.5 s")
    assert sink.connected == 1


@pytest.mark.slow
async def test_patience_counts_from_the_last_sign_of_life() -> None:
    slow = replace(PIPELINING, pipelining=False, delay_s=0.06)
    patience = Timeouts(command_s=1.0, data_s=1.0, final_s=1.0)
    async with running(slow, timeouts=patience) as (_, transport):
        outcomes, _ = await send(transport, many_letters(5))  # 20 replies: 1.2 s in all
    assert [type(outcome) for outcome in outcomes] == [Sent] * 5


@in_every_shape
async def test_a_slow_answer_is_waited_for(shape: SinkOptions) -> None:
    async with running(shape) as (sink, transport):
        mails = letters("slow@contoso.edu", "student@contoso.edu")
        sending = asyncio.create_task(send(transport, mails))
        await sink.is_waiting.wait()
        assert not sending.done()
        sink.release()
        outcomes, _ = await sending
    assert [type(outcome) for outcome in outcomes] == [Sent, Sent]


@in_every_shape
async def test_a_cancelled_send_leaves_a_lane_that_works(shape: SinkOptions) -> None:
    async with running(shape) as (sink, transport):
        lane = transport.lane()
        sending = asyncio.create_task(lane.send(letters("slow@contoso.edu"), Witness()))
        await sink.is_waiting.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        outcomes = await lane.send(letters("student@contoso.edu"), Witness())
    assert [type(outcome) for outcome in outcomes] == [Sent]
    assert sink.connected == 2


class FullJournal(Witness):
    def handing_over(self, positions: object) -> None:
        raise OSError("no space left for the journal")


@in_every_shape
async def test_nothing_is_sent_that_the_watch_could_not_write_down(shape: SinkOptions) -> None:
    async with running(shape) as (sink, transport):
        lane = transport.lane()
        with pytest.raises(OSError, match="no space left"):
            await lane.send(many_letters(3), FullJournal())
        await lane.send(letters("a@contoso.edu"), Witness())
    assert recipients(sink) == ["a@contoso.edu"]


@in_every_shape
async def test_a_connection_is_kept_for_the_next_slice(shape: SinkOptions) -> None:
    async with running(shape) as (sink, transport):
        lane = transport.lane()
        for _ in range(3):
            await lane.send(many_letters(2), Witness())
        assert sink.connected == 1
        await lane.close()
    assert sink.commands[-1] == b"QUIT"


@in_every_shape
async def test_a_slice_that_ended_with_a_refusal_does_not_spoil_the_next(
    shape: SinkOptions,
) -> None:
    async with running(shape) as (sink, transport):
        lane = transport.lane()
        for recipient in ("a@contoso.edu", "perm-fail@contoso.edu"):
            await lane.send(letters(recipient), Witness())
        outcomes = await lane.send(letters("b@contoso.edu"), Witness())
    assert outcomes == [Sent("250 2.0.0 Ok: queued")]
    assert sink.connected == 1


@in_every_shape
async def test_a_connection_closed_while_idle_is_replaced_without_doubt(shape: SinkOptions) -> None:
    async with running(shape) as (sink, transport):
        lane = transport.lane()
        await lane.send(many_letters(1), Witness())
        await sink.drop_connections()
        outcomes = await lane.send(many_letters(3), Witness())
    assert [type(outcome) for outcome in outcomes] == [Sent] * 3
    assert sink.connected == 2


@in_every_shape
async def test_a_connection_carries_only_so_many_mails(shape: SinkOptions) -> None:
    async with running(shape, mails_per_connection_max=3) as (sink, transport):
        outcomes, _ = await send(transport, many_letters(8))
    assert [type(outcome) for outcome in outcomes] == [Sent] * 8
    assert sink.connected == 3
    assert sink.commands.count(b"QUIT") == 3


async def test_content_never_follows_a_refused_recipient_even_after_354() -> None:
    async with running(replace(PIPELINING, data_without_recipient=True)) as (sink, transport):
        mails = letters("perm-fail@contoso.edu", "student@contoso.edu", "full@contoso.edu")
        outcomes, witness = await send(transport, mails)
    assert [type(outcome) for outcome in outcomes] == [Rejected, Sent, Deferred]
    assert witness.handed_over == [11]
    assert recipients(sink) == ["student@contoso.edu"]


@in_every_shape
async def test_thousands_of_mails_pass_each_once(shape: SinkOptions) -> None:
    async with running(replace(shape, keep_contents=False, keep_commands=False)) as (
        sink,
        transport,
    ):
        outcomes, _ = await send(transport, many_letters(2000))
    assert outcomes == [Sent("250 2.0.0 Ok: queued")] * 2000
    assert len(set(recipients(sink))) == len(sink.mails) == 2000


@in_every_shape
async def test_a_huge_mail_passes_through_small_socket_buffers(shape: SinkOptions) -> None:
    async with running(replace(shape, receive_buffer_bytes=16_384)) as (sink, transport):
        line = b".All work and no play makes a dull mail.\r\n"
        mails = [
            Letter(number, f"s{number}@contoso.edu", body=line * 50_000) for number in range(3)
        ]
        outcomes, _ = await send(transport, mails)
    assert [type(outcome) for outcome in outcomes] == [Sent] * 3
    assert [mail.content for mail in sink.mails] == [mail.source(eight_bit=True) for mail in mails]


LINES = st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([b".", b"..", b".x", b""])))


@in_every_shape
@given(bodies=st.lists(LINES, min_size=1, max_size=4))
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_content_arrives_as_it_left(shape: SinkOptions, bodies: list[list[bytes]]) -> None:
    mails = [
        Letter(
            number,
            f"student{number}@contoso.edu",
            body=b"".join(line.translate(None, b"\r\n") + b"\r\n" for line in lines),
        )
        for number, lines in enumerate(bodies)
    ]

    async def round_trip() -> list[bytes]:
        async with running(shape) as (sink, transport):
            await send(transport, mails)
            return [mail.content for mail in sink.mails]

    assert asyncio.run(round_trip()) == [mail.source(eight_bit=True) for mail in mails]


@in_every_shape
def test_the_same_holds_on_uvloop(shape: SinkOptions) -> None:
    async def weather() -> list[Outcome]:
        async with running(shape, window=1) as (_, transport):
            names = ["a", "perm-fail", "drop-after-dot", "b", "busy", "c", "temp-fail", "d"]
            outcomes, _ = await send(transport, letters(*(f"{name}@contoso.edu" for name in names)))
            return outcomes

    kinds = [Sent, Rejected, Unknown, Sent, Deferred, Sent, Deferred, Sent]
    assert [type(outcome) for outcome in uvloop.run(weather())] == kinds
