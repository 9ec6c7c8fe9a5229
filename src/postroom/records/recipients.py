"""The people to whom a message goes, read from the rows of its list in the order of address keys.

This is faster than subscribers.py, and reads only what a delivery needs, because there may be a
million of them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from postroom.domain.message import MergeFields
from postroom.domain.subscriber import Subscriber
from postroom.records.deliveries import attribute_filter
from postroom.records.rows import FORMAT, Unreadable, check_format, first_rows, property_names
from postroom.records.subscribers import EMAIL, END, TABLE
from postroom.storage.port import SCAN_ROWS_MAX, FlatRow, KeysWithin, Properties, Row, Tables

_VERIFIED: Properties = {"Verified": True}
_names = property_names(Subscriber)


class Recipient(msgspec.Struct, frozen=True, gc=False):
    """The part of a subscriber that a delivery needs, because there may be a million."""

    key: str
    address: str
    guid: str
    attributes: str  # JSON, checked; "" if there are none


async def verified_after(
    tables: Tables,
    list_name: str,
    after_key: str,
    *,
    limit: int,
    merge_fields: MergeFields | None = None,
) -> tuple[list[Recipient], bool]:
    """Return the next verified subscribers in key order, and whether these are the last.

    They have only the attributes that the message uses.
    """
    reduce = attribute_filter(merge_fields)
    # The space sorts before every character of a key: strictly after `after_key`.
    start = f"{EMAIL}{after_key} " if after_key else EMAIL
    keys = KeysWithin(list_name, start, EMAIL + END)
    try:
        return await _typed_recipients(tables, keys, limit, reduce)
    except Unreadable:  # row by row: what is wrong, unless they can be read after all
        rows, has_more = await first_rows(tables, TABLE, keys, where=_VERIFIED, limit=limit)
        return [_of_row(row, reduce) for row in rows], not has_more


class _RecipientRow(FlatRow, frozen=True, rename=lambda field: _names.get(field, "Format")):
    key: str
    address: str
    guid: str
    attributes: str = ""
    format: int = FORMAT


async def _typed_recipients(
    tables: Tables, keys: KeysWithin, limit: int, reduce: Callable[[str], str]
) -> tuple[list[Recipient], bool]:
    found: list[Recipient] = []
    after: str | None = None
    while len(found) < limit:
        room = min(limit - len(found), SCAN_ROWS_MAX)
        page = await tables.scan_as(
            _RecipientRow, TABLE, keys, where=_VERIFIED, limit=room, after=after
        )
        for row in page.rows:
            one = row.properties
            if one.format != FORMAT:
                raise Unreadable("a row of another format")
            attributes = reduce(one.attributes) if one.attributes else ""
            found.append(Recipient(one.key, one.address, one.guid, attributes))
        after = page.next
        if after is None:
            break
    return found, after is None


def _of_row(row: Row, reduce: Callable[[str], str]) -> Recipient:
    properties = row.properties
    check_format(properties)
    try:
        attributes = str(properties.get("Attributes") or "")
        return Recipient(
            str(properties["AddressKey"]),
            str(properties["EmailAddress"]),
            str(properties["SubscriberGUID"]),
            reduce(attributes) if attributes else "",
        )
    except KeyError as error:
        raise Unreadable(f"A row is not a complete Subscriber: {error}.") from error
