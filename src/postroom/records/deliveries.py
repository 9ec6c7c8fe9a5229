"""A delivery as properties, in its batch and in the archive.

This is faster than rows.py, which matters because a large message has a million deliveries. They
share the format number of their message.
"""

from __future__ import annotations

import msgspec

from postroom.domain.delivery import Delivery
from postroom.records.rows import Unreadable, check_format
from postroom.storage.port import Row, Value

TO = "to:"  # row key prefix, followed by the address key
_attributes = msgspec.json.Decoder(dict[str, str]).decode


def to_row(delivery: Delivery, *, with_attributes: bool = True) -> dict[str, Value]:
    row: dict[str, Value] = {
        "Position": delivery.position,
        "EmailAddress": delivery.address,
        "SubscriberGUID": delivery.guid,
    }
    if delivery.attributes and with_attributes:
        row["Attributes"] = msgspec.json.encode(delivery.attributes).decode()
    return row


def of_row(row: Row) -> Delivery:
    properties = row.properties
    check_format(properties)
    attributes = properties.get("Attributes")
    try:
        return Delivery(
            int(properties["Position"]),
            row.key[len(TO) :],
            str(properties["EmailAddress"]),
            str(properties["SubscriberGUID"]),
            _attributes(attributes) if isinstance(attributes, str) else {},
        )
    except (KeyError, ValueError) as error:
        raise Unreadable(f"A row is not a complete Delivery: {error}.") from error
