"""The sender's lane for confirmations and test mails, beside the lanes of the batches.

It has a connection of its own and takes items whenever there are any, so that a long mailing keeps
nobody waiting who just signed up. Rate limits hold for it as for any other lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from postroom.actions import send_test_mail
from postroom.clock import Clock
from postroom.domain.outcome import Outcome
from postroom.domain.work_item import is_trial_item
from postroom.flow.confirm import SLICE_MAX, Confirmer
from postroom.flow.send import Sender
from postroom.records.leases import Right
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.records.single_mail_items import CLAIM_S, extended, together
from postroom.records.turns import Turns
from postroom.storage.port import CLAIM_ITEMS_MAX, Claim
from postroom.transport.port import Lane, Permit


class ConfirmationLane:
    """Takes one slice after the other; the role decides when."""

    def __init__(self, sender: Sender, lane: Lane) -> None:
        self._storage = sender.storage
        self._clock = sender.clock
        self._renderer = sender.renderer
        self._confirmer = Confirmer(sender.storage, sender.clock, sender.renderer, sender.rules)
        self._right = sender.right
        self._turns = sender.turns
        self._lane = lane
        self._is_busy = False  # the last look found as many items as it asked for

    async def claim(self) -> list[Claim]:
        """The next slice of items; more of them while they come in fast."""
        limit = SLICE_MAX
        if self._turns and self._turns.is_limited:
            limit = self._turns.singles(limit)
        looks = max(1, limit // CLAIM_ITEMS_MAX) if self._is_busy else 1
        limit = min(limit, CLAIM_ITEMS_MAX)
        queues = self._storage.queues
        found = await together(
            [queues.claim(SINGLE_MAIL_QUEUE, limit=limit, lease_s=CLAIM_S) for _ in range(looks)]
        )
        claims = [claim for some in found for claim in some]
        self._is_busy = len(claims) >= CLAIM_ITEMS_MAX
        return claims

    async def mail(self, claims: Sequence[Claim]) -> list[Outcome]:
        """The outcomes of what was handed over; somebody waits for a test, so those go first."""
        permit = _Permit(self._right, self._turns, self._lane, self._clock)
        if self._turns:
            await self._turns.ask()
        outcomes: list[Outcome] = []
        tests = [claim for claim in claims if is_trial_item(claim.body)]
        others = [claim for claim in claims if not is_trial_item(claim.body)]
        for claim in tests:
            tested = await send_test_mail.mail_test(
                self._storage, claim, self._lane, self._renderer, self._clock, permit
            )
            outcomes += [tested] if tested else []
        if tests:  # which may have taken long
            others = await extended(self._storage.queues, others)
        return outcomes + await self._confirmer.mail(others, self._lane, permit)

    def rest(self) -> None:
        """Nothing is on its way over this lane."""
        if self._turns:
            self._turns.end(self._lane, ())

    async def close(self) -> None:
        await self._lane.close()


class _Permit(Permit):
    """As long as we may send, and no domain is at its limit."""

    def __init__(self, right: Right, turns: Turns | None, lane: Lane, clock: Clock) -> None:
        self._right = right
        self._turns = turns
        self._lane = lane
        self._clock = clock

    def may_hand_over(self) -> bool:
        return self._right.holds()

    async def waits_s(self, recipients: Sequence[str]) -> dict[int, float]:
        late = await self._turns.put_off(self._lane, recipients) if self._turns else {}
        now_s = self._clock.now().timestamp()
        return {place: until - now_s for place, until in late.items()}
