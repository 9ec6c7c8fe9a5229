"""What each provider says in trouble, and what becomes of the mails."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from postroom.domain.doctor import CheckResult
from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown
from postroom.domain.trouble import TroubleKind
from postroom.settings import load
from postroom.transport import sendgrid as sendgrid_module
from postroom.transport.acs import AcsConfig, acs_transport, operation_id
from postroom.transport.provider.lane import HALVINGS_MAX, WAIT_S_MAX
from postroom.transport.sendgrid import SendGridConfig, sendgrid_transport
from postroom.transport.ses import SesConfig, ses_transport
from postroom.wiring import check
from postroom.wiring.providers import AcsEntry, ProviderEntry, SendGridEntry, SesEntry
from tests.clock import MovableClock
from tests.contract.transports import (
    TRANSPORTS,
    ContractLetter,
    ProviderHarness,
    contract_letters,
    deliver,
)
from tests.provider_stubs import acs, sendgrid, ses
from tests.provider_stubs.server import Faults, Misbehaviour, StubReply, StubRequest

PROVIDERS = ["sendgrid", "acs", "ses"]
STUDENTS = [f"student{number}@contoso.edu" for number in range(99)]


@asynccontextmanager
async def opened(name: str, clock: MovableClock, folder: Path) -> AsyncIterator[ProviderHarness]:
    async with TRANSPORTS[name](clock, folder) as harness:
        assert isinstance(harness, ProviderHarness)
        yield harness
        await harness.transport.close()


@pytest_asyncio.fixture(params=PROVIDERS)
async def harness(
    request: pytest.FixtureRequest, clock: MovableClock, tmp_path: Path
) -> AsyncIterator[ProviderHarness]:
    async with opened(request.param, clock, tmp_path) as harness:
        yield harness


def always(harness: ProviderHarness, monkeypatch: pytest.MonkeyPatch, reply: StubReply) -> None:
    monkeypatch.setattr(harness.stub, "answer", lambda request: reply)


async def test_a_busy_provider_is_waited_for_and_nobody_gets_two(harness: ProviderHarness) -> None:
    harness.stub.faults = Faults(seed=3, throttled=0.2, error=0.1)
    began = harness.clock.monotonic()
    outcomes: list[Outcome] = []
    for _ in range(5):  # so many calls that some are refused
        outcomes += await deliver_again(harness, contract_letters(*STUDENTS[:10]))
    assert Sent in set(map(type, outcomes))
    assert set(map(type, outcomes)) <= {Sent, Deferred}
    assert harness.clock.monotonic() > began
    sent = sum(isinstance(outcome, Sent) for outcome in outcomes)
    assert harness.stub.arrived().total() == sent


async def deliver_again(harness: ProviderHarness, mails: list[ContractLetter]) -> list[Outcome]:
    """As if in another message: what arrived before does not count."""
    before = list(harness.stub.accepted)
    harness.stub.accepted.clear()
    if isinstance(harness.stub, acs.AcsStub):
        harness.stub.operations.clear()
    outcomes = await deliver(harness, mails)
    harness.stub.accepted[:0] = before
    return outcomes


async def test_a_provider_that_stays_busy_gets_the_item_back(
    harness: ProviderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(harness, monkeypatch, StubReply(429, {}, {"Retry-After": "4"}))
    began = harness.clock.monotonic()
    outcomes = await deliver(harness, contract_letters(*STUDENTS[:20]))
    assert harness.clock.monotonic() - began <= WAIT_S_MAX
    for outcome in outcomes:
        assert isinstance(outcome, Deferred)
        assert (outcome.scope, outcome.reached) == (Scope.PROVIDER, False)
        assert outcome.fault
        assert outcome.fault.kind is TroubleKind.THROTTLED


async def test_a_wait_that_is_too_long_is_not_waited(
    harness: ProviderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = (harness.clock.now() + timedelta(hours=1)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    reset = str(int(harness.clock.now().timestamp()) + 3600)
    headers = {"Retry-After": later, "X-RateLimit-Reset": reset}
    always(harness, monkeypatch, StubReply(429, {}, headers))
    began = harness.clock.monotonic()
    [outcome] = await deliver(harness, contract_letters("ada@contoso.edu"))
    assert harness.clock.monotonic() == began
    assert isinstance(outcome, Deferred)


async def test_a_call_that_always_fails_while_others_work_costs_its_own_mails_an_attempt(
    harness: ProviderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one mail that makes the provider fail would hold up its batch for ever."""
    lane = harness.transport.lane()
    [before] = await lane.send(contract_letters("ada@contoso.edu"), Watch())
    own = {"errors": [{"message": "oh", "field": None}], "error": {"code": "Oh"}, "message": "oh"}
    always(harness, monkeypatch, StubReply(500, own, {"x-amzn-ErrorType": "InternalFailure"}))
    [outcome] = await lane.send(contract_letters("bob@contoso.edu"), Watch())
    await lane.close()
    assert isinstance(before, Sent)
    assert isinstance(outcome, Deferred)
    assert (outcome.scope, outcome.reached) == (Scope.ADDRESS, True)


@pytest.mark.slow
async def test_a_silent_provider_is_not_called_again_within_the_slice(
    clock: MovableClock, tmp_path: Path
) -> None:
    """Or a slice of 99 mails would wait for hours."""
    async with opened("acs", clock, tmp_path) as harness:
        transport = harness.with_hostile_server(Misbehaviour.SILENT)
        outcomes = await deliver(harness, contract_letters(*STUDENTS), transport=transport)
        await transport.close()
    assert isinstance(outcomes[0], Unknown)
    for outcome in outcomes[1:]:
        assert isinstance(outcome, Deferred)
        assert not outcome.reached


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_stops_everything_and_costs_nobody_an_attempt(
    harness: ProviderHarness, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    calls: list[StubRequest] = []

    def refuse(request: StubRequest) -> StubReply:
        calls.append(request)
        return StubReply(status, {"error": {"code": "no"}, "errors": [], "message": "no"})

    monkeypatch.setattr(harness.stub, "answer", refuse)
    outcomes = await deliver(harness, contract_letters(*STUDENTS))
    assert len(calls) == 1
    for outcome in outcomes:
        assert isinstance(outcome, Deferred)
        assert (outcome.scope, outcome.reached) == (Scope.PROVIDER, False)
        assert outcome.fault
        assert outcome.fault.kind is TroubleKind.KEY


async def test_a_wrong_key_is_in_no_outcome_even_if_the_provider_repeats_it(
    clock: MovableClock,
) -> None:
    async with sendgrid.SendGridStub() as stub:
        config = SendGridConfig("SG.a-wrong-key", base_url=stub.url)
        transport = sendgrid_transport(config, clock)
        watch_over = ProviderHarness(clock, stub, lambda url, waits: transport, ("a-wrong-key",))
        [outcome] = await deliver(watch_over, contract_letters("ada@contoso.edu"))
        await transport.close()
    assert isinstance(outcome, Deferred)
    assert "SG." not in outcome.words


@pytest.mark.parametrize(("status", "answer"), [(502, {}), (504, {}), (500, None), (201, {})])
async def test_an_answer_of_something_in_between_is_a_doubt(
    harness: ProviderHarness, monkeypatch: pytest.MonkeyPatch, status: int, answer: Any
) -> None:
    """A gateway may have passed the request on; only the provider itself can refuse."""
    always(harness, monkeypatch, StubReply(status, answer))
    [outcome] = await deliver(harness, contract_letters("ada@contoso.edu"))
    assert isinstance(outcome, Unknown)


async def test_a_call_that_is_too_large_is_halved(clock: MovableClock, tmp_path: Path) -> None:
    async with opened("sendgrid", clock, tmp_path) as harness:
        answer = harness.stub.answer

        def only_small(request: StubRequest) -> StubReply:
            if request.body.count(b"postroom_delivery") > 10:
                return StubReply(413, {"errors": [{"message": "too large", "field": None}]})
            return answer(request)

        harness.stub.answer = only_small  # type: ignore[method-assign]
        outcomes = await deliver(harness, contract_letters(*STUDENTS))
    assert set(map(type, outcomes)) == {Sent}


async def test_a_refusal_of_everything_takes_a_bounded_number_of_calls(
    clock: MovableClock, tmp_path: Path
) -> None:
    async with opened("sendgrid", clock, tmp_path) as harness:
        outcomes = await deliver(
            harness, contract_letters(*(f"perm-fail{at}@contoso.edu" for at in range(99)))
        )
        assert harness.stub.calls <= 2 * HALVINGS_MAX + 2
    assert set(map(type, outcomes)) <= {Rejected, Deferred}


async def test_a_refused_message_is_refused_at_once_and_is_nobodys_fault(
    clock: MovableClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened("sendgrid", clock, tmp_path) as harness:
        errors = {"errors": [{"message": "The from object is wrong.", "field": "from.email"}]}
        always(harness, monkeypatch, StubReply(400, errors))
        outcomes = await deliver(harness, contract_letters("ada@contoso.edu", "bob@contoso.edu"))
    assert outcomes == [Rejected("The from object is wrong.", address_fault=False)] * 2


async def test_sandbox_mode_delivers_nothing_and_says_so(clock: MovableClock) -> None:
    async with sendgrid.SendGridStub() as stub:
        config = SendGridConfig(sendgrid.KEY, sandbox=True, base_url=stub.url)
        transport = sendgrid_transport(config, clock)
        lane = transport.lane()
        [outcome] = await lane.send(contract_letters("ada@contoso.edu"), Watch())
        await transport.close()
        assert isinstance(outcome, Sent)
        assert "sandbox" in outcome.words
        assert not stub.accepted


class Watch:
    def may_hand_over(self) -> bool:
        return True

    def handing_over(self, positions: object) -> None: ...
    def returned(self, positions: object) -> None: ...
    def answered(self, outcomes: Mapping[int, Outcome]) -> None: ...


async def test_entries_that_ses_throttles_are_sent_again(
    clock: MovableClock, tmp_path: Path
) -> None:
    async with opened("ses", clock, tmp_path) as harness:
        assert isinstance(harness.stub, ses.SesStub)
        harness.stub.busy_entries = 30
        outcomes = await deliver(harness, contract_letters(*STUDENTS))
        assert harness.arrived() == Counter(STUDENTS)
    assert set(map(type, outcomes)) == {Sent}


@pytest.mark.parametrize("status", ["ACCOUNT_SENDING_PAUSED", "MAIL_FROM_DOMAIN_NOT_VERIFIED"])
async def test_trouble_with_the_account_of_ses_costs_nobody_an_attempt(
    clock: MovableClock, tmp_path: Path, status: str
) -> None:
    async with opened("ses", clock, tmp_path) as harness:
        assert isinstance(harness.stub, ses.SesStub)
        harness.stub.account_status = status
        outcomes = await deliver(harness, contract_letters(*STUDENTS))
        assert harness.stub.calls == 1
    for outcome in outcomes:
        assert isinstance(outcome, Deferred)
        assert outcome.fault
        assert outcome.fault.kind is TroubleKind.ACCOUNT
        assert not outcome.reached


async def test_the_configuration_set_is_named_in_every_call(clock: MovableClock) -> None:
    async with ses.SesStub(configuration_set="events") as stub:
        config = SesConfig(ses.REGION, ses.KEY_ID, ses.SECRET, "events", base_url=stub.url)
        transport = ses_transport(config, clock)
        [outcome] = await transport.lane().send(contract_letters("ada@contoso.edu"), Watch())
        await transport.close()
    assert isinstance(outcome, Sent)


async def test_acs_sends_again_what_it_does_not_know_and_never_twice(
    clock: MovableClock, tmp_path: Path
) -> None:
    async with opened("acs", clock, tmp_path) as harness:
        assert isinstance(harness.stub, acs.AcsStub)
        harness.stub.faults = Faults(seed=1, lost=0.3)
        outcomes = await deliver(harness, contract_letters(*STUDENTS))
        assert set(map(type, outcomes)) <= {Sent, Deferred}
        assert harness.stub.asked >= len(harness.stub.doubted)
        assert max(harness.arrived().values()) == 1


async def test_a_repeated_operation_is_the_same_mail(clock: MovableClock) -> None:
    async with acs.AcsStub() as stub:
        transport = acs_transport(AcsConfig(stub.url, acs.KEY), clock)
        mails = contract_letters("ada@contoso.edu")
        for _ in range(3):
            [outcome] = await transport.lane().send(mails, Watch())
            assert isinstance(outcome, Sent)
        await transport.close()
        assert len(stub.accepted) == 1
        assert list(stub.operations) == [operation_id(mails[0].token)]


# --- Addresses and the doctor -----------------------------------------------------------------

KEYS = {
    "POSTROOM_SENDGRID_KEY": sendgrid.KEY,
    "POSTROOM_ACS_KEY": acs.KEY,
    "POSTROOM_SES_KEY_ID": ses.KEY_ID,
    "POSTROOM_SES_SECRET": ses.SECRET,
}
GOOD = [
    *("sendgrid:", "sendgrid:?region=eu", "sendgrid:?sandbox=1&batch=1000", "ses:eu-central-1"),
    "sendgrid:?url=http://127.0.0.1:3000",
    *("acs:https://contoso.communication.azure.com", "acs:https://c.communication.azure.com/"),
    "ses:us-gov-west-1",
]
BAD = [
    *("sendgrid:x", "sendgrid:?region=moon", "sendgrid:?batch=0", "sendgrid:?batch=1001"),
    *("sendgrid:?url=http://10.0.0.1:3000", "sendgrid:?url=https://evil.example"),
    *("sendgrid:?sandbox=yes", "sendgrid:?key=1", "acs:", "acs:http://c.azure.com", "ses:"),
    *("acs:https://c.azure.com/path", "ses:Frankfurt", "ses:eu-central-1/x", "sendgrid://x"),
]


@pytest.mark.parametrize("address", GOOD)
def test_an_address_with_its_keys_is_right(address: str) -> None:
    assert check(load({**KEYS, "POSTROOM_TRANSPORT": address})) == []


@pytest.mark.parametrize("address", BAD)
def test_a_wrong_address_is_explained_without_the_key(address: str) -> None:
    [mistake] = check(load({**KEYS, "POSTROOM_TRANSPORT": address}))
    assert mistake.startswith("POSTROOM_TRANSPORT: ")
    assert not any(key in mistake for key in KEYS.values())


@pytest.mark.parametrize(
    "address", ["sendgrid:", "ses:eu-central-1", "acs:https://contoso.communication.azure.com"]
)
def test_a_missing_key_is_named(address: str) -> None:
    [mistake] = check(load({"POSTROOM_TRANSPORT": address}))
    assert "_KEY" in mistake


async def examined(entry: ProviderEntry) -> CheckResult:
    found = await entry.examine()
    assert found.fix or found.verdict is CheckResult.RIGHT
    return found.verdict


async def test_the_doctor_says_whether_sendgrid_accepts_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with sendgrid.SendGridStub() as stub:
        monkeypatch.setitem(sendgrid_module.HOSTS, "", stub.url)
        entry = SendGridEntry(load({**KEYS, "POSTROOM_TRANSPORT": "sendgrid:"}))
        assert await examined(entry) is CheckResult.RIGHT
        stub.key = "another"
        assert await examined(entry) is CheckResult.WRONG


async def test_the_doctor_says_whether_azure_accepts_the_key() -> None:
    async with acs.AcsStub() as stub:
        address = "acs:https://contoso.communication.azure.com"
        entry = AcsEntry(load({**KEYS, "POSTROOM_TRANSPORT": address}))
        entry.config = AcsConfig(stub.url, acs.KEY)
        assert await examined(entry) is CheckResult.RIGHT
        entry.config = AcsConfig(stub.url, "bm8=")
        assert await examined(entry) is CheckResult.WRONG
        assert not stub.accepted


async def test_the_doctor_says_whether_ses_accepts_the_key() -> None:
    async with ses.SesStub() as stub:
        entry = SesEntry(load({**KEYS, "POSTROOM_TRANSPORT": "ses:eu-central-1"}))
        entry.config = SesConfig(ses.REGION, ses.KEY_ID, ses.SECRET, base_url=stub.url)
        assert await examined(entry) is CheckResult.RIGHT
        entry.config = SesConfig(ses.REGION, ses.KEY_ID, "another", base_url=stub.url)
        assert await examined(entry) is CheckResult.WRONG


async def test_the_doctor_names_a_provider_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sendgrid_module.HOSTS, "", "http://127.0.0.1:1")
    entry = SendGridEntry(load({**KEYS, "POSTROOM_TRANSPORT": "sendgrid:"}))
    assert await examined(entry) is CheckResult.WRONG
