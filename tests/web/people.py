"""People of a list as the admin pages show them: joined, gone, looked up."""

from __future__ import annotations

import re
from html import unescape

from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import InactiveReason, Subscriber
from postroom.flow import subscribe
from postroom.records import lists, subscribers
from tests.acting import acting
from tests.web.office import LIST, NOW
from tests.web.signed_in import Worker

SECOND = "contoso2"
NEW = f"/admin/subscribers/new?list={LIST}"
ROW = re.compile(r'<td class="words"><a href="([^"]+)">([^<]+)</a>')


async def join(
    editor: Worker, address: str, *, verified: bool = True, name: str = LIST, **attributes: str
) -> Subscriber:
    return await subscribe.add(
        acting(editor.office.storage, NOW),
        name,
        parse_address(address),
        attributes,
        verified=verified,
    )


async def leave(
    editor: Worker, one: Subscriber, why: InactiveReason = InactiveReason.UNSUBSCRIBED
) -> None:
    tables = editor.office.storage.tables
    await subscribe.leave(acting(tables, NOW), one.list_name, one.guid, why)


async def second_list(editor: Worker) -> None:
    made = MailingList(name=SECOND, description="", sender="a@contoso.edu", created_at=NOW)
    await lists.create(editor.office.storage.tables, made)


async def stored(editor: Worker, address: str, name: str = LIST) -> Subscriber | None:
    key = parse_address(address).storage_key
    found = await subscribers.find(editor.office.storage.tables, name, key)
    return found[0] if found else None


def shown(page: str) -> list[str]:
    return [unescape(address) for _path, address in ROW.findall(page)]


async def path_of(editor: Worker, address: str, name: str = LIST) -> str:
    page = await editor.get("/admin/subscribers", list=name, q=address)
    return str(next(path for path, each in ROW.findall(page.text) if unescape(each) == address))


def etag_of(page: str) -> str:
    return page.partition('name="etag" value="')[2].partition('"')[0]


def next_of(page: str) -> str:
    """The link to the next page."""
    return unescape(page.partition("Next page")[0].rpartition('href="')[2].partition('"')[0])
