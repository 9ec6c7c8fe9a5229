"""Visits to the pages that show storage, dead letters and the audit log."""

from __future__ import annotations

import msgspec

from postroom.domain.audit import (
    ActorKind,
    AuditAction,
    AuditActor,
    AuditKind,
    AuditOutcome,
    new_entry,
)
from postroom.domain.dead_letter import Reason, dead_letter
from postroom.domain.work_item import ConfirmItem
from postroom.records import audit
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE, SINGLE_MAIL_QUEUE, TABLES
from postroom.records.secrets import installation_secret
from tests.web.office import LIST, NOW
from tests.web.people import join
from tests.web.visitor import Visit

STORAGE = "/admin/storage"
ROW = f"{STORAGE}/tables/service/rows/"


def link_in(page: str, start: str) -> str:
    """The first link on the page that starts like this."""
    place = page.index(f'href="{start}') + len('href="')
    return page[place : page.index('"', place)]


async def at_tables(visit: Visit) -> None:
    tables = visit.owner.office.storage.tables
    await visit.get(STORAGE)
    for table in TABLES:
        await visit.get(f"{STORAGE}/tables/{table}")
    await visit.get(f"{STORAGE}/tables/nobody", 404)
    service = f"{STORAGE}/tables/service"
    await visit.get(service, 422, name="Role", type="int", value="x")
    await visit.get(service, 422, prefix="a/b")
    await visit.get(service, name="Role", type="text", value="nobody")
    await visit.get(f"{service}/new")
    await visit.post(f"{service}/new", 422, **{"new-name-0": "a b", "new-type-0": "text"})
    await visit.post(f"{service}/new", 422, key="x", **{"new-name-0": "Hash"})
    await tables.upsert("service", "test", "row", {"Text": "nobody"})
    row = link_in(await visit.get(service, partition="test"), ROW)
    await visit.get(row)
    for type_ in ("int", "float", "bool", "time", "none"):
        await visit.post(row, 422, **{"value-Text": "nobody", "type-Text": type_})
    await visit.post(row, 409, **{"value-Text": "y", "type-Text": "text", "etag": "old"})
    await visit.get(f"{row}/delete")
    await visit.post(f"{row}/delete", 409, etag="old")
    await installation_secret(tables)
    secret = link_in(await visit.get(service, partition="secret"), ROW)
    await visit.get(secret)
    await visit.post(f"{secret}/delete", 409)
    await visit.get(f"{ROW}nobody", 404)
    user = link_in(await visit.get(service, partition="user"), ROW)
    await visit.get(user)


async def at_queues_and_blobs(visit: Visit) -> None:
    storage = visit.owner.office.storage
    queue = f"{STORAGE}/queues/{MAIL_QUEUE}"
    await visit.get(queue)
    await visit.post(f"{queue}/put", 422, body="")
    await visit.post(f"{queue}/put", 303, body="nobody")
    item = link_in(await visit.get(queue), f"{queue}/items/")
    await visit.get(item)
    await visit.post(f"{item}/move", 422, to="nobody")
    await visit.post(f"{queue}/items/nobody/delete", 409)
    await visit.get(f"{queue}/items/nobody", 404)
    claims = await storage.queues.claim(MAIL_QUEUE, limit=32, lease_s=60)
    await visit.get(queue)
    for claim in claims:
        await storage.queues.complete(claim)
    blobs = f"{STORAGE}/blobs"
    await visit.get(blobs, prefix="nobody")
    await storage.blobs.put("nobody", b"nobody" * 20_000)
    await storage.blobs.put("nobody.bin", b"\0\1")
    page = await visit.get(blobs, prefix="nobody")
    await visit.get(link_in(page, f"{blobs}/"))
    blob = link_in(await visit.get(blobs, prefix="nobody.bin"), f"{blobs}/")
    await visit.get(blob)
    await visit.get(f"{blob}/delete")
    await visit.post(f"{blob}/delete", 409, seen="old")
    await visit.get(f"{blobs}/nobody", 404)


async def at_dead_letters(visit: Visit) -> None:
    page = "/admin/dead-letters"
    queues = visit.owner.office.storage.queues
    await visit.get(page)
    one = await join(visit.owner, "dead@contoso.edu", verified=False)
    confirmation = ConfirmItem(one.guid, LIST).body()
    letters = [dead_letter(MAIL_QUEUE, "nobody", reason, NOW) for reason in Reason]
    letters.append(dead_letter(SINGLE_MAIL_QUEUE, confirmation, Reason.UNREADABLE, NOW))
    for letter in letters:
        await queues.put(DEAD_LETTER_QUEUE, msgspec.json.encode(letter).decode())
    await visit.get(page)
    await visit.get("/admin")
    await visit.get(f"{page}/clear-all")
    await visit.post(f"{page}/clear", 409, id="nobody")
    malformed = (await queues.peek(DEAD_LETTER_QUEUE, limit=1))[0]
    await visit.post(f"{page}/put-back", 409, id=malformed.id)
    claims = await queues.claim(DEAD_LETTER_QUEUE, limit=32, lease_s=60)
    await visit.get(page)
    for claim in claims:
        await queues.complete(claim)


async def at_the_audit_log(visit: Visit) -> None:
    tables = visit.owner.office.storage.tables
    for kind in ActorKind:
        entry = new_entry(AuditActor(kind), AuditKind.LIST, LIST, AuditAction.CREATE, NOW)
        await audit.begin(tables, entry)
    who = AuditActor(ActorKind.USER, "owner@contoso.edu", "127.0.0.1")
    for action in AuditAction:
        await audit.begin(tables, new_entry(who, AuditKind.LIST, LIST, action, NOW))
    for outcome in AuditOutcome:
        entry = new_entry(who, AuditKind.ROW, "x", AuditAction.PUT, NOW, outcome=outcome)
        await audit.begin(tables, entry)
    page = await visit.get("/admin/audit")
    await visit.get(link_in(page, "/admin/audit?after=").replace("&amp;", "&"))
    await visit.get("/admin/audit", kind="list")
    await visit.get("/admin/audit", text="nobody at all")


VISITS = [at_tables, at_queues_and_blobs, at_dead_letters, at_the_audit_log]
