"""A message to everybody through a provider that is busy, fails and loses replies.

PROVIDER_PEOPLE=10000 runs it at the size of docs/transports.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from postroom.clock import Clock
from postroom.domain.delivery import State
from postroom.domain.message import OnDoubt
from postroom.domain.trouble import TroubleKind
from postroom.feedback.classify import classify_words
from postroom.feedback.webhooks.post import AcceptedPost
from postroom.feedback.webhooks.sendgrid import read as read_sendgrid
from postroom.records import feedback, leases
from postroom.transport.acs import AcsConfig, acs_transport
from postroom.transport.port import Transport
from postroom.transport.sendgrid import SendGridConfig, sendgrid_transport
from postroom.transport.ses import SesConfig, ses_transport
from tests.provider_stubs import acs, sendgrid, ses
from tests.provider_stubs.server import Faults, ProviderStub
from tests.scenario.town import Town, address_of, name_of
from tests.webhook_posts import SendGrid

PEOPLE = int(os.environ.get("PROVIDER_PEOPLE", "600"))
BAD = ["bad-ada", "bad-bob", "bad-eve"]
LOST = "drop-after-accept-zoe"  # so that a reply is lost whatever chance says: calls are few
SLICE = 99


def open_sendgrid(stub: ProviderStub, clock: Clock) -> Transport:
    return sendgrid_transport(SendGridConfig(sendgrid.KEY, base_url=stub.url), clock)


def open_acs(stub: ProviderStub, clock: Clock) -> Transport:
    return acs_transport(AcsConfig(stub.url, acs.KEY), clock)


def open_ses(stub: ProviderStub, clock: Clock) -> Transport:
    config = SesConfig(ses.REGION, ses.KEY_ID, ses.SECRET, base_url=stub.url)
    return ses_transport(config, clock)


Opened = Callable[[ProviderStub, Clock], Transport]
PROVIDERS: dict[str, tuple[type[ProviderStub], Opened, int]] = {
    "sendgrid": (sendgrid.SendGridStub, open_sendgrid, 100),
    "acs": (acs.AcsStub, open_acs, 1),
    "ses": (ses.SesStub, open_ses, 50),
}


async def send_through(town: Town, stub: ProviderStub, transport: Transport) -> str:
    """Send to everybody and wait until nothing is open; returns the ref of the message."""
    names = [f"student{number:05d}" for number in range(PEOPLE - len(BAD) - 1)]
    ref = await town.mailing(*names, *BAD, LOST, on_doubt=OnDoubt.HOLD)
    await town.open_sender(transport=transport, slice_size=SLICE)
    town.clock.followers.append(lambda seconds: advance(stub, seconds))
    stub.now_s = town.clock.now().timestamp()
    for _ in range(60):
        await town.quiet()
        if not any(ledger.is_open for ledger in await town.ledgers(ref)):
            return ref
        await town.pass_time(60)
    raise AssertionError("the message is not done")


def advance(stub: ProviderStub, seconds: float) -> None:
    stub.now_s += seconds


@pytest.mark.slow
@pytest.mark.parametrize("name", PROVIDERS)
async def test_everybody_gets_one_mail_except_named_doubts(town: Town, name: str) -> None:
    kind, opened, batch = PROVIDERS[name]
    faults = Faults(seed=7, throttled=0.05, error=0.02, lost=0.01)
    async with kind(faults) as stub:
        ref = await send_through(town, stub, opened(stub, town.clock))
        fates = await town.fates(ref)
        await town.close()
    failed = {who: fate for who, fate in fates.items() if fate.state is State.FAILED}
    held = {who for who, fate in fates.items() if fate.state is State.HELD}
    assert failed.keys() == set(BAD) - held
    assert all(fate.words for fate in failed.values())
    assert {address_of(who) for who in held} <= stub.doubted
    sent = {who for who, fate in fates.items() if fate.state is State.SENT}
    assert len(sent) + len(held) + len(failed) == PEOPLE
    arrived = stub.arrived()
    assert set(arrived.values()) == {1}
    assert {address_of(who) for who in sent} <= arrived.keys()
    assert stub.bad_calls == []
    assert address_of(LOST) in stub.doubted
    assert (LOST in held) == (name != "acs")
    if name == "acs":
        assert not held  # every doubt was settled by asking
    least = -(-PEOPLE // SLICE) * -(-SLICE // batch)
    assert stub.calls <= least * 1.4 + 7  # 10,000 by SendGrid: 150
    print(f"{name}: {stub.calls} calls, {len(sent)} sent, {len(held)} held")
    print(f"{len(stub.doubted)} people were in calls whose reply was lost")


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_refused_key_is_shown_and_everything_continues_with_the_right_one(
    town: Town, name: str
) -> None:
    kind, opened, _ = PROVIDERS[name]
    async with kind() as stub:
        right = "secret" if name == "ses" else "key"
        key = getattr(stub, right)
        setattr(stub, right, "b3RoZXI=")
        ref = await town.mailing("ada", "bob")
        await town.open_sender(transport=opened(stub, town.clock))
        for _ in range(3):
            await town.quiet()
            await town.pass_time(60)
        alive = await leases.living(town.storage.tables, town.clock.now())
        [trouble] = leases.mail_troubles_among(alive)
        assert trouble.kind is TroubleKind.KEY
        assert str(trouble.advice)
        assert all(not ledger.deferred for ledger in await town.ledgers(ref))  # no attempt counted
        setattr(stub, right, key)
        await town.live_through(180, 60)
        assert await town.states(ref) == {"ada": State.SENT, "bob": State.SENT}
        await town.close()


async def test_lost_replies_are_settled_by_the_providers_signed_events(town: Town) -> None:
    """Whoever the provider took is down as sent, and whoever it never got stays held."""
    account = SendGrid()
    faults = Faults(seed=7, throttled=0.05, error=0.02, lost=0.05)
    async with sendgrid.SendGridStub(faults) as stub:
        ref = await send_through(town, stub, open_sendgrid(stub, town.clock))
        before = await town.states(ref)
        await town.close()
    now = town.clock.now()
    events = stub.events("processed")
    for start in range(0, len(events), 100):
        post = account.post(events[start : start + 100], now)
        read = read_sendgrid(post, (account.key,), now=now, classify=classify_words)
        assert isinstance(read, AcceptedPost)
        await feedback.take_in(town.storage, read.events)
    await town.hear()
    states = await town.states(ref)
    held = {who for who, state in states.items() if state is State.HELD}
    arrived = stub.arrived()
    assert sum(state is State.HELD for state in before.values()) >= SLICE / 2
    assert not held & {name_of(address) for address in arrived}
    assert all(arrived[address_of(who)] == 1 for who in states if states[who] is State.SENT)
    assert {who for who in states if states[who] is State.FAILED} <= set(BAD)
