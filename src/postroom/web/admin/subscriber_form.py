"""One person of a list: how their page is found, and what forms about them have in common.

Pages are found by the sealed address key, so that no e-mail address stands in a path, and the path
stays the same whether somebody is there, gone, or back again. A GUID works as well, while its owner
is there: it is what messages know of people.
"""

from __future__ import annotations

import re

from postroom.domain.address import Address, readable_address
from postroom.domain.errors import NotFound
from postroom.domain.seal import seal, unseal
from postroom.domain.subscriber import Subscriber, attributes_from, clean_attributes
from postroom.domain.texts import _
from postroom.records import subscribers
from postroom.records.stored import Stored
from postroom.storage.port import Tables
from postroom.web.context import WebContext
from postroom.web.forms import list_named
from postroom.web.submit_once import Submission

_GUID = re.compile(r"[0-9a-f]{32}")


def person_path(context: WebContext, list_name: str, key: str) -> str:
    return f"/admin/subscribers/{list_name}/{seal(context.site.secret, _purpose(list_name), key)}"


def key_of(context: WebContext, list_name: str, who: str) -> str | None:
    """The address key, signed."""
    return unseal(context.site.secret, _purpose(list_name), who)


async def find_person(context: WebContext, list_name: str, who: str) -> Stored[Subscriber]:
    """The subscriber, active or not; NotFound if the link is not valid or the row is deleted."""
    tables = context.storage.tables
    found = None
    list_named(list_name)
    if _GUID.fullmatch(who):
        found = await subscribers.find_by_guid(tables, list_name, who)
    elif key := key_of(context, list_name, who):
        found = await subscribers.find(tables, list_name, key)
    if found is None:
        raise NotFound(_("This person is not on the list."))
    return found


async def is_own(tables: Tables, turn: Submission, list_name: str, address: Address) -> bool:
    """Whether an earlier submission of the same form added them."""
    found = await subscribers.find(tables, list_name, address.storage_key)
    return bool(turn.is_again and found and not found.value.gone and found.value.since == turn.at)


def attributes_typed(text: str) -> dict[str, str]:
    """Parse name=value, one per line."""
    return clean_attributes(attributes_from(line for line in text.splitlines() if line.strip()))


def values_of(one: Subscriber) -> dict[str, str]:
    """A subscriber as the fields of a form."""
    return {
        "address": readable_address(one.address),
        "list": one.list_name,
        "verified": "yes" if one.verified else "",
        "attributes": "\n".join(f"{name}={value}" for name, value in one.attributes.items()),
    }


def _purpose(list_name: str) -> str:
    return f"person of {list_name}"
