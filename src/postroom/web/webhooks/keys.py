"""How providers prove that a post to a webhook is genuine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from postroom.domain.token import sign
from postroom.feedback.webhooks import sendgrid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey


class Provider(StrEnum):
    """Who posts to /webhooks/NAME."""

    SENDGRID = "sendgrid"
    SES = "ses"  # over Amazon SNS
    ACS = "acs"  # over Azure Event Grid
    MAILGUN = "mailgun"
    POSTMARK = "postmark"


@dataclass(frozen=True)
class WebhookKeys:
    """The keys, topics and secrets of providers, from the settings."""

    sendgrid: str = ""  # public keys, with a comma between while one replaces another
    mailgun: str = ""  # signing keys
    sns_topics: str = ""  # ARNs

    @cached_property
    def sendgrid_keys(self) -> tuple[EllipticCurvePublicKey, ...]:
        return tuple(map(sendgrid.verification_key, _listed(self.sendgrid)))

    @cached_property
    def mailgun_keys(self) -> tuple[str, ...]:
        return _listed(self.mailgun)

    @cached_property
    def topics(self) -> frozenset[str]:
        return frozenset(_listed(self.sns_topics))

    def missing_setting(self, provider: Provider) -> str:
        """The setting without which no post of the provider is accepted; empty if it is set."""
        needed = {
            Provider.SENDGRID: ("POSTROOM_SENDGRID_WEBHOOK_KEY", self.sendgrid),
            Provider.MAILGUN: ("POSTROOM_MAILGUN_WEBHOOK_KEY", self.mailgun),
            Provider.SES: ("POSTROOM_SNS_TOPICS", self.sns_topics),
        }
        name, value = needed.get(provider, ("", ""))
        return "" if _listed(value) else name


NO_WEBHOOK_KEYS = WebhookKeys()


def webhook_secret(site_secret: str, provider: Provider) -> str:
    """The secret for providers that sign nothing: they send it along with every post."""
    return sign(site_secret, "webhook", provider)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())
