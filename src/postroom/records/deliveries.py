"""A delivery as properties, in its batch and in the archive.

This is faster than rows.py, which matters because a large message has a million deliveries. They
share the format number of their message.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec

from postroom.domain.delivery import Delivery
from postroom.domain.message import MergeFields
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


@functools.lru_cache(maxsize=64)
def attribute_filter(merge_fields: MergeFields | None) -> Callable[[str], str]:
    """What reduces stored attributes to those that a message uses; both are JSON.

    Deliveries are read and written a million times, often with one attribute of many in use.
    """
    if merge_fields is None:
        return _checked
    names = {f"field_{at}": name for at, name in enumerate(merge_fields.names)}
    used = msgspec.defstruct(
        "UsedAttributes",
        [(field, str, "") for field in names],
        rename=names,
        omit_defaults=True,
        gc=False,
    )
    decode = msgspec.json.Decoder(used).decode

    def reduced(text: str) -> str:
        try:
            found = _encode(decode(text))
        except msgspec.DecodeError as error:
            raise Unreadable(f"Attributes cannot be read: {error}.") from error
        return "" if found == b"{}" else found.decode()

    return reduced


def _checked(text: str) -> str:
    parse_attributes(text)
    return text


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
