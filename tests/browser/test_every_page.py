"""Every admin page: no barrier in light and dark, nothing too wide for a phone, no violation.

The pages are found by following links from the overview, as a person would; a page of the route
table to which no link leads, or that was forgotten here, fails the test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from fastapi.routing import APIRoute
from playwright.async_api import Page, ViewportSize, expect

from postroom.act import Act
from postroom.actions import manage_media, manage_templates, sign_in
from postroom.domain.delivery_token import DeliveryId
from postroom.domain.feedback import (
    BounceClass,
    BounceReason,
    Classification,
    FeedbackEvent,
    FeedbackKind,
)
from postroom.domain.message_template import TemplateKind
from postroom.domain.user import Role
from postroom.feedback.webhooks.post import SubscriptionNotice
from postroom.records import feedback, keys, messages, webhooks
from postroom.records.feedback import LocatedEvent
from postroom.records.names import DEAD_LETTER_QUEUE
from postroom.web import admin
from postroom.web.signed_in import ADMIN
from postroom.writing.ready_made import ready_made
from postroom_bench.installation import until
from tests import picture_samples
from tests.browser.chromium import Troubles, axe, expect_to_fit
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page
from tests.browser.test_held import SETTLED_S_MAX, held_message, is_completed
from tests.webhook_posts import SnsTopic

LIST = "every_page"
PHONE: ViewportSize = {"width": 360, "height": 740}
DESK: ViewportSize = {"width": 1280, "height": 800}
IS_TOO_TALL = "document.documentElement.scrollHeight > document.documentElement.clientHeight"
LINKS = "[...document.querySelectorAll('main a[href], nav a[href]')].map(a => a.href)"
PAGES_MAX = 20_000  # links followed, most of them to pages seen already
# Streams, files, mails in a frame: no pages of their own. A reload of a form that was sent.
NO_PAGES = re.compile(
    r"/(live|export|download|html|mail|write|blocks)$|/templates/[^/]+/preview$|/attachments/"
)


def routes() -> Iterator[str]:
    for module in admin.MODULES:
        for route in module.router.routes:
            assert isinstance(route, APIRoute)
            if "GET" in (route.methods or ()) and not NO_PAGES.search(route.path):
                yield ADMIN + route.path


def route_of(path: str) -> str:
    """The pattern that answers this path: the first, as the application finds it."""
    for pattern in routes():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path):
            return pattern
    return path


async def furnish(site: RunningSite, page: Page, folder: Path) -> list[str]:
    """Something of everything; the pages to begin with."""
    await site.run("list", "create", LIST, "--from", "a@contoso.edu", "--public-form",
                   "--description", "Of every page")  # fmt: skip
    await site.run("subscriber", "add", LIST, "ada@contoso.edu", "--verified")
    await site.run("subscriber", "add", LIST, "bob@contoso.edu")
    await site.run("subscriber", "add", LIST, "eve@contoso.edu", "--verified")
    await site.run("subscriber", "remove", LIST, "eve@contoso.edu")
    body = folder / "body.htm"
    body.write_text("<p>Dear {{ email }}, <a href='https://contoso.edu'>news</a></p>")
    make = ("message", "create", "--list", LIST, "--subject", "Page", "--html", str(body))
    await site.run(*make)
    later = await site.json(*make, "--at", "2120-01-01T09:00Z")
    sent = await site.json(*make, "--at", "now")
    imported = await site.json("message", "import", str(body), "--list", LIST)
    await until(lambda: is_completed(site, sent["ref"]), within_s=SETTLED_S_MAX)
    held = await held_message(site, "Held page")
    await until(lambda: is_completed(site, held), within_s=SETTLED_S_MAX)
    await site.run("limit", "set", "--domain", "limited.contoso.edu", "--mails-per-second", "500")
    await site.run("suppression", "add", "dead@contoso.edu", "--note", "They asked for it")
    columns = await _upload(site, page, folder)
    tables, now = site.parts.storage.tables, site.parts.clock.now()
    invitation = await sign_in.invite(tables, "new@contoso.edu", Role.VIEWER, now)
    await keys.create(tables, "Web site", (LIST,), now)
    await sign_in.add_user(tables, "colleague@contoso.edu", Role.EDITOR, uuid4().hex, now)
    await _come_back(site, sent["ref"])
    act = Act(site.parts.storage, site.parts.clock, now)
    await manage_templates.create(act, TemplateKind.TEMPLATE, "Ours", ready_made("letter"))
    await manage_media.add(act, picture_samples.png(), "square.png", "A square")
    await site.parts.storage.queues.put(DEAD_LETTER_QUEUE, "no work item")
    drafts = [one async for one in messages.every_message(tables) if one.status == "draft"]
    return [
        "/admin",
        "/admin/sign-in",
        f"/admin/welcome/{invitation}",
        columns,
        f"/admin/messages/{sent['ref']}",
        f"/admin/messages/{sent['ref']}/look",
        f"/admin/messages/{sent['ref']}/feedback",
        f"/admin/messages/{later['ref']}",
        f"/admin/messages/{later['ref']}/cancel",
        f"/admin/messages/{held}/decide",
        f"/admin/messages/{imported['ref']}/imported",
        f"/admin/messages/{drafts[0].ref}",
        f"/admin/lists/{LIST}",
        "/admin/media/upload",
        f"/admin/subscribers?list={LIST}",
        f"/admin/storage/queues/{DEAD_LETTER_QUEUE}",
    ]


async def _come_back(site: RunningSite, ref: str) -> None:
    """A delivery, a bounce of each class and a complaint; a topic that wants to post."""
    tables, now = site.parts.storage.tables, site.parts.clock.now()
    words = "550 5.1.1 " + "a_server_that_has_much_to_say_" * 5
    found: list[tuple[FeedbackKind, Classification | None]] = [(FeedbackKind.DELIVERED, None)]
    for each in BounceClass:
        why = Classification(each, BounceReason.UNKNOWN, "5.0.0", words)
        found.append((FeedbackKind.BOUNCED, why))
    found.append((FeedbackKind.COMPLAINED, None))
    located = [
        LocatedEvent(
            FeedbackEvent(id=str(at), kind=kind, at=now, source="smtp", classification=why),
            DeliveryId(ref, 0, at),
            "ada@contoso.edu",
            "ada@contoso.edu",
        )
        for at, (kind, why) in enumerate(found)
    ]
    await feedback.record(tables, ref, located)
    topic = SnsTopic()
    url = json.loads(topic.ask().body)["SubscribeURL"]
    await webhooks.put_notice(tables, SubscriptionNotice(topic=topic.arn, url=url, token="t"))


async def _upload(site: RunningSite, page: Page, folder: Path) -> str:
    """An import that was looked over, and one whose columns are to be chosen: its page."""
    people = folder / "people.csv"
    people.write_text("email,name\nzoe@contoso.edu,Zoe\nnobody,Nobody\n")
    for is_looked_over in (True, False):
        await page.goto(f"{site.url}/admin/imports/new?list={LIST}")
        await page.get_by_label("File").set_input_files(people)
        await page.get_by_role("button", name="Upload").click()
        await page.wait_for_url("**/columns")
        if is_looked_over:
            await page.get_by_label("Add them as confirmed").check()
            await page.get_by_label("Why are you allowed to email them?").fill("They asked for it")
            await page.get_by_role("button", name="Check the file").click()
            await expect(page.get_by_role("heading", name="Checked")).to_be_visible()
    return urlsplit(page.url).path


async def test_every_page_is_open_to_everybody(
    site: RunningSite, page: Page, tmp_path: Path
) -> None:
    await sign_in_page(site, page)
    first = await furnish(site, page, tmp_path)
    waiting, seen = list(first), set[str]()
    for number in range(PAGES_MAX):
        if number == len(waiting):
            break
        path, pattern = waiting[number], route_of(urlsplit(waiting[number]).path)
        if pattern in seen and number >= len(first):
            continue
        seen.add(pattern)
        await page.set_viewport_size(DESK)
        answer = await page.goto(site.url + path)
        assert answer
        assert answer.status == 200, path
        waiting += await _links(site, page)
        assert await axe(page) == [], path
        await page.set_viewport_size(PHONE)
        await expect_to_fit(page)
    assert sorted(set(routes()) - seen) == []


async def _links(site: RunningSite, page: Page) -> list[str]:
    """Where one can go from here, within the admin pages."""
    links: list[str] = await page.evaluate(LINKS)
    found = [link.removeprefix(site.url).partition("#")[0] for link in links]
    return [
        path
        for path in dict.fromkeys(found)
        if path.startswith(ADMIN) and not NO_PAGES.search(urlsplit(path).path)
    ]


async def test_a_short_page_before_signing_in_has_no_scroll_bar(
    page: Page, troubles: Troubles, site: RunningSite
) -> None:
    troubles.expect("404")
    await page.set_viewport_size(DESK)
    for path in ("/admin/sign-in", "/admin/welcome/nothing", "/admin/nothing", "/s/nothing", "/"):
        await page.goto(site.url + path)
        assert not await page.evaluate(IS_TOO_TALL), path
