"""A delivery as properties, in its batch and in the archive.

This is faster than rows.py, which matters because a large message has a million deliveries. They
share the format number of their message.
"""

from __future__ import annotations

import msgspec

from postroom.domain.delivery import Delivery
from postroom.records.rows import DESCRIBED, Unreadable, check_format
from postroom.storage.port import FlatRow, Row

TO = "to:"  # row key prefix, followed by the address key
_encode = msgspec.json.Encoder().encode
_attributes = msgspec.json.Decoder(dict[str, str]).decode


def property_name(field: str) -> str:
    return DESCRIBED.get(field) or field.title().replace("_", "")


class DeliveryRow(FlatRow, frozen=True, omit_defaults=True, rename=property_name):
    position: int
    address: str
    guid: str
    attributes: str = ""  # JSON


def to_row(delivery: Delivery) -> DeliveryRow:
    attributes = delivery.attributes
    return DeliveryRow(
        delivery.position,
        delivery.address,
        delivery.guid,
        _encode(attributes).decode() if attributes else "",
    )


def parse_attributes(text: str) -> dict[str, str]:
    try:
        return _attributes(text)
    except msgspec.DecodeError as error:
        raise Unreadable(f"Attributes cannot be read: {error}.") from error


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
