"""A delivery as properties: the same in the batch and in the archive. By hand, for a million."""

from __future__ import annotations

import msgspec

from postroom.domain.delivery import Delivery
from postroom.records.rows import FORMAT, Unreadable, check_format
from postroom.storage.port import Row, Value

TO = "to:"  # row key prefix, followed by the address key
_attributes = msgspec.json.Decoder(dict[str, str]).decode


def to_row(delivery: Delivery, *, with_attributes: bool = True) -> dict[str, Value]:
    row: dict[str, Value] = {
        "v": FORMAT,
        "position": delivery.position,
        "address": delivery.address,
        "guid": delivery.guid,
    }
    if delivery.attributes and with_attributes:
        row["attributes"] = msgspec.json.encode(delivery.attributes).decode()
    return row


def of_row(row: Row) -> Delivery:
    properties = row.properties
    check_format(properties)
    attributes = properties.get("attributes")
    try:
        return Delivery(
            int(properties["position"]),
            row.key[len(TO) :],
            str(properties["address"]),
            str(properties["guid"]),
            _attributes(attributes) if isinstance(attributes, str) else {},
        )
    except (KeyError, ValueError) as error:
        raise Unreadable(f"A row is not a whole Delivery: {error}.") from error
