"""Somebody who opens every page, in every state that has words of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from postroom.actions import ask_to_confirm, sign_in
from postroom.domain.address import parse_address
from postroom.domain.job_status import JobStatus
from postroom.domain.message import Books, Status
from postroom.domain.subscriber import InactiveReason
from postroom.domain.texts import speaking
from postroom.domain.trial import Trial, TrialState
from postroom.domain.trouble import Trouble, TroubleKind
from postroom.domain.user import Role
from postroom.flow import subscribe
from postroom.importing.job import COUNTED
from postroom.records import ask_jobs, lists, messages, subscribers, suppressions, trials
from postroom.records.webhooks import WebhookCounts
from postroom.web import app, notices, pages
from postroom.web.admin import overview
from postroom.web.admin.audience import Audience, AudienceCache
from postroom.web.admin.messages.pages import TABS
from postroom.web.admin.messages.progress import MessageProgress, RateSample
from postroom.web.admin.overview import FullDisk, QueueSample
from postroom.web.admin.users import removal_path
from postroom.web.mail_server import SharedTrouble
from tests.acting import acting
from tests.web import (
    feedback_visits,
    importing,
    media_visits,
    operating_visits,
    storage_visits,
    test_admin_outbox,
    test_admin_suppression,
    trace_visits,
    writing_visits,
)
from tests.web.drafts import GOOD, etag_of, written
from tests.web.office import ADDRESS, LIST, NOW
from tests.web.people import SECOND, join, leave, path_of, second_list, stored
from tests.web.pseudo import PSEUDO
from tests.web.signed_in import sign_in_as
from tests.web.test_admin_sending import going_out
from tests.web.test_admin_suppression import entry_path_of, every_suppression
from tests.web.visitor import PEOPLE, Visit, context_under

UNSEEN_PICTURES = ["", "/a", "file:///a", "cid:a", "http://127.0.0.1/a", "data:,a", "ftp://a/a"]


async def at_the_door(visit: Visit) -> None:
    tables = visit.owner.office.storage.tables
    await visit.get("/admin")
    await visit.as_anybody("/admin/sign-in")
    await visit.as_anybody("/admin/welcome/nothing", 404)
    invitation = await sign_in.invite(tables, "new@contoso.edu", Role.VIEWER, NOW)
    for page in visit.first_start:
        visit.read("the first start", page)
    await visit.as_anybody(f"/admin/welcome/{invitation}")
    await visit.post(f"/admin/welcome/{invitation}", 422, address="nobody", password="short")
    await visit.post("/admin/sign-in", 422, address="owner@contoso.edu", password="wrong")
    await visit.get("/admin/account")
    await visit.post("/admin/account/password", 422, old_password="a", new_password="b")
    await visit.owner.post("/admin/sign-in", address="a", password="b")
    viewer = await sign_in_as(visit.owner.office, Role.VIEWER)
    async with viewer.browser:
        visit.read("as a viewer", (await viewer.get("/admin/keys")).text)
        visit.read("as a viewer", (await viewer.get("/admin/lists")).text)
    elsewhere = await visit.owner.browser.post("/admin/sign-out", headers={"origin": "x"})
    visit.read("from elsewhere", elsewhere.text)
    values = (
        "suppressions-imported|2|1",
        "sending|9",
        "letters-cleared|2",
        "pictures-added|2",
        "letters-put-back|2|1",
        "scheduled|1794903600|UTC|9|1763367600",
        "scheduled|1794903600||0|0",
    )
    for notice in (*notices.NOTICES, *values):
        visit.owner.browser.cookies.set("__Host-postroom-notice", notice)
        await visit.get("/admin/account")


async def at_lists(visit: Visit) -> None:
    await visit.get("/admin/lists")
    await visit.get("/admin/lists", after="zzz")
    await visit.get("/admin/lists/new")
    await visit.post(
        "/admin/lists/new", 422, name="no name", sender="nobody", description="x" * 300
    )
    await visit.post("/admin/lists/new", 422, name=LIST, sender="a@contoso.edu")
    await _open_form(visit)
    await visit.get(f"/admin/lists/{LIST}")
    await visit.get(f"/admin/lists/{LIST}/edit")
    await visit.post(
        f"/admin/lists/{LIST}/edit", 409, sender="eve@contoso.edu", language="en", etag="old"
    )
    await visit.get(f"/admin/lists/{LIST}/delete")
    await visit.post(f"/admin/lists/{LIST}/delete", 422, typed="x")
    await visit.post(f"/admin/lists/{LIST}/delete", 409, typed=LIST, etag="old")


async def _open_form(visit: Visit) -> None:
    tables = visit.owner.office.storage.tables
    found, etag = await lists.read_with_etag(tables, LIST)
    await lists.replace(tables, msgspec.structs.replace(found, public_form=True), etag)


async def at_people(visit: Visit) -> None:
    owner = visit.owner
    await visit.get("/admin/subscribers", list=LIST)
    await join(owner, "ada@contoso.edu", first_name="Ada")
    await join(owner, "ben@contoso.edu", verified=False)
    for name, why in zip(("eve", "fay", "gus", "zoe"), InactiveReason, strict=True):
        await leave(owner, await join(owner, f"{name}@contoso.edu"), why)
    await subscribe.sign_up(
        acting(owner.office.storage, NOW), LIST, parse_address("student0@contoso.edu"), {}
    )
    await visit.get("/admin/subscribers", list=LIST)
    await visit.get("/admin/subscribers", list=LIST, q="nobody")
    await visit.get(f"/admin/subscribers/new?list={LIST}")
    add = f"/admin/subscribers/new?list={LIST}"
    await visit.post(add, 422, address="nobody", attributes="nobody")
    await visit.post(add, 422, address="ada@contoso.edu")
    await visit.post(add, 409, address="eve@contoso.edu")
    await second_list(owner)
    await visit.get("/admin/subscribers")
    for name in PEOPLE:
        await visit.get(await path_of(owner, f"{name}@contoso.edu"))
    person = await path_of(owner, "ada@contoso.edu")
    await visit.get(f"{person}/remove")
    page = await visit.get(f"{person}/edit")
    as_seen = {"list": LIST, "etag": etag_of(page)}
    await visit.post(f"{person}/edit", 422, address="nobody", list="nobody")
    await visit.post(f"{person}/edit", 409, address="ben@contoso.edu", **as_seen)
    await visit.post(f"{person}/edit", 409, address="eve@contoso.edu", **as_seen)
    await visit.post(f"{person}/edit", 303, address="ada@contoso.edu", **as_seen | {"list": SECOND})
    await visit.get(await path_of(owner, "ada@contoso.edu"))


async def at_suppression(visit: Visit) -> None:
    owner = visit.owner
    await visit.get("/admin/suppression")
    await visit.get("/admin/suppression/new")
    await visit.post("/admin/suppression/new", 422, address="nobody", scope="x", note="x" * 600)
    await visit.post("/admin/suppression/new", 422, address="ada@contoso.edu", scope="list")
    for address, fields in (
        ("ben@contoso.edu", {"scope": "all", "note": "They asked"}),
        ("student0@contoso.edu", {"scope": "list", "list": LIST}),
        ("student1@contoso.edu", {"scope": "bulk"}),
    ):
        await visit.post("/admin/suppression/new", 303, address=address, **fields)
    await visit.get(await path_of(owner, "ben@contoso.edu"))
    await visit.get(await path_of(owner, "student0@contoso.edu"))
    for source in every_suppression(owner.office.site.secret):
        tables = owner.office.storage.tables
        await suppressions.remove(tables, owner.office.site.secret, source.key)
        await suppressions.put(tables, owner.office.site.secret, source.key, source, NOW)
        path = entry_path_of(owner, source.key)
        await visit.get(path)
        await visit.get(f"{path}/remove")
    await visit.get("/admin/suppression")
    await visit.get("/admin/suppression", q="nobody")
    await visit.get("/admin/suppression/erase")
    await visit.post("/admin/suppression/erase", 422, address="nobody")
    await visit.post("/admin/suppression/erase", 303, address="gone@contoso.edu", sure="yes")
    await visit.get("/admin/suppression", q="gone@contoso.edu")
    erased = entry_path_of(owner, "gone@contoso.edu")
    await visit.get(erased)
    await visit.get(f"{erased}/remove")
    await visit.get("/admin/suppression/import")
    visit.read("no form", (await owner.post("/admin/suppression/import")).text)
    many = "email\n" + "nobody\n" * 60
    for name, content in (("people.csv", many), ("people.csv", b"PK\x03\x04"), ("", "a")):
        answer = await test_admin_suppression.upload(owner, content, name)
        visit.read("a bad upload", answer.text)


async def at_asking(visit: Visit) -> None:
    owner, page = visit.owner, f"/admin/subscribers/ask?list={LIST}"
    tables = owner.office.storage.tables
    await visit.get(page)
    one = await stored(owner, "ben@contoso.edu")
    assert one
    for times, hours in ((1, 1), (3, 25)):
        at = NOW - timedelta(hours=hours)
        asked = msgspec.structs.replace(one, asked_at=at, asks=" ".join([at.isoformat()] * times))
        found = await subscribers.find(tables, LIST, one.key)
        assert found
        await subscribers.replace(tables, found[0], asked, found[1])
        await visit.get(page)
        await visit.get(await path_of(owner, "ben@contoso.edu"))
    job, etag = await ask_to_confirm.start(
        tables, LIST, by="ada@contoso.edu", total=2, run="there", now=NOW
    )
    for total in (0, 2):
        for status in JobStatus:
            for is_stop_asked in (False, True):
                state = {"status": status, "is_stop_asked": is_stop_asked, "total": total}
                etag = await ask_jobs.put(tables, msgspec.structs.replace(job, **state), etag)
                await visit.get(page)


async def at_imports(visit: Visit) -> None:
    owner = visit.owner
    await visit.get("/admin/imports")
    await visit.get("/admin/imports/new")
    file = "email,first_name\nzoe@contoso.edu,Ada\nnobody,\n" + '"nobody\n' * 2
    for name, content in (("people.csv", ""), ("people.csv", b"PK\x03\x04"), ("", "a")):
        answer = await importing.upload(owner, content, name)
        visit.read("a bad upload", answer.text)
    visit.read("no form", (await owner.post("/admin/imports/upload")).text)
    path = await importing.uploaded(owner, file)
    await visit.get(f"{path}/columns")
    await visit.post(f"{path}/columns", 422, email="9", purpose="x", basis="x" * 500)
    await visit.post(f"{path}/start", 409)
    choice = {"email": "0", "header": "yes", "name-1": "first_name", "purpose": "keep"}
    for purpose in ("confirmed", "ask", "suppress", "keep"):
        for existing in ("leave", "fill", "overwrite"):
            chosen = choice | {"purpose": purpose, "existing": existing, "basis": "They asked"}
            await visit.post(f"{path}/columns", 303, **chosen)
            await importing.settled(owner, path)
            await visit.get(path)
    await visit.get("/admin/imports")
    all_counts = dict.fromkeys(COUNTED, 2)
    for status in JobStatus:
        for is_rehearsal in (True, False):
            state = {"status": status, "is_rehearsal": is_rehearsal, "seen_at": NOW} | all_counts
            await importing.change(owner, path, **state)
            await visit.get(path)
            await visit.get(f"{path}/live")
            await visit.get("/admin/imports")
            await visit.get("/admin/subscribers", list=LIST)
    await visit.post(f"{path}/start", 409)


async def at_messages(visit: Visit) -> None:
    owner = visit.owner
    await visit.get("/admin/messages")
    await visit.get("/admin/messages/new", list=LIST)
    await visit.get("/admin/messages/new", kind="html")
    await writing_visits.in_blocks(visit)
    await visit.post("/admin/messages/write", 422, subject="", list="", body="{{ nobody")
    await visit.post("/admin/messages/preview", 200)
    unseen = "".join(f"<img src='{source}'>" for source in UNSEEN_PICTURES)
    for body in ("", "{{ nobody", '<p style="{{ name }}">', "<a href='x'>a</a>" + unseen, "a\n\na"):
        await visit.post("/admin/messages/preview", 200, **GOOD | {"body": body})
    document = {"body": "<html><body><p>a", "kind": "markdown"}
    await visit.post("/admin/messages/preview", 200, **GOOD | document)
    for body in ("", "{{ nobody"):
        await visit.post("/admin/messages/mail/preview", 200, **GOOD | {"body": body})
    path = await written(owner)
    for state in TrialState:
        trial = Trial(ref=path.rpartition("/")[2], user=owner.user.key, nonce="n", asked_at=NOW)
        told = msgspec.structs.replace(trial, state=state, words="550 5.1.1 mailbox unavailable")
        await trials.ask(owner.office.storage.tables, msgspec.structs.replace(told, at=NOW))
        await visit.get(path)
        await visit.get(f"{path}/test/live")
    await visit.get(path, **{"as": "nobody"})
    await visit.get(f"{path}/look")
    await visit.get(f"{path}/delete")
    await visit.post(f"{path}/delete", 409, etag="old")
    await visit.post(
        f"{path}/write",
        409,
        **GOOD | {"subject": "Ada", "kind": "markdown", "on_doubt": "hold", "etag": "old"},
    )
    await visit.get(f"{path}/send")
    page = await visit.get(f"{path}/schedule")
    when = {"time": "02:30", "etag": etag_of(page)}
    berlin = ("2027-03-28", "Europe/Berlin"), ("2027-10-31", "Europe/Berlin")
    for date, zone in (("2120-01-01", "nobody"), ("2020-01-01", ""), ("x", ""), *berlin):
        await visit.post(f"{path}/schedule", 422, **when | {"date": date, "zone": zone})
    for wrong in ({"date": ""}, {"date": "", "time": ""}, {"date": "2120-01-01", "time": ""}):
        await visit.post(f"{path}/schedule", 422, **when | wrong)
    await visit.post(f"{path}/send", 422, **when)
    await visit.post(f"{path}/schedule", 409, date="2120-01-01", time="02:30", etag="old")
    await visit.post(f"{path}/schedule", 303, **when | {"date": "2120-01-01", "zone": "UTC"})
    await visit.get(path)
    for page in ("schedule", "send"):
        await visit.get(f"{path}/{page}")
    await visit.post(f"{path}/unschedule", 303)
    await visit.get(path)
    await visit.post(f"{path}/send", 409)
    await join(owner, "a@contoso.edu")
    await visit.get(f"{path}/send")
    await visit.post(f"{path}/send", 409, etag="old")
    await visit.get("/admin")
    await visit.get("/admin/messages", status="cancelled")
    for tab in TABS:
        await visit.get("/admin/messages", status=tab.name)


async def at_going_out(visit: Visit) -> None:
    owner = visit.owner
    for status in (Status.QUEUING, Status.PROCESSING, Status.PAUSED):
        path = await going_out(owner, status)
        await visit.get(path)
        for outcome in ("queued", "sending", "sent", "failed", "held", "skipped"):
            await visit.get(path, outcome=outcome)
    for page in ("decide", "cancel"):
        await visit.get(f"{path}/{page}")
    for act, code in (("decide", 422), ("retry", 409), ("pause", 409), ("test", 303)):
        await visit.post(f"{path}/{act}", code)
    done = await going_out(owner, Status.COMPLETED, completed_at=NOW + timedelta(hours=2))
    await visit.get(done)
    for act in ("pause", "cancel"):
        await visit.post(f"{done}/{act}", 409)
    await visit.get("/admin/messages")
    await visit.get("/admin")


async def at_the_outbox(visit: Visit) -> None:
    await visit.get("/admin/outbox")
    await visit.get("/admin/outbox/empty")
    await test_admin_outbox.keep(visit.owner, 1)
    await visit.get("/admin/outbox")
    await visit.get("/admin/outbox/empty")
    await visit.get("/admin/sending")
    path = await test_admin_outbox.first_path(visit.owner)
    for view in ("html", "text", "source"):
        await visit.get(path, view=view)
    await visit.get(f"{path}/attachments/0", 404)


async def at_keys_and_users(visit: Visit) -> None:
    await visit.get("/admin/keys")
    await visit.post("/admin/keys/new", 422, name="")
    await visit.post("/admin/keys/new", 422, name="Web site", lists="nobody")
    once = {"name": "Web site", "right-read": "yes", "right-write": "yes", "once": "x" * 24}
    for _sending in range(2):
        await visit.post("/admin/keys/new", 200, **once)
    revoking = re.search(r"/admin/keys/\w+/revoke", await visit.get("/admin/keys"))
    assert revoking
    await visit.get(revoking[0])
    await visit.get("/admin/users")
    await visit.post("/admin/users/invite", 422, address="nobody", role="x")
    for _sending in range(2):
        sent = {"address": "new@contoso.edu", "role": "viewer", "once": "y" * 24}
        page = await visit.owner.post("/admin/users/invite", **sent)
        link = page.text.partition('id="link">')[2].partition("<")[0]
        visit.read("an invitation", page.text.replace(link, "") if link else page.text)
    await visit.get("/admin/users")
    key = visit.owner.user.key
    await visit.owner.post("/admin/users/invite", address="owner@contoso.edu", role="viewer")
    await visit.get("/admin/users")
    await visit.get(removal_path(visit.owner.office.site.secret, key))
    await visit.post("/admin/users/role", 409, key=key, role="viewer")


async def at_limits(visit: Visit) -> None:
    await visit.get("/admin/limits")
    await visit.post("/admin/limits/set", 422)
    bad = {"domain": "nobody", "mails_per_second": "nobody", "connections": "0"}
    await visit.post("/admin/limits/set", 422, **bad)
    for domain in ("", "contoso.edu"):
        limit = {"domain": domain, "mails_per_second": "500", "connections": "8"}
        await visit.post("/admin/limits/set", 303, **limit)
    await visit.get("/admin/limits")
    for name in ("transport", "contoso.edu"):
        await visit.get(f"/admin/limits/{name}/clear")
    await visit.get("/admin/limits/nobody/clear", 404)


async def at_public_pages(visit: Visit) -> None:
    office = visit.owner.office
    one = await office.join(verified=False)
    leaving, confirming = office.leave_path(one.guid), office.confirm_path(one.guid)
    results = [f"{leaving}/{name}" for name in ("kept", "left", "asked")]
    for path in ("/", leaving, *results, confirming, f"/s/{LIST}"):
        await visit.as_anybody(path)
    await visit.as_anybody(f"/s/{LIST}/thanks")
    await visit.as_anybody(confirming.rpartition("/")[0] + "/forged")
    await visit.as_anybody("/s/nolist", 404)
    for fields in ({}, {"email": ADDRESS}, {"email": ADDRESS, "homepage": "x"}):
        visit.read("a bad sign-up", (await office.browser.post(f"/s/{LIST}", data=fields)).text)
    await office.browser.post(confirming)
    await visit.as_anybody(confirming)
    await office.browser.post(leaving, data={"leave": "yes"})
    for path in (leaving, f"{leaving}/left", office.leave_path("0" * 32)):
        await visit.as_anybody(path)
    await visit.get(await path_of(visit.owner, ADDRESS))


async def at_failures(visit: Visit) -> None:
    await visit.get("/admin/nowhere", 404)
    await visit.as_anybody("/nowhere", 404)
    with speaking(PSEUDO):
        for path in ("/admin/x", "/x"):
            for status in (400, *app.ADMIN_PAGES):
                page = app._error_response(path, status).body
                visit.read(f"{status} of {path}", bytes(page).decode())


async def at_live_parts(visit: Visit) -> None:
    """What a stream sends: the same parts, with curves and changed buttons."""
    tables = visit.owner.office.storage.tables
    message = await anext(messages.live_messages(tables))
    books = Books(queued=5, sending=1, sent=2, failed=1, held=1)
    going = msgspec.structs.replace(
        message, status=Status.PROCESSING, audience=9, books=books, fanned_out=False
    )
    samples = tuple(RateSample(float(at), at * 100, 100.0) for at in range(8))
    shown = {"signed_in": Everybody(), "is_update": True, "has_new_actions": True}
    context = context_under(visit)
    with speaking(PSEUDO):
        kept = msgspec.structs.replace(going, is_test=True)
        stuck = MessageProgress(kept, mail_troubles=tuple(every_trouble()))
        for progress in (MessageProgress(going), MessageProgress(going, samples), stuck):
            going = progress.message
            part = pages.part("messages/live.html", message=going, progress=progress, **shown)
            visit.read("live", part)
        seen = await overview.read_overview(
            context, overview.QueueHistory(context), AudienceCache()
        )
        curves = tuple(QueueSample(float(at), at, 1) for at in range(5))
        troubles = tuple(every_trouble())
        seen = msgspec.structs.replace(
            seen,
            queue_history=curves,
            audience=Audience(confirmed=2, joined=3, left=1, lists_counted=50),
            going_out=[going],
            senders=2,
            mail_troubles=troubles,
            bounce_mailbox=WebhookCounts(last_at=NOW, refused_at=NOW, refusal="550"),
        )
        visit.read("live", pages.part("overview_live.html", overview=seen))
        for full in (FullDisk(NOW, is_now=True, free_bytes=4096), FullDisk(NOW, is_now=False)):
            told = msgspec.structs.replace(seen, full_disk=full, senders=0, starts_senders=True)
            visit.read("live", pages.part("overview_live.html", overview=told))
        idle = msgspec.structs.replace(seen, senders=0, starts_senders=True, waiting=1)
        visit.read("live", pages.part("overview_live.html", overview=idle))


def every_trouble() -> Iterator[SharedTrouble]:
    for kind in TroubleKind:
        trouble = Trouble(kind, "post.contoso.edu", "550 5.1.1 mailbox unavailable", NOW, NOW, 2)
        yield SharedTrouble(trouble, 1, 2, is_tried=True)
        yield SharedTrouble(trouble, 2, 2, is_tried=False)


class Everybody:
    """May do everything."""

    def may(self, role: str) -> bool:
        return True


VISITS = [
    at_the_door,
    at_lists,
    at_people,
    at_suppression,
    at_asking,
    at_imports,
    at_messages,
    writing_visits.with_attachments,
    at_going_out,
    feedback_visits.at_feedback,
    feedback_visits.at_webhooks,
    feedback_visits.at_sending,
    feedback_visits.after_a_restore,
    media_visits.at_media,
    media_visits.at_choosing,
    at_the_outbox,
    at_keys_and_users,
    at_limits,
    *storage_visits.VISITS,
    operating_visits.at_instances,
    operating_visits.at_settings,
    trace_visits.at_traces,
    at_public_pages,
    at_failures,
    at_live_parts,
]
