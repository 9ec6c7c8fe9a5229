"""One subscriber: how their page is found, and what the forms about them share.

Pages are found by the sealed address key: no path contains an email address, and the path stays the
same when somebody unsubscribes and is re-added. The GUID of an active subscriber works as well,
because messages know people by it.
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
    sealed = seal(context.site.secret, f"person of {list_name}", key)
    return f"/admin/subscribers/{list_name}/{sealed}"


def unseal_key(context: WebContext, list_name: str, sealed: str) -> str | None:
    """The address key in a path; None if it is not ours."""
    return unseal(context.site.secret, f"person of {list_name}", sealed)


async def find_person(context: WebContext, list_name: str, person_id: str) -> Stored[Subscriber]:
    """The subscriber, active or not; NotFound if the link is not valid or the row is deleted."""
    tables = context.storage.tables
    found = None
    list_named(list_name)
    if _GUID.fullmatch(person_id):
        found = await subscribers.find_by_guid(tables, list_name, person_id)
    elif key := unseal_key(context, list_name, person_id):
        found = await subscribers.find(tables, list_name, key)
    if found is None:
        raise NotFound(_("This person is not on the list."))
    return found


async def was_added_by(
    submission: Submission, tables: Tables, list_name: str, address: Address
) -> bool:
    """Whether an earlier submission of the same form added them."""
    found = await subscribers.find(tables, list_name, address.storage_key)
    one = found.value if found else None
    return bool(submission.is_again and one and not one.gone and one.since == submission.at)


def parse_attributes(text: str) -> dict[str, str]:
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
