"""Action, export people: write everyone on a list into a file that an import can read again.

Before: a list, of any length.
After: a header and one row per person, in the order of their addresses.
Dies half-way: the file ends early; nothing was changed.
Commit point: none, it only reads. People who join or unsubscribe meanwhile may be in it or not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from postroom.domain.csv_rows import EMAIL, SINCE, SUBSCRIPTION
from postroom.domain.errors import BadInput
from postroom.domain.subscriber import SubscriberFilter, subscription
from postroom.domain.texts import _
from postroom.records import lists, subscribers
from postroom.storage.port import Tables

COLUMNS_MAX = 1000  # kept in memory, because the header comes before the first row
_OURS = (EMAIL, SUBSCRIPTION, SINCE)


class TooManyColumns(BadInput):
    """A list has more attributes than a header can have columns."""


async def columns(tables: Tables, list_name: str, chosen: SubscriberFilter) -> list[str]:
    """Return the header, after reading the whole list for the names of all attributes."""
    await lists.read(tables, list_name)
    names: set[str] = set()
    async for attributes in subscribers.attributes_of_all(tables, list_name, chosen):
        names.update(attributes)
        if len(names) > COLUMNS_MAX:
            raise TooManyColumns(
                _(
                    "{name} has more than {limit} attributes, too many for the columns of a CSV "
                    "file.",
                    name=list_name,
                    limit=COLUMNS_MAX,
                )
            )
    return [*_OURS, *sorted(names)]


async def rows(
    tables: Tables, list_name: str, chosen: SubscriberFilter, header: Sequence[str]
) -> AsyncIterator[list[object]]:
    """Yield one row per person, with the cells that `columns` names."""
    names = header[len(_OURS) :]
    async for one in subscribers.everyone(tables, list_name, chosen):
        values = [one.attributes.get(name, "") for name in names]
        yield [one.address, subscription(one), one.since, *values]
