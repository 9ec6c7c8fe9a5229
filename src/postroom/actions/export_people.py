"""Action, export people: write everyone on a list into a file that an import can read again.

Before: a list, of any length.
After: a header and a row for everyone who is meant, in the order of their addresses.
Dies half-way: the file ends early; nothing was changed.
Commit point: none, it only reads. People who join or leave meanwhile may be in it or not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from postroom.domain.csv_rows import EMAIL, SINCE, SUBSCRIPTION
from postroom.domain.errors import BadInput
from postroom.domain.subscriber import SubscriberFilter, subscription
from postroom.domain.texts import _
from postroom.records import lists, subscribers
from postroom.storage.port import Tables

COLUMNS_MAX = 1000  # the header must be known before the first row is written
_OURS = (EMAIL, SUBSCRIPTION, SINCE)


class TooManyColumns(BadInput):
    """The attributes of a list do not fit into one header."""


async def columns(tables: Tables, list_name: str, standing: SubscriberFilter) -> list[str]:
    """The header: one look over the list, for the attributes that anybody has."""
    await lists.read(tables, list_name)
    names: set[str] = set()
    async for attributes in subscribers.attributes_of_all(tables, list_name, standing):
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
    tables: Tables, list_name: str, standing: SubscriberFilter, header: Sequence[str]
) -> AsyncIterator[list[object]]:
    """One for everyone, with the cells that `columns` names."""
    names = header[len(_OURS) :]
    async for one in subscribers.everyone(tables, list_name, standing):
        values = [one.attributes.get(name, "") for name in names]
        yield [one.address, subscription(one), one.since, *values]
