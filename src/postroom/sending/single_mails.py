"""The lane for single mails (confirmations and test emails), separate from the batch lanes.

It has its own connection and claims items whenever there are any, so that a new subscriber never
waits behind a long mailing. Rate limits apply as for any other lane.
Dies half-way: the items reappear when their claims expire (flow/confirm.py,
actions/send_test_mail.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from postroom.clock import Clock
from postroom.domain.outcome import Outcome
from postroom.domain.work_item import is_trial_item
from postroom.pacing.pacer import Pacer
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.records.single_mail_items import CLAIM_S, extended, together
from postroom.sending.lease import SendingLease
from postroom.storage.port import BATCH_CHANGES_MAX, CLAIM_ITEMS_MAX, Claim, Storage
from postroom.transport.port import Lane, Permit

SLICE_S = 60.0  # under a slow limit: half of what their claims last
MailConfirmations = Callable[[Sequence[Claim], Lane, Permit], Awaitable[list[Outcome]]]
MailTest = Callable[[Claim, Lane, Permit], Awaitable[Outcome | None]]


class SingleMailLane:
    """Mails one slice after the other; the role decides when."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        lease: SendingLease,
        pacer: Pacer,
        lane: Lane,
        mail_confirmations: MailConfirmations,
        mail_test: MailTest,
    ) -> None:
        self._storage = storage
        self._pacer = pacer
        self._lane = lane
        self._mail_confirmations = mail_confirmations
        self._mail_test = mail_test
        self._permit = _PacedPermit(lease, pacer, lane, clock)
        self._was_full = False  # the last claim got as many items as it asked for

    async def claim(self) -> list[Claim]:
        """The next slice of items; a larger one while many arrive."""
        limit = self._pacer.slice_max(BATCH_CHANGES_MAX, SLICE_S)
        calls = max(1, limit // CLAIM_ITEMS_MAX) if self._was_full else 1
        limit = min(limit, CLAIM_ITEMS_MAX)
        queues = self._storage.queues
        found = await together(
            [queues.claim(SINGLE_MAIL_QUEUE, limit=limit, lease_s=CLAIM_S) for _ in range(calls)]
        )
        claims = [claim for some in found for claim in some]
        self._was_full = len(claims) >= CLAIM_ITEMS_MAX
        return claims

    async def mail(self, claims: Sequence[Claim]) -> list[Outcome]:
        """Mail the items, tests first because a person is waiting; return the outcomes."""
        await self._pacer.keep_alive(must_know=True)
        tests = [claim for claim in claims if is_trial_item(claim.body)]
        confirmations = [claim for claim in claims if not is_trial_item(claim.body)]
        outcomes: list[Outcome] = []
        try:
            for claim in tests:
                outcome = await self._mail_test(claim, self._lane, self._permit)
                outcomes += [outcome] if outcome else []
            if tests:  # which may have taken long
                confirmations = await extended(self._storage.queues, confirmations)
            outcomes += await self._mail_confirmations(confirmations, self._lane, self._permit)
        finally:
            await self._pacer.release(self._lane.id)
        return outcomes

    async def close(self) -> None:
        await self._lane.close()


class _PacedPermit(Permit):
    """Permits mails while we hold our lease and their domains are within their limits."""

    def __init__(self, lease: SendingLease, pacer: Pacer, lane: Lane, clock: Clock) -> None:
        self._lease = lease
        self._pacer = pacer
        self._lane = lane
        self._clock = clock

    def may_hand_over(self) -> bool:
        return self._lease.is_held()

    async def waits_s(self, recipients: Sequence[str]) -> dict[int, float]:
        admission = await self._pacer.admit(self._lane.id, recipients)
        now_s = self._clock.now().timestamp()
        return {place: until - now_s for place, until in admission.deferred.items()}
