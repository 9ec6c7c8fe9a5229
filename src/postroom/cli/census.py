"""Counting the people of a list, page by page: exact, and with bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.cli.progress import progress
from postroom.records import subscribers
from postroom.storage.port import Tables

TICK_PEOPLE = 5000


@dataclass
class Census:
    verified: int = 0
    unverified: int = 0
    gone: int = 0

    @property
    def total(self) -> int:
        return self.verified + self.unverified

    def data(self) -> dict[str, int]:
        return {"verified": self.verified, "unverified": self.unverified, "gone": self.gone}


async def census(tables: Tables, list_name: str, *, quiet: bool) -> Census:
    counts = Census()
    seen = 0
    with progress(f"Counting {list_name}", quiet=quiet) as tick:
        async for one in subscribers.everyone(tables, list_name):
            counts.gone += one.gone is not None
            counts.verified += one.gone is None and one.verified
            counts.unverified += one.gone is None and not one.verified
            seen += 1
            if seen % TICK_PEOPLE == 0:
                tick(seen, None, f"{seen:,} people")
    return counts
