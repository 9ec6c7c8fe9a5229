"""Visits to the pages of feedback, webhooks and sending, in every state."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from postroom.domain.backup import BackupRecord
from postroom.domain.doctor import Check, CheckResult
from postroom.domain.feedback import BounceClass, BounceReason, Classification, FeedbackKind
from postroom.domain.message import RestoreHold, Status
from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.domain.trouble import Trouble, TroubleKind
from postroom.feedback.webhooks.post import RefusalReason, SubscriptionNotice
from postroom.records import (
    backups,
    leases,
    rate_limits,
    webhooks,
)
from postroom.records.webhooks import WebhookCounts
from postroom.web.webhooks.keys import Provider, WebhookKeys
from tests import webhook_posts
from tests.web import returned
from tests.web.office import NOW
from tests.web.visitor import Visit, context_under, other_context


async def at_feedback(visit: Visit) -> None:
    owner = visit.owner
    path = await returned.sent_to(owner, 12)
    await visit.get(f"{path}/feedback")
    await visit.get(path)
    await returned.come_back(owner, path, FeedbackKind.DELIVERED, 0)
    await visit.get(path)
    await returned.everything(owner, path)
    other = await returned.sent_to(owner, len(BounceReason))
    for at, reason in enumerate(BounceReason):
        words = "550 5.1.1 mailbox unavailable"
        why = Classification(BounceClass.TEMPORARY, reason, "", words)
        await returned.come_back(owner, other, FeedbackKind.BOUNCED, at, why=why)
    await visit.get(f"{other}/feedback")
    await visit.get(path)
    await visit.get(f"{path}/feedback")
    await visit.get(f"{path}/feedback", after="to:0000000:98:bounced")
    await visit.get(f"{path}/feedback", 404, after="nobody")
    paused = {"pause_cause": returned.CAUSE, "is_self_paused": True}
    stuck = await returned.sent_to(owner, 3, Status.PAUSED, **paused)
    for page in (stuck, f"{stuck}/feedback", "/admin"):
        await visit.get(page)


async def after_a_restore(visit: Visit) -> None:
    """Messages on hold, and scheduled backups that fail."""
    tables = visit.owner.office.storage.tables
    for people in (1, 2):
        held = {"restore_hold": RestoreHold(NOW, people)}
        path = await returned.sent_to(visit.owner, 3, Status.PAUSED, **held)
        await visit.get(path)
        await visit.get("/admin")
    for made_at in (None, NOW):
        record = BackupRecord(tried_at=NOW, made_at=made_at, failure="The disk is full.")
        await backups.write(tables, record)
        await visit.get("/admin")
    await backups.forget(tables)


async def at_webhooks(visit: Visit) -> None:
    tables = visit.owner.office.storage.tables
    context = context_under(visit)
    await visit.get("/admin/webhooks")
    for reason in RefusalReason:
        counts = WebhookCounts(1, 2, 3, NOW, NOW, reason)
        await webhooks.add_counts(tables, Provider.SENDGRID, counts)
        await visit.get("/admin/webhooks")
    sendgrid, topic = webhook_posts.SendGrid(), webhook_posts.SnsTopic()
    keys = WebhookKeys(sendgrid.verification_key, "a key", topic.arn)
    with other_context(visit, replace(context, webhook_keys=keys, fetch=never_fetched)):
        for provider in Provider:
            await visit.post(f"/admin/webhooks/{provider.value}/test", 200)
    with other_context(visit, replace(context, webhook_keys=WebhookKeys(sns_topics="nobody"))):
        await visit.post("/admin/webhooks/ses/test", 200)
    asked = json.loads(topic.ask().body)
    notice = SubscriptionNotice(topic=topic.arn, url=asked["SubscribeURL"], token="t")
    await webhooks.put_notice(tables, notice)
    await visit.get("/admin/webhooks")
    [name] = await webhooks.notices(tables)
    await visit.get(f"/admin/webhooks/topics/{name}/confirm")
    with other_context(visit, replace(context, fetch=never_fetched)):
        await visit.post(f"/admin/webhooks/topics/{name}/confirm", 502)
    await visit.get("/admin/webhooks/topics/nobody/confirm", 404)
    await visit.post("/admin/webhooks/nobody/test", 404)


async def never_fetched(_url: str) -> bytes | None:
    return None


async def at_sending(visit: Visit) -> None:
    context = context_under(visit)
    await visit.post("/admin/sending/test", 404)
    server = {"mail_server": "post.contoso.edu", "transport": "post.contoso.edu"}
    for verdict in CheckResult:

        async def examine(verdict: CheckResult = verdict) -> Check:
            return Check(verdict, "transport", "post.contoso.edu", "post.contoso.edu")

        for changed in ({"has_outbox": False} | server, {"has_outbox": True}):
            with other_context(visit, replace(context, examine_transport=examine, **changed)):
                await visit.get("/admin/sending")
                await visit.post("/admin/sending/test", 200)
    trouble = Trouble(TroubleKind.LOGIN, "post.contoso.edu", "", NOW, NOW, 2)
    tables = visit.owner.office.storage.tables
    more: dict[str, Any] = {"now": NOW, "lease_s": 60.0, "mail_trouble": trouble}
    await leases.hold(tables, leases.sender_lease("one"), "one", **more)
    await visit.get("/admin/sending")
    for limit in (RateLimit(TRANSPORT, 5.0, 8), RateLimit(TRANSPORT, 5.0), RateLimit(TRANSPORT)):
        await rate_limits.set_limit(tables, limit)
        await visit.get("/admin/sending")
    await rate_limits.clear_limit(tables, TRANSPORT)
