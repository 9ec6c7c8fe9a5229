"""Webhooks: what providers report about emails is stored before they get an answer.

POST /webhooks/PROVIDER; no cookie and no key. Each provider proves itself by its signature, or by
the secret that an owner gave it. A post that cannot be stored is answered 503, and the provider
tries again. Dies half-way: the provider got no answer and posts again; the event counts once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx2
import structlog
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from postroom.feedback.classify import classify_words
from postroom.feedback.webhooks import event_grid, mailgun, postmark, sendgrid, sns
from postroom.feedback.webhooks.post import (
    AcceptedPost,
    Handshake,
    RefusedPost,
    WebhookLimits,
    WebhookRequest,
    WebhookResult,
)
from postroom.feedback.webhooks.postmark import PostmarkSecrets
from postroom.records import feedback, webhooks
from postroom.records.webhooks import WebhookCounts
from postroom.web.context import WebContext, context_of, one_per_app
from postroom.web.webhook_keys import Provider, webhook_secret

router = APIRouter(include_in_schema=False)
log = structlog.get_logger("webhooks")
# Providers repeat a post for a day. A replay is harmless: an event counts once, whenever it comes.
LIMITS = WebhookLimits(window_s=25 * 3600.0)
COUNTS_EVERY_S = 5.0
CERTIFICATE_S_MAX = 5.0


@router.api_route("/webhooks/{provider}", methods=["POST", "OPTIONS"])
async def receive(request: Request, provider: str) -> Response:
    if provider not in Provider.__members__.values():
        return PlainTextResponse("There is no such webhook.", 404)
    context = context_of(request)
    intake = one_per_app(request.app, WebhookIntake, context)
    post = WebhookRequest(
        body=await request.body(),
        headers={name.lower(): value for name, value in request.headers.items()},
        query=dict(request.query_params),
        method=request.method,
    )
    return await intake.receive(Provider(provider), post)


@dataclass
class WebhookIntake:
    """The webhooks of one web process."""

    context: WebContext
    _counted: dict[Provider, WebhookCounts] = field(default_factory=dict)
    _counts_at_s: float = 0.0
    _certificates: sns.SigningCertificates = field(init=False)

    def __post_init__(self) -> None:
        self._certificates = sns.SigningCertificates(fetch_certificate)

    async def receive(self, provider: Provider, post: WebhookRequest) -> Response:
        """Verify, store, wake, answer; in this order."""
        now = self.context.clock.now()
        match await self._read(provider, post):
            case RefusedPost(reason=reason) as refused:
                log.warning("webhook_refused", provider=provider, reason=reason)
                self._count(provider, WebhookCounts(refused=1, refused_at=now, refusal=reason))
                answer: Response = PlainTextResponse("Refused.", refused.http_status)
            case Handshake(headers=headers, body=body, notice=notice):
                if notice is not None:
                    await webhooks.put_notice(self.context.storage.tables, notice)
                answer = Response(body, 200, dict(headers))
            case AcceptedPost(events=events, unknown=unknown):
                await feedback.take_in(self.context.storage, events)
                self.context.wake_scheduler()
                self._count(
                    provider, WebhookCounts(events=len(events), unknown=unknown, last_at=now)
                )
                answer = PlainTextResponse("Thanks.")
        await self._write_counts()
        return answer

    async def _read(self, provider: Provider, post: WebhookRequest) -> WebhookResult:
        keys = self.context.webhook_keys
        now = self.context.clock.now()
        secret = webhook_secret(self.context.site.secret, provider)
        readers: dict[Provider, Callable[[], WebhookResult | Awaitable[WebhookResult]]] = {
            Provider.SENDGRID: lambda: sendgrid.read(
                post, keys.sendgrid_keys, now=now, classify=classify_words, limits=LIMITS
            ),
            Provider.SES: lambda: sns.read(
                post,
                keys.topics,
                self._certificates,
                now=now,
                classify=classify_words,
                limits=LIMITS,
            ),
            Provider.ACS: lambda: event_grid.read(
                post, (secret,), classify=classify_words, limits=LIMITS
            ),
            Provider.MAILGUN: lambda: mailgun.read(
                post, keys.mailgun_keys, now=now, classify=classify_words, limits=LIMITS
            ),
            Provider.POSTMARK: lambda: postmark.read(
                post,
                PostmarkSecrets(logins=(f"postroom:{secret}",), headers=(secret,)),
                classify=classify_words,
                limits=LIMITS,
            ),
        }
        result = readers[provider]()
        return await result if isinstance(result, Awaitable) else result

    def _count(self, provider: Provider, more: WebhookCounts) -> None:
        self._counted[provider] = self._counted.get(provider, WebhookCounts()).plus(more)

    async def _write_counts(self) -> None:
        """Now and then, so that a flood of forged posts costs hardly any write."""
        now_s = self.context.clock.monotonic()
        if now_s < self._counts_at_s:
            return
        self._counts_at_s = now_s + COUNTS_EVERY_S
        counted, self._counted = self._counted, {}
        for provider, counts in counted.items():
            await webhooks.add_counts(self.context.storage.tables, provider, counts)


async def fetch_certificate(url: str) -> bytes | None:
    """The certificate that signed a message of Amazon SNS; None if it cannot be had now."""
    try:
        async with httpx2.AsyncClient(timeout=CERTIFICATE_S_MAX, follow_redirects=False) as client:
            answer = await client.get(url)
    except httpx2.HTTPError:
        return None
    return answer.content if answer.status_code == 200 else None
