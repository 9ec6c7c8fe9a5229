"""Held deliveries: nobody can tell whether they arrived, and a person decides."""

from __future__ import annotations

from uuid import uuid4

import msgspec
import pytest
from playwright.async_api import Page, expect

from postroom.domain.address import parse_address
from postroom.domain.delivery import Delivery, Ledger
from postroom.domain.message import OnDoubt, Status
from postroom.flow import subscribe
from postroom.flow.compose import Draft, compose
from postroom.records import batches, messages
from postroom.records.recipients import Recipient
from postroom_bench.installation import until
from tests.acting import acting
from tests.browser.chromium import axe
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

PEOPLE = 3
SETTLED_S_MAX = 120.0


async def held_message(site: RunningSite, subject: str) -> str:
    """A message whose every delivery is held, as after a line that broke; its ref."""
    storage, now = site.parts.storage, site.parts.clock.now()
    name = f"held_{uuid4().hex[:8]}"
    await site.run("list", "create", name, "--from", "a@contoso.edu")
    deliveries = []
    for at in range(PEOPLE):
        address = parse_address(f"student{at}@contoso.edu")
        one = await subscribe.add(acting(storage, now), name, address, {}, verified=True)
        deliveries.append(Delivery(at, one.key, one.address, one.guid))
    draft = Draft(list_name=name, subject=subject, html="<p>News</p>", on_doubt=OnDoubt.HOLD)
    message = await compose(acting(storage, now), draft)
    ref = message.ref
    recipients = [Recipient(one.key, one.address, one.guid, "") for one in deliveries]
    await batches.write_batches(storage.tables, message, [recipients])
    first, last = deliveries[0].key, deliveries[-1].key
    ledger = Ledger(ref=ref, batch=0, states="h" * PEOPLE, first=first, last=last)
    await batches.insert_ledgers(storage.tables, [ledger])
    found = await messages.find_live(storage.tables, ref)
    assert found
    going = msgspec.structs.replace(
        found[0],
        status=Status.PROCESSING,
        due_at=now,
        queuing_at=now,
        batches=1,
        audience=PEOPLE,
        fanned_out=True,
        batches_requeued=1,
    )
    await messages.put_due(storage.tables, going, now)
    await messages.replace(storage.tables, going, found[1])
    site.parts.wakeups.ring("scheduler")
    return ref


async def is_completed(site: RunningSite, ref: str) -> bool:
    return (await messages.read(site.parts.storage.tables, ref)).completed_at is not None


@pytest.mark.parametrize(
    ("choice", "mails"), [("Send again", PEOPLE), ("Mark as sent", 0)], ids=["again", "sent"]
)
async def test_a_person_decides_on_the_held(
    site: RunningSite, any_page: Page, choice: str, mails: int
) -> None:
    subject = f"Held {uuid4().hex[:8]}"
    ref = await held_message(site, subject)
    await until(lambda: is_completed(site, ref), within_s=SETTLED_S_MAX)
    await sign_in_page(site, any_page)
    await any_page.goto(f"{site.url}/admin/messages/{ref}")
    await expect(any_page.get_by_role("cell", name="student0@contoso.edu")).to_be_visible()
    await any_page.get_by_role("link", name="Review 3 held deliveries…").click()
    await expect(any_page.get_by_role("heading", name="3 held deliveries")).to_be_visible()
    await any_page.get_by_label(choice).check()
    await any_page.get_by_role("button", name="Apply to all 3").click()
    await expect(any_page.get_by_role("status").first).to_contain_text("Done.")
    await until(lambda: is_completed(site, ref), within_s=SETTLED_S_MAX)
    await any_page.goto(f"{site.url}/admin/messages/{ref}")
    await expect(any_page.get_by_text("3 recipients, all accounted for.")).to_be_visible()
    await expect(any_page.get_by_role("link", name="sent 3")).to_be_visible()
    subjects = [mail["Subject"] for mail in await site.mails()]
    assert subjects.count(subject) == mails


async def test_the_pages_of_held_ones_have_no_barrier(site: RunningSite, page: Page) -> None:
    ref = await held_message(site, "Held, looked at")
    await until(lambda: is_completed(site, ref), within_s=SETTLED_S_MAX)
    await sign_in_page(site, page)
    for path in (f"/admin/messages/{ref}", f"/admin/messages/{ref}/decide"):
        await page.goto(site.url + path)
        assert await axe(page) == [], path
