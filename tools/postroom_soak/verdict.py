"""What a soak found: the books of every message, memory, and log lines that nothing explains."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from postroom.domain.delivery_token import DeliveryId, parse_token
from postroom.domain.message import OnDoubt
from postroom.records import messages, subscribers
from postroom.records.secrets import installation_secret
from postroom.wiring import Parts
from postroom_bench.installation import books
from postroom_soak.faults import Fault
from postroom_soak.load import IMPORTED, Load, SentMessage
from postroom_soak.roles import LogLine, MemorySample, RunningRole

AFTERWARDS = timedelta(seconds=60)  # a fault may still be heard for so long
WARM_UP_S = 60.0  # memory is compared only after this
LIVED_S_MIN = 150.0
GROWTH_MB = 12.0
GROWTH_SHARE = 0.15
LINES_SHOWN = 20


class MessageVerdict(msgspec.Struct, frozen=True, kw_only=True):
    ref: str
    list_name: str
    on_doubt: str
    status: str
    audience: int
    sent: int
    failed: int
    held: int
    skipped: int
    doubts: int
    balances: bool
    lost: int  # people who must get it, did not, and are not held or failed
    twice: int  # second copies at the sink
    after_leaving: int  # people who unsubscribed before it was written, and got it


class FaultTime(msgspec.Struct, frozen=True):
    name: str
    begun_at: datetime
    ended_at: datetime


class MemoryTrend(msgspec.Struct, frozen=True):
    """The memory of a process that lived long: in the first and in the last third of its life."""

    name: str
    lived_s: float
    before_mb: float
    after_mb: float

    @property
    def is_growing(self) -> bool:
        return self.after_mb - self.before_mb > max(GROWTH_MB, self.before_mb * GROWTH_SHARE)

    def __str__(self) -> str:
        sizes = f"{self.before_mb:.0f} to {self.after_mb:.0f} MB"
        return f"{self.name}, {self.lived_s:.0f} s: {sizes}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    minutes: float
    people: int
    messages: list[MessageVerdict]
    faults: list[FaultTime]
    not_run: list[str]
    sign_ups: int
    confirmations_lost: int
    imported: int
    imported_missing: int
    unsubscribed: int
    failed_calls: int
    exits: list[str]
    memory: list[MemoryTrend]
    unexpected: list[str]
    log_events: dict[str, int]

    @property
    def mistakes(self) -> list[str]:
        """Why the soak has failed; none if it has passed."""
        found: list[str] = []
        for each in self.messages:
            if each.lost:
                found.append(f"message {each.ref}: {each.lost} lost")
            if each.twice and each.on_doubt == OnDoubt.HOLD:
                found.append(f"message {each.ref}: {each.twice} mailed twice under hold")
            if each.twice > each.doubts and each.on_doubt == OnDoubt.RESEND:
                found.append(f"message {each.ref}: {each.twice} twice, {each.doubts} doubts")
            if not each.balances:
                found.append(f"message {each.ref}: its books do not balance")
            if each.status != "completed":
                found.append(f"message {each.ref} is {each.status}")
            if each.after_leaving:
                found.append(f"message {each.ref}: {each.after_leaving} mailed after leaving")
        if not (self.messages and self.sign_ups and self.imported and self.unsubscribed):
            found.append("the load did not run: it proves nothing")
        if self.confirmations_lost:
            found.append(f"{self.confirmations_lost} sign-ups got no confirmation")
        if self.imported_missing:
            found.append(f"{self.imported_missing} imported people are missing")
        found += [f"memory grows: {each}" for each in self.memory if each.is_growing]
        found += [f"log: {each}" for each in self.unexpected[:LINES_SHOWN]]
        found += self.exits
        return found


class Mails(msgspec.Struct):
    """What the sink has: how often each address got each message, and anything at all."""

    by_message: dict[str, Counter[str]]
    addresses: set[str]


async def read_mails(load: Load) -> Mails:
    secret = (await installation_secret(load.parts.storage.tables)).encode()
    by_message: dict[str, Counter[str]] = defaultdict(Counter)
    addresses: set[str] = set()
    for recipient, message_id in (await load.installation.sink_record())["mails"]:
        addresses.add(recipient)
        named = parse_token(secret, message_id.strip("<>").partition("@")[0])
        if isinstance(named, DeliveryId):
            by_message[named.ref][recipient] += 1
    return Mails(by_message, addresses)


async def judge_message(load: Load, sent: SentMessage, mails: Mails) -> MessageVerdict:
    counted = await books(load.parts, sent.ref)
    arrived = mails.by_message.get(sent.ref, Counter())
    must_get = {each for each in sent.members if each not in load.left}
    missing = len(must_get - arrived.keys())
    left_before = {each for each, at in load.left.items() if at < sent.written_s}
    totals = counted.books
    return MessageVerdict(
        ref=sent.ref,
        list_name=sent.list_name,
        on_doubt=sent.on_doubt.value,
        status=counted.status.value,
        audience=counted.audience,
        sent=totals.sent,
        failed=totals.failed,
        held=totals.held,
        skipped=totals.skipped,
        doubts=totals.doubts,
        balances=totals.total == counted.audience and not totals.open,
        lost=max(0, missing - totals.held - totals.failed),
        twice=sum(arrived.values()) - len(arrived),
        after_leaving=len(left_before & arrived.keys()),
    )


async def imported_missing(parts: Parts, expected: set[str]) -> int:
    there = {one.address async for one in subscribers.everyone(parts.storage.tables, IMPORTED)}
    return len(expected - there)


async def open_messages(parts: Parts, sent: Sequence[SentMessage]) -> int:
    found = [await messages.read(parts.storage.tables, each.ref) for each in sent]
    return sum(each.completed_at is None for each in found)


def memory_trends(roles: Sequence[RunningRole]) -> list[MemoryTrend]:
    """Of all processes that lived long enough to tell, after they have warmed up."""
    found: list[MemoryTrend] = []
    for each in roles:
        warm = [sample for sample in each.memory if sample.at_s >= each.started_s + WARM_UP_S]
        lived_s = warm[-1].at_s - each.started_s if warm else 0.0
        if lived_s >= LIVED_S_MIN:
            third = len(warm) // 3
            sizes = (_median(warm[:third]), _median(warm[-third:]))
            found.append(MemoryTrend(each.name, lived_s, *sizes))
    return found


def _median(samples: Sequence[MemorySample]) -> float:
    return statistics.median(sample.mb for sample in samples)


def unexpected(lines: Sequence[LogLine], faults: Sequence[tuple[Fault, FaultTime]]) -> list[str]:
    """Lines that no fault of that moment explains."""
    found: list[str] = []
    for line in lines:
        at = datetime.fromisoformat(line.at) if line.at else None
        is_explained = at is not None and any(
            line.event in fault.events and when.begun_at <= at <= when.ended_at + AFTERWARDS
            for fault, when in faults
        )
        if not is_explained:
            found.append(f"{line.role} {line.level} {line.event}: {line.text}")
    return found
