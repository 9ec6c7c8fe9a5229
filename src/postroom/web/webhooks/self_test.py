"""Tests a webhook without the provider: a harmless post goes through our own intake.

Nothing leaves the process. If the proof of origin is a secret that both sides know, the post is one
the provider could have made, with an unknown kind of event: it is counted as unknown and changes
nothing. SendGrid and Amazon SNS sign with a key that only they have; for them the test checks that
a forged post is refused and that the settings are well-formed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from datetime import datetime

import msgspec

from postroom.domain.texts import Text, _
from postroom.feedback.webhooks import event_grid, sendgrid
from postroom.feedback.webhooks.post import RefusalReason, RefusedPost, WebhookRequest
from postroom.web.webhooks.intake import WebhookIntake
from postroom.web.webhooks.keys import Provider, webhook_secret

TEST_EVENT = "postroom-test"  # no provider has an event of this name
_ARN = re.compile(r"arn:aws(-cn|-us-gov)?:sns:[a-z0-9-]{3,30}:[0-9]{12}:[A-Za-z0-9_.-]{1,256}")


class SelfTestResult(msgspec.Struct, frozen=True):
    is_good: bool
    text: Text


async def run_self_test(intake: WebhookIntake, provider: Provider) -> SelfTestResult:
    """Test one webhook, which is set up."""
    match provider:
        case Provider.SENDGRID:
            return await _test_forgery(intake)
        case Provider.SES:
            return _examine_topics(intake)
    answer = await intake.receive(provider, _post(intake, provider))
    if answer.status_code == 200:
        return SelfTestResult(
            is_good=True,
            text=_(
                "A correctly signed test request was accepted and counted as unknown. It changed "
                "nothing."
            ),
        )
    return SelfTestResult(
        is_good=False,
        text=_("A test request was refused with status {status}.", status=answer.status_code),
    )


def _post(intake: WebhookIntake, provider: Provider) -> WebhookRequest:
    """A post as the provider makes it."""
    context = intake.context
    secret = webhook_secret(context.site.secret, provider)
    if provider is Provider.POSTMARK:
        login = base64.b64encode(f"postroom:{secret}".encode()).decode()
        body = msgspec.json.encode({"RecordType": TEST_EVENT})
        return WebhookRequest(body=body, headers={"authorization": f"Basic {login}"})
    if provider is Provider.ACS:
        body = msgspec.json.encode([{"id": TEST_EVENT, "eventType": TEST_EVENT, "data": {}}])
        return WebhookRequest(body=body, query={event_grid.SECRET_QUERY: secret})
    return _mailgun_post(context.webhook_keys.mailgun_keys[0], context.clock.now())


def _mailgun_post(key: str, now: datetime) -> WebhookRequest:
    timestamp = str(int(now.timestamp()))
    token = secrets.token_hex(25)
    proof = hmac.new(key.encode(), f"{timestamp}{token}".encode(), hashlib.sha256).hexdigest()
    signature = {"timestamp": timestamp, "token": token, "signature": proof}
    event = {"event": TEST_EVENT, "timestamp": now.timestamp()}
    return WebhookRequest(
        body=msgspec.json.encode({"signature": signature, "event-data": event}),
        headers={"content-type": "application/json"},
    )


async def _test_forgery(intake: WebhookIntake) -> SelfTestResult:
    """The keys of SendGrid can be used, and a post that they did not sign is refused."""
    context = intake.context
    forged = WebhookRequest(
        body=b"[]",
        headers={
            sendgrid.TIMESTAMP_HEADER: str(int(context.clock.now().timestamp())),
            sendgrid.SIGNATURE_HEADER: base64.b64encode(b"forged").decode(),
        },
    )
    if await intake.read(Provider.SENDGRID, forged) != RefusedPost(RefusalReason.BAD_SIGNATURE):
        text = _(
            "A forged request was not refused. Check the verification key and restart the web "
            "role. If this happens again, remove the key, and report it as a bug."
        )
        return SelfTestResult(is_good=False, text=text)
    return SelfTestResult(
        is_good=True,
        text=_(
            "The verification key is valid, and a forged request is refused. Only SendGrid can "
            "sign a real one: send a test event from its settings page."
        ),
    )


def _examine_topics(intake: WebhookIntake) -> SelfTestResult:
    wrong = [arn for arn in intake.context.webhook_keys.topics if not _ARN.fullmatch(arn)]
    if wrong:
        text = _("This is not the ARN of an SNS topic: {arn}", arn=sorted(wrong)[0][:100])
        return SelfTestResult(is_good=False, text=text)
    return SelfTestResult(
        is_good=True,
        text=_(
            "The topics are well-formed. Only Amazon can sign a request: publish a test event "
            "with the SES mailbox simulator."
        ),
    )
