"""Webhooks of providers: addresses, secrets, received posts, a test, and Amazon SNS topics."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.errors import NotFound
from postroom.domain.texts import Text, _
from postroom.feedback.webhooks import sns
from postroom.feedback.webhooks.post import RefusalReason, SubscriptionNotice
from postroom.records import webhooks
from postroom.records.webhooks import WebhookCounts
from postroom.storage.port import Tables
from postroom.web.admin.admin_request import AdminRequest, Owner
from postroom.web.forms import Form
from postroom.web.pages import go
from postroom.web.webhooks.intake import intake_of
from postroom.web.webhooks.keys import Provider, webhook_secret
from postroom.web.webhooks.self_test import SelfTestResult, run_self_test

router = APIRouter(prefix="/webhooks")
PATH = "/admin/webhooks"
NAMES = {
    Provider.SENDGRID: "SendGrid",
    Provider.SES: "Amazon SES",
    Provider.ACS: "Azure Communication Services",
    Provider.MAILGUN: "Mailgun",
    Provider.POSTMARK: "Postmark",
}
REFUSAL_TEXTS = {
    RefusalReason.TOO_LARGE: _("the request was too large"),
    RefusalReason.TOO_MANY_EVENTS: _("the request had too many events"),
    RefusalReason.UNSIGNED: _("the request had no signature or secret"),
    RefusalReason.BAD_SIGNATURE: _("the signature or the secret was wrong"),
    RefusalReason.OUTSIDE_WINDOW: _("it was signed too long ago, or a clock is wrong"),
    RefusalReason.MALFORMED: _("the request could not be read"),
    RefusalReason.WRONG_TOPIC: _("it came from a topic that is not in POSTROOM_SNS_TOPICS"),
    RefusalReason.BAD_CERTIFICATE_URL: _("its certificate was not from Amazon"),
    RefusalReason.BAD_CERTIFICATE: _("its certificate was not valid"),
    RefusalReason.CERTIFICATE_UNAVAILABLE: _("Amazon’s certificate could not be fetched"),
}


class WebhookView(msgspec.Struct, frozen=True):
    """One webhook, as the page shows it."""

    provider: Provider
    name: str
    address: str
    secret: str  # that we give out; empty if the provider signs
    missing: str  # the setting
    counts: WebhookCounts
    tested: SelfTestResult | None = None

    @property
    def refusal(self) -> Text | str:
        known = self.counts.refusal in RefusalReason.__members__.values()
        return REFUSAL_TEXTS[RefusalReason(self.counts.refusal)] if known else self.counts.refusal


@router.get("")
async def index(request: Owner) -> Response:
    return await _index(request)


@router.post("/{provider}/test")
async def test(request: Owner, provider: str) -> Response:
    """Show the result at once: a reload tests again, which is harmless."""
    if provider not in Provider.__members__.values():
        raise NotFound(_("There is no such webhook."))
    tested = Provider(provider)
    if request.context.webhook_keys.missing_setting(tested):
        return go(PATH)
    result = await run_self_test(intake_of(request.http.app), tested)
    return await _index(request, {tested: result})


@router.get("/topics/{name}/confirm")
async def confirm_page(request: Owner, name: str) -> Response:
    """Ask first, because from then on everything published to the topic is believed."""
    notice = await _find_notice(request.tables, name)
    return request.show("webhooks/confirm.html", topic=notice.topic, form=Form())


@router.post("/topics/{name}/confirm")
async def confirm(request: Owner, name: str) -> Response:
    notice = (await webhooks.notices(request.tables)).get(name)
    if notice is None:  # confirmed or dismissed by a second click or by somebody else
        return go(PATH)
    # Checked when it was stored, too; what we fetch must never be up to a row.
    is_confirmed = False
    if sns.is_confirm_url(notice.url):
        async with request.act().audited(AuditKind.WEBHOOK, notice.topic, AuditAction.CONFIRM):
            is_confirmed = await request.context.fetch(notice.url) is not None
    if not is_confirmed:
        form = Form(
            mistake=_(
                "Amazon did not accept the confirmation. Try again. If the request has expired, "
                "request a new one on the topic’s page at Amazon."
            )
        )
        status = HTTPStatus.BAD_GATEWAY
        return request.show("webhooks/confirm.html", status, topic=notice.topic, form=form)
    await webhooks.forget_notice(request.tables, name)
    return go(PATH, "topic-confirmed")


@router.post("/topics/{name}/dismiss")
async def dismiss(request: Owner, name: str) -> Response:
    notice = (await webhooks.notices(request.tables)).get(name)
    if notice:
        async with request.act().audited(AuditKind.WEBHOOK, notice.topic, AuditAction.DISMISS):
            await webhooks.forget_notice(request.tables, name)
    return go(PATH, "topic-dismissed")


async def _index(
    request: AdminRequest, tested: dict[Provider, SelfTestResult] | None = None
) -> Response:
    context = request.context
    await intake_of(request.http.app).write_counts()  # those of other processes are seconds old
    views = [
        WebhookView(
            provider,
            NAMES[provider],
            f"{context.site.url}/webhooks/{provider.value}",
            _secret(request, provider),
            context.webhook_keys.missing_setting(provider),
            await webhooks.find_counts(request.tables, provider),
            (tested or {}).get(provider),
        )
        for provider in Provider
    ]
    return request.show(
        "webhooks/index.html",
        webhooks=views,
        notices=await webhooks.notices(request.tables),
        url=context.site.url,
        is_public=context.is_url_given and context.is_https,
    )


def _secret(request: AdminRequest, provider: Provider) -> str:
    if provider not in (Provider.ACS, Provider.POSTMARK):
        return ""
    return webhook_secret(request.context.site.secret, provider)


async def _find_notice(tables: Tables, name: str) -> SubscriptionNotice:
    found = (await webhooks.notices(tables)).get(name)
    if found is None:
        raise NotFound(_("This topic has already been confirmed or dismissed."))
    return found
