"""Receives what providers post: verify, store, wake, answer, in this order.

A post that cannot be stored is answered 503, and the provider tries again. Dies half-way: the
provider got no answer and posts again; the event counts once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
from fastapi import FastAPI
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
from postroom.web.context import WebContext, one_per_app
from postroom.web.webhooks.keys import Provider, webhook_secret

log = structlog.get_logger("webhooks")
# Providers repeat a post for a day. A replay is harmless: an event counts once, whenever it comes.
LIMITS = WebhookLimits(window_s=25 * 3600.0)
COUNTS_EVERY_S = 5.0


@dataclass
class WebhookIntake:
    """The webhooks of one web process."""

    context: WebContext
    _counted: dict[Provider, WebhookCounts] = field(default_factory=dict)
    _counts_at_s: float = 0.0
    _certificates: sns.SigningCertificates = field(init=False)

    def __post_init__(self) -> None:
        self._certificates = sns.SigningCertificates(self.context.fetch)

    async def receive(self, provider: Provider, post: WebhookRequest) -> Response:
        """Answer a post, once it is stored."""
        now = self.context.clock.now()
        match await self.read(provider, post):
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
        await self._write_counts_now_and_then()
        return answer

    async def read(self, provider: Provider, post: WebhookRequest) -> WebhookResult:
        """Verify a post and read it; nothing is stored or counted."""
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

    async def _write_counts_now_and_then(self) -> None:
        """Write the counts only now and then, so that a flood of forged posts costs few writes."""
        now_s = self.context.clock.monotonic()
        if now_s < self._counts_at_s:
            return
        self._counts_at_s = now_s + COUNTS_EVERY_S
        await self.write_counts()

    async def write_counts(self) -> None:
        """What this process has counted since it last wrote, for a page that shows it."""
        counted, self._counted = self._counted, {}
        for provider, counts in counted.items():
            await webhooks.add_counts(self.context.storage.tables, provider, counts)


def intake_of(app: FastAPI) -> WebhookIntake:
    context: WebContext = app.state.context
    return one_per_app(app, WebhookIntake, context)
