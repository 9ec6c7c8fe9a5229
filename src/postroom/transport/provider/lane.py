"""The lane of a provider: one call after another until every mail of the slice has its outcome.

    refused for now (429)       waits as long as the provider says, up to a bound; then given back
    refused because of one      the named ones are rejected, or the call is halved until it is found
    our account is refused      the rest of the slice is given back, and nobody loses an attempt
    the reply is lost           asked for, where the provider can be asked; otherwise in doubt

Dies half-way: the journal knows which mails were in the call; those are in doubt.
"""

from __future__ import annotations

import ssl
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard, assert_never

import msgspec

from postroom.clock import Clock
from postroom.domain.outcome import (
    Deferred,
    Outcome,
    Rejected,
    Scope,
    Sent,
    Unknown,
    Untried,
    clip,
    is_fault,
)
from postroom.domain.trouble import Fault, TroubleKind, one_line, sentence
from postroom.transport.port import HandOverWatch, OutgoingMail, new_lane_id
from postroom.transport.provider.connection import (
    CallStopped,
    HttpReply,
    HttpRequest,
    HttpTimeouts,
    NotSent,
    ProviderConnection,
    ReplyLost,
)

WAIT_S_MAX = 15.0  # that a slice waits for a provider that is busy; then the item is given back
WAIT_S_MIN = 0.5  # a provider that says "now" is not asked again at once
STEP_S = 0.5  # of a wait: a stop is noticed this soon
HALVINGS_MAX = 24  # in a slice: finds three bad recipients among 99, and not everybody's call alone
ASKS_MAX = 3  # how often a lost reply is asked for
WORKS_S = 600.0  # a provider that accepted a mail this recently works
ASK_S = 10.0  # longest wait for the answer to a question
LOST_IN_A_ROW_MAX = 2  # replies; then the rest of the slice is given back
RESENDS_MAX = 2  # of a mail that the provider does not know although we sent it
NOT_ASCII = Rejected("the address is not ASCII, which the provider does not support", False)


class CallOutcomes(msgspec.Struct, frozen=True):
    """The outcome of every mail of the call, in order; None if it was refused only for now."""

    outcomes: list[Outcome | None]
    wait_s: float = 1.0  # before the refused ones are sent again
    words: str = ""  # why they were refused


class NamedRefusals(msgspec.Struct, frozen=True):
    """Nothing was accepted, because of these places of the call."""

    refused: dict[int, Rejected]


class WholeRefusal(msgspec.Struct, frozen=True):
    """Nothing was accepted; one mail of the call or its size may be the reason."""

    words: str


class ThrottleNotice(msgspec.Struct, frozen=True):
    """Nothing was accepted for now; the provider says how long to wait."""

    wait_s: float
    words: str
    is_error: bool = False  # of the service: one mail of the call may be the reason


class AccountFault(msgspec.Struct, frozen=True):
    """Nothing was accepted, and nothing will be until somebody acts or the trouble passes."""

    fault: Fault


class CallDoubt(msgspec.Struct, frozen=True):
    """The answer does not say whether the mails were accepted."""

    words: str


CallVerdict = (
    CallOutcomes | NamedRefusals | WholeRefusal | ThrottleNotice | AccountFault | CallDoubt
)


class UnknownToProvider(msgspec.Struct, frozen=True):
    """The provider never got the mail, so it may be sent again."""


class MailProvider(Protocol):
    """What differs from provider to provider."""

    @property
    def server(self) -> str:
        """For people; without secrets."""

    @property
    def mail_bytes_max(self) -> int:
        """The largest email, with everything encoded."""

    def calls(self, mails: Sequence[OutgoingMail]) -> list[list[int]]:
        """The places of the mails that go together in one call."""

    def request(self, mails: Sequence[OutgoingMail]) -> HttpRequest: ...

    def verdict(self, mails: Sequence[OutgoingMail], reply: HttpReply) -> CallVerdict: ...

    def question(self, mail: OutgoingMail) -> HttpRequest | None:
        """The request that asks for the status of a mail; None if the provider cannot be asked."""

    def settled(self, reply: HttpReply) -> Outcome | UnknownToProvider | None:
        """What the answer to a question says; None if it says nothing."""


@dataclass
class ProviderTransport:
    """One provider; every lane has its own connection to it."""

    provider: MailProvider
    clock: Clock
    url: str
    secrets: tuple[str, ...] = field(repr=False, default=())
    timeouts: HttpTimeouts = field(default_factory=HttpTimeouts)
    _context: ssl.SSLContext | None = None
    _lanes: list[ProviderLane] = field(default_factory=list)

    def lane(self) -> ProviderLane:
        lane = ProviderLane(self.provider, self.client(), self.clock)
        self._lanes.append(lane)
        return lane

    def client(self) -> ProviderConnection:
        if self._context is None:  # costs tens of milliseconds: one for all lanes
            self._context = ssl.create_default_context()
        return ProviderConnection(self.url, self._context, self.timeouts, self.secrets)

    async def close(self) -> None:
        while self._lanes:
            await self._lanes.pop().close()


@dataclass
class _Slice:
    """The mails of one send call, and the outcome of each."""

    mails: Sequence[OutgoingMail]
    watch: HandOverWatch
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    handed: set[int] = field(default_factory=set)
    waited_s: float = 0.0
    halvings: int = 0
    lost_in_a_row: int = 0  # replies that were neither got nor found by asking
    resends: Counter[int] = field(default_factory=Counter)
    stopped: bool = False
    fault: Deferred | None = None  # why nothing more is sent

    def may_hand_over(self) -> bool:
        self.stopped = self.stopped or not self.watch.may_hand_over()
        return not self.stopped

    def settle(self, place: int, outcome: Outcome) -> None:
        if place not in self.outcomes:
            self.outcomes[place] = outcome
            self.watch.answered({self.mails[place].position: outcome})

    def hand_over(self, places: Sequence[int]) -> bool:
        """Check the permission and note the hand-over; called just before the body is written."""
        if not self.may_hand_over():
            return False
        self.handed.update(places)
        self.watch.handing_over([self.mails[at].position for at in places])
        return True

    def give_back(self, places: Sequence[int]) -> None:
        """The provider has accepted none of these: they may be sent again."""
        back = [at for at in places if at in self.handed]
        self.handed.difference_update(back)
        if back:
            self.watch.returned([self.mails[at].position for at in back])

    def is_out_of_time(self, wait_s: float) -> bool:
        return self.waited_s + wait_s > WAIT_S_MAX

    def stop_for(self, fault: Fault, server: str) -> None:
        words = clip(str(sentence(fault.kind, server, fault.words)))
        self.fault = Deferred(words, Scope.PROVIDER, reached=False, fault=fault)

    def settle_rest(self) -> list[Outcome]:
        rest = self.fault or Untried("stopped before the hand-over")
        for place in range(len(self.mails)):
            self.settle(place, rest)
        return [self.outcomes[place] for place in range(len(self.mails))]


class ProviderLane:
    def __init__(self, provider: MailProvider, client: ProviderConnection, clock: Clock) -> None:
        self.id = new_lane_id()
        self._provider = provider
        self._client = client
        self._clock = clock
        self._accepted_at: float | None = None  # by the monotonic clock

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        slice_ = _Slice(mails, watch)
        for place, mail in enumerate(mails):
            if not mail.recipient.isascii():
                slice_.settle(place, NOT_ASCII)
            elif too_large := _too_large(mail, self._provider):
                slice_.settle(place, too_large)
        sendable = [at for at in range(len(mails)) if at not in slice_.outcomes]
        calls = self._provider.calls([mails[at] for at in sendable])
        waiting = deque([sendable[at] for at in call] for call in calls)
        while waiting and not slice_.fault and slice_.may_hand_over():
            places = waiting.popleft()
            waiting.extendleft(reversed(await self._call(slice_, places)))
        return slice_.settle_rest()

    async def close(self) -> None:
        await self._client.close()

    async def _call(self, slice_: _Slice, places: list[int]) -> list[list[int]]:
        """Make one call; returns the places that are to be sent again, by call."""
        mails = [slice_.mails[at] for at in places]
        request = self._provider.request(mails)
        result = await self._client.call(request, lambda: slice_.hand_over(places))
        match result:
            case CallStopped():
                return []
            case NotSent(fault=fault):
                slice_.give_back(places)
                slice_.stop_for(fault, self._provider.server)
                return []
            case ReplyLost(words=words, is_silent=is_silent):
                slice_.lost_in_a_row += LOST_IN_A_ROW_MAX if is_silent else 1
                return await self._settle_doubt(slice_, places, words)
            case HttpReply():
                slice_.lost_in_a_row = 0
                verdict = self._provider.verdict(mails, result)
                return await self._apply(slice_, places, verdict)
            case _:
                assert_never(result)

    async def _apply(
        self, slice_: _Slice, places: list[int], verdict: CallVerdict
    ) -> list[list[int]]:
        match verdict:
            case CallOutcomes(outcomes=outcomes):
                for at, outcome in zip(places, outcomes, strict=True):
                    if outcome is not None:
                        slice_.settle(at, outcome)
                if any(isinstance(outcome, Sent) for outcome in outcomes):
                    self._accepted_at = self._clock.monotonic()
                slice_.fault = next(filter(_is_provider_fault, outcomes), None)
                busy = [at for at, outcome in zip(places, outcomes, strict=True) if not outcome]
                slice_.give_back(busy)
                if not busy or slice_.fault:
                    return []
                return await self._wait(slice_, busy, verdict.wait_s, verdict.words)
            case NamedRefusals(refused=refused):
                for place, outcome in refused.items():
                    slice_.settle(places[place], outcome)
                rest = [at for place, at in enumerate(places) if place not in refused]
                slice_.give_back(rest)
                return [rest] if rest else []
            case WholeRefusal(words=words):
                return self._halve(slice_, places, words)
            case ThrottleNotice(wait_s=wait_s, words=words, is_error=is_error):
                if is_error and self._works_for_others() and slice_.is_out_of_time(wait_s):
                    for at in places:
                        slice_.settle(at, Deferred(clip(words), Scope.ADDRESS))
                    return []
                slice_.give_back(places)
                return await self._wait(slice_, places, wait_s, words)
            case AccountFault(fault=fault):
                slice_.give_back(places)
                slice_.stop_for(fault, self._provider.server)
                return []
            case CallDoubt(words=words):
                return await self._settle_doubt(slice_, places, words)
            case _:
                assert_never(verdict)

    def _halve(self, slice_: _Slice, places: list[int], words: str) -> list[list[int]]:
        if len(places) == 1:
            slice_.settle(places[0], Rejected(clip(words), address_fault=False))
            return []
        if slice_.halvings == HALVINGS_MAX:  # it may be everybody's: an attempt, and not the end
            for at in places:
                slice_.settle(at, Deferred(clip(words), Scope.ADDRESS))
            return []
        slice_.halvings += 1
        slice_.give_back(places)
        middle = len(places) // 2
        return [places[:middle], places[middle:]]

    async def _wait(
        self, slice_: _Slice, places: list[int], wait_s: float, words: str
    ) -> list[list[int]]:
        """Wait as the provider asks and send again; give everything back if it is too long."""
        wait_s = max(wait_s, WAIT_S_MIN)
        if slice_.is_out_of_time(wait_s):
            fault = Fault(TroubleKind.THROTTLED, one_line(words))
            slice_.stop_for(fault, self._provider.server)
            return []
        slice_.waited_s += wait_s
        await self._pause(wait_s, slice_.may_hand_over)
        return [places]

    def _works_for_others(self) -> bool:
        """Whether the provider accepted a mail recently: then an error may be this call's own."""
        since = self._accepted_at
        return since is not None and self._clock.monotonic() < since + WORKS_S

    async def _pause(self, seconds: float, may_go_on: Callable[[], bool]) -> None:
        while seconds > 0 and may_go_on():
            await self._clock.sleep(min(seconds, STEP_S))
            seconds -= STEP_S

    async def _settle_doubt(self, slice_: _Slice, places: list[int], words: str) -> list[list[int]]:
        """Ask for each mail whose reply was lost; what cannot be asked is in doubt."""
        again: list[list[int]] = []
        for at in places:
            found = await self._ask(slice_.mails[at])
            if found is not None:
                slice_.lost_in_a_row = 0
            if found is None:
                slice_.settle(at, Unknown(clip(f"handed over, then {words}")))
            elif not isinstance(found, UnknownToProvider):
                slice_.settle(at, found)
            else:
                slice_.give_back([at])
                slice_.resends[at] += 1
                again.append([at])
                if slice_.resends[at] > RESENDS_MAX:
                    slice_.stop_for(Fault(TroubleKind.BROKEN, words), self._provider.server)
        if slice_.lost_in_a_row >= LOST_IN_A_ROW_MAX:  # or each mail would wait for minutes
            slice_.stop_for(Fault(TroubleKind.BROKEN, words), self._provider.server)
        return again

    async def _ask(self, mail: OutgoingMail) -> Outcome | UnknownToProvider | None:
        wait_s = WAIT_S_MIN
        for _ in range(ASKS_MAX):
            question = self._provider.question(mail)
            if question is None:
                return None
            reply = await self._client.call(question, call_s=ASK_S)
            if isinstance(reply, HttpReply):
                found = self._provider.settled(reply)
                if found is not None:
                    return found
            await self._clock.sleep(wait_s)
            wait_s *= 2
        return None


def _too_large(mail: OutgoingMail, provider: MailProvider) -> Untried | None:
    """Attachments that leave no room for the bodies: no email of the message is accepted."""
    tail = mail.compiled.tail
    if not tail:
        return None
    size = len(tail) + mail.compiled.template_bytes
    if size <= provider.mail_bytes_max:
        return None
    limit = provider.mail_bytes_max
    words = f"the email is about {size} bytes, but {provider.server} accepts at most {limit}"
    return Untried(words, too_large=True)


def _is_provider_fault(outcome: Outcome | None) -> TypeGuard[Deferred]:
    return outcome is not None and is_fault(outcome)
