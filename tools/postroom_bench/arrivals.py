"""What came in by the end of a run: for whom, how much, and when."""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

from postroom.records import outbox
from postroom.storage.port import SCAN_ROWS_MAX, Tables
from postroom_bench.installation import Installation
from postroom_bench.sink import SAMPLE_S

Point = tuple[float, int]  # seconds, and how many there were by then


class Arrivals(NamedTuple):
    counts: Counter[str]  # how often for each address
    octets: int
    timeline: list[Point]  # by the monotonic clock, from the first mail to the last
    connections: int  # the most that brought mails at the same time


async def at_the_sink(installation: Installation) -> Arrivals:
    record = await installation.sink_record()
    counts = Counter(recipient for recipient, _ in record["mails"])
    timeline = [(at, count) for at, count in record["timeline"]]
    return Arrivals(counts, record["bytes"], timeline, record["carriers"])


async def in_the_outbox(tables: Tables) -> Arrivals:
    counts, octets, moments = Counter[str](), 0, list[float]()
    started_at = time.time() - time.monotonic()  # of the clock that all processes share
    mails, after = await outbox.newest(tables, limit=SCAN_ROWS_MAX)
    while mails:
        counts.update(mail.recipient for mail in mails)
        octets += sum(mail.bytes for mail in mails)
        moments += [mail.at.timestamp() - started_at for mail in mails]
        if after is None:
            break
        mails, after = await outbox.newest(tables, limit=SCAN_ROWS_MAX, after=after)
    return Arrivals(counts, octets, sampled(sorted(moments)), 0)


def sampled(moments: list[float]) -> list[Point]:
    """A point for the first, for the last, and at most one a sample between them."""
    points: list[Point] = []
    for number, moment in enumerate(moments, 1):
        is_last = number == len(moments)
        if is_last or not points or moment - points[-1][0] >= SAMPLE_S:
            points.append((moment, number))
    return points
