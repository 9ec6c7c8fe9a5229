"""The sending lease: a sender hands mails over only while it holds its lease.

It is renewed in the background. An idle sender holds a longer lease, because no work waits if it
dies, and shortens the lease again with its first item.
Dies half-way: the lease expires, and other senders settle what was announced. A sender that stalls
stops on its own: it times its lease by the monotonic clock and ends it earlier than the others do.
"""

from __future__ import annotations

import contextlib

import structlog

from postroom.clock import Clock
from postroom.domain.breaker import MailHealth
from postroom.records import leases
from postroom.records.leases import Lease
from postroom.storage.port import Storage, StorageError

log = structlog.get_logger("sender")
IDLE_LEASES = 3  # how many times longer a lease is while there is no work


class SendingLease:
    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        owner: str,
        *,
        lease_s: float = 30.0,
        health: MailHealth | None = None,
    ) -> None:
        self.owner = owner
        self.lease_s = lease_s
        self._storage = storage
        self._clock = clock
        self._health = health or MailHealth()
        self._held: Lease | None = None
        self._expires_s = 0.0  # for the others
        self._until_s: float | None = None  # for ourselves
        self._is_stopping = False

    def is_held(self) -> bool:
        """Whether mails may be handed over now."""
        return (
            not self._is_stopping
            and self._until_s is not None
            and self._clock.monotonic() < self._until_s
        )

    def stop(self) -> None:
        """Hand over nothing more; the lease is still renewed while work in progress is finished."""
        self._is_stopping = True

    def renewed(self, asked_s: float, lasts_s: float) -> None:
        """Count from when the renewal was requested, by the monotonic clock."""
        self._until_s = asked_s + lasts_s

    async def take(self) -> None:
        await self._hold(self.lease_s)

    async def renew(self, *, is_idle: bool) -> None:
        if not is_idle:
            await self._try_to_hold(self.lease_s)
        elif not self._is_long():
            await self._try_to_hold(self.lease_s * IDLE_LEASES)

    async def shorten(self) -> None:
        """Use the short lease, because we have work: if we die, others need not wait as long."""
        if self._is_long():
            await self._try_to_hold(self.lease_s)

    async def publish_health(self) -> None:
        """Publish what is wrong with the mail server, if that has changed."""
        if self._held and self._held.mail_trouble != self._health.trouble:
            await self._try_to_hold(self.lease_s * (IDLE_LEASES if self._is_long() else 1))

    async def release(self) -> None:
        if self._held:
            with contextlib.suppress(StorageError):  # then it simply expires
                await leases.give_up(self._storage.tables, self._held)

    def _is_long(self) -> bool:
        return self._held is not None and self._expires_s > self._clock.monotonic() + self.lease_s

    async def _try_to_hold(self, lease_s: float) -> None:
        try:
            await self._hold(lease_s)
        except StorageError as error:
            log.warning("lease_not_renewed", error=type(error).__name__)

    async def _hold(self, lease_s: float) -> None:
        """Our own view of the lease ends a little earlier than everybody else's."""
        now_s = self._clock.monotonic()
        self._held = await leases.hold(
            self._storage.tables,
            leases.sender_lease(self.owner),
            self.owner,
            now=self._clock.now(),
            lease_s=lease_s,
            kept=self._held,
            troubles=self._storage.troubles,
            mail_trouble=self._health.trouble,
        )
        if self._held:
            self._expires_s = now_s + lease_s
            self.renewed(now_s, lease_s - self.lease_s / 3)
