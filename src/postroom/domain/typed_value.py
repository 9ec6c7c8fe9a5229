"""Values of properties as text with a type, so that people can read and change them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import _, pgettext

Value = str | int | float | bool
INT_MAX = 2**63 - 1


class ValueType(StrEnum):
    TEXT = "text"
    TIME = "time"  # stored as text, in UTC
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"


VALUE_TYPE_TEXTS = {
    ValueType.TEXT: pgettext("type of a value", "text"),
    ValueType.TIME: pgettext("type of a value", "time (UTC)"),
    ValueType.INT: pgettext("type of a value", "whole number"),
    ValueType.FLOAT: pgettext("type of a value", "decimal number"),
    ValueType.BOOL: pgettext("type of a value", "true or false"),
}


def type_of(value: Value) -> ValueType:
    match value:
        case bool():
            return ValueType.BOOL
        case int():
            return ValueType.INT
        case float():
            return ValueType.FLOAT
        case str() if _is_time(value):
            return ValueType.TIME
        case _:
            return ValueType.TEXT


def value_text(value: Value) -> str:
    """The value as `parse_value` reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def parse_value(type_: ValueType, text: str) -> Value:
    """Parse a value of this type, exactly as it is stored; BadInput if it has another type."""
    match type_:
        case ValueType.TEXT:
            return text
        case ValueType.TIME:
            return _parse_time(text.strip())
        case ValueType.BOOL:
            if text.strip() not in ("true", "false"):
                raise BadInput(_("Enter true or false."))
            return text.strip() == "true"
        case ValueType.INT:
            return _parse_int(text.strip())
        case ValueType.FLOAT:
            return _parse_float(text.strip())


def _parse_int(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise BadInput(_("Enter a whole number.")) from None
    if not -INT_MAX - 1 <= number <= INT_MAX:
        raise BadInput(_("This number is too large for storage."))
    return number


def _parse_float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(_("Enter a number, such as 0.5."))
    return number


def _parse_time(text: str) -> str:
    """As rows have it; a time without a zone is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(_("Enter a time in UTC, such as 2026-11-20T09:00:00Z.")) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return str(msgspec.to_builtins(moment))


def _is_time(text: str) -> bool:
    """Whether a text is a time exactly as rows have it, so that editing changes nothing else."""
    if len(text) < len("2026-11-20T09:00:00Z") or text[4:5] != "-" or text[-1:] != "Z":
        return False
    try:
        return _parse_time(text) == text
    except BadInput:
        return False
