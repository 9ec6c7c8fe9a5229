"""Which rows of a table to show: a range or prefix of keys, and one property with its value."""

from __future__ import annotations

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import _
from postroom.domain.typed_value import ValueType, parse_value
from postroom.storage.port import Keys, KeysAcross, KeysWithin, Properties
from postroom.web.admin.admin_request import AdminRequest
from postroom.web.forms import Form

_FIELDS = ("partition", "prefix", "from", "to", "name", "type", "value")
_CHARS_MAX = 600
_LAST = "~~~~"  # sorts after every key that begins with the prefix


class RowFilter(msgspec.Struct, frozen=True):
    keys: Keys
    where: Properties | None = None

    @classmethod
    def form(cls, request: AdminRequest) -> Form:
        values = {name: request.query(name)[:_CHARS_MAX] for name in _FIELDS}
        if not values["name"]:
            values |= {"type": "", "value": ""}
        return Form(values)

    @classmethod
    def read(cls, form: Form) -> RowFilter | None:
        """The filter; None, with errors in the form, if it says something impossible."""
        start = max(form.value("from"), form.value("prefix"))
        ends = [form.value("to"), form.value("prefix") and form.value("prefix") + _LAST]
        stop = min(filter(None, ends), default="")
        partition = form.value("partition")
        keys: Keys = KeysWithin(partition, start, stop) if partition else KeysAcross(start, stop)
        name = form.value("name")
        if not name:
            return cls(keys)
        value = form.take("value", lambda text: parse_value(_type(form.value("type")), text))
        return None if value is None else cls(keys, {name: value})


def _type(text: str) -> ValueType:
    if text not in set(ValueType):
        raise BadInput(_("Choose a type."))
    return ValueType(text)
