"""Webhooks over HTTP: real posts of five providers are stored before they are answered, or refused.

What is stored is dealt with by stage 5, so a message's summary is what proves that a post counted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

from postroom.domain.feedback import BounceClass, FeedbackKind
from postroom.domain.subscriber import InactiveReason
from postroom.domain.user import Role
from postroom.feedback.webhooks.post import RefusalReason, WebhookRequest
from postroom.flow.feedback import FeedbackHandler
from postroom.records import feedback, subscribers, suppressions, webhooks
from postroom.records.feedback import FeedbackSummary
from postroom.storage.port import Unavailable
from postroom.web.webhooks.keys import Provider, WebhookKeys, webhook_secret
from tests import webhook_posts as posts
from tests.web import returned
from tests.web.office import LIST, NOW, Still, open_office
from tests.web.signed_in import Worker, sign_in_as
from tests.web.test_errors import failing

MEGABYTES_10 = 10 * 1024 * 1024
SECRET = "a secret"  # of the office
GRID_SECRET = webhook_secret(SECRET, Provider.ACS)
LOGIN = f"postroom:{webhook_secret(SECRET, Provider.POSTMARK)}"
GONE = "550 5.1.1 User unknown"
PROVIDERS = list(Provider)
SIGNED_WITH_THE_TIME = [Provider.SENDGRID, Provider.MAILGUN]


@dataclass
class Accounts:
    """An account at each provider, whose webhooks are set up."""

    sendgrid: posts.SendGrid = field(default_factory=posts.SendGrid)
    topic: posts.SnsTopic = field(default_factory=posts.SnsTopic)
    grid: posts.EventGrid = field(default_factory=lambda: posts.EventGrid(GRID_SECRET))
    mailgun: posts.Mailgun = field(default_factory=posts.Mailgun)
    postmark: posts.Postmark = field(default_factory=lambda: posts.Postmark(login=LOGIN))

    @property
    def keys(self) -> WebhookKeys:
        return WebhookKeys(self.sendgrid.verification_key, self.mailgun.key, self.topic.arn)

    def forged(self) -> Accounts:
        """Somebody who knows everything but the keys and secrets."""
        return Accounts(
            sendgrid=posts.SendGrid(),
            topic=posts.SnsTopic(key_number=1),
            grid=posts.EventGrid("guessed"),
            mailgun=posts.Mailgun("guessed"),
            postmark=posts.Postmark(login="postroom:guessed"),
        )

    def bounce(self, provider: Provider, token: str) -> WebhookRequest:
        """The mailbox of the recipient does not exist."""
        match provider:
            case Provider.SENDGRID:
                event = posts.sendgrid_event(
                    "bounce", delivery=token, type="bounce", status="5.1.1", reason=GONE
                )
                return self.sendgrid.post([event], at=NOW)
            case Provider.SES:
                report = posts.ses_bounce("Permanent", "General", "5.1.1", GONE)
                report["mail"]["tags"]["postroom_delivery"] = [token]
                return self.topic.post(report)
            case Provider.ACS:
                return self.grid.post([posts.acs_report("Bounced", delivery=token, words=GONE)])
            case Provider.MAILGUN:
                status = {"code": 550, "enhanced-code": "5.1.1", "message": GONE}
                event = posts.mailgun_event(
                    "failed", delivery=token, severity="permanent", delivery_status=status
                )
                return self.mailgun.post(event, at=NOW)
            case Provider.POSTMARK:
                bounce = posts.postmark_bounce(1, "HardBounce", GONE)
                bounce["Metadata"] = {"postroom_delivery": token}
                return self.postmark.post(bounce)

    def signed_at(self, provider: Provider, **ago: float) -> WebhookRequest:
        at = NOW - timedelta(**ago)
        if provider is Provider.SENDGRID:
            return self.sendgrid.post([posts.sendgrid_event("delivered")], at=at)
        return self.mailgun.post(posts.mailgun_event("delivered"), at=at)


@dataclass
class Desk:
    """An installation that providers post to, and a message that was sent to three people."""

    owner: Worker
    accounts: Accounts
    path: str

    @property
    def ref(self) -> str:
        return self.path.rpartition("/")[2]

    def token(self, position: int = 0) -> str:
        return returned.token_of(self.owner, self.path, position)

    async def send(self, provider: str, post: WebhookRequest) -> httpx2.Response:
        return await self.owner.office.browser.request(
            post.method,
            f"/webhooks/{provider}",
            content=post.body,
            headers=dict(post.headers),
            params=dict(post.query),
        )

    async def hear(self) -> FeedbackSummary:
        """Stage 5 deals with everything that is stored."""
        storage = self.owner.office.storage
        handler = FeedbackHandler(storage, Still(), SECRET)
        for _step in range(100):
            if not await handler.step():
                return await feedback.find_summary(storage.tables, self.ref)
        raise AssertionError("there is always more")


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    accounts = Accounts()
    more: dict[str, Any] = {"webhook_keys": accounts.keys, "fetch": accounts.topic.fetch}
    async with open_office(tmp_path, **more) as office:
        owner = await sign_in_as(office, Role.OWNER)
        async with owner.browser:
            yield Desk(owner, accounts, await returned.sent_to(owner, 3))


async def counts_of(desk: Desk, provider: Provider) -> webhooks.WebhookCounts:
    """As the page has them, which collects what the process has counted."""
    await desk.owner.get("/admin/webhooks")
    return await webhooks.find_counts(desk.owner.office.storage.tables, provider)


# --- Accepted ------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_bounce_is_counted_and_nobody_mails_the_address_again(
    desk: Desk, provider: Provider
) -> None:
    answer = await desk.send(provider, desk.accounts.bounce(provider, desk.token(1)))
    assert (answer.status_code, answer.text) == (200, "Thanks.")
    summary = await desk.hear()
    assert summary.kinds == {FeedbackKind.BOUNCED: 1}
    assert summary.classes == {BounceClass.DEAD: 1}
    tables = desk.owner.office.storage.tables
    [bounce], _more = await feedback.bounces_of(tables, desk.ref)
    assert (bounce.address, bounce.source) == (returned.address_at(1), provider)
    assert "5.1.1" in bounce.words
    found = await subscribers.find(tables, LIST, bounce.key)
    assert found
    assert found.value.inactive_reason is InactiveReason.BOUNCED
    assert await suppressions.find(tables, SECRET, bounce.key)
    page = (await desk.owner.get(f"{desk.path}/feedback")).text
    assert returned.address_at(1) in page
    counts = await counts_of(desk, provider)
    assert (counts.events, counts.unknown, counts.refused, counts.last_at) == (1, 0, 0, NOW)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_post_that_comes_twice_counts_once(desk: Desk, provider: Provider) -> None:
    post = desk.accounts.bounce(provider, desk.token())
    for _time in range(2):
        assert (await desk.send(provider, post)).status_code == 200
    assert (await desk.hear()).kinds == {FeedbackKind.BOUNCED: 1}
    assert (await desk.send(provider, post)).status_code == 200  # once it is dealt with
    assert (await desk.hear()).kinds == {FeedbackKind.BOUNCED: 1}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_event_with_a_forged_delivery_token_changes_nothing(
    desk: Desk, provider: Provider
) -> None:
    answer = await desk.send(provider, desk.accounts.bounce(provider, posts.TOKEN))
    assert answer.status_code == 200
    assert (await desk.hear()).kinds == {}


@pytest.mark.parametrize("provider", SIGNED_WITH_THE_TIME)
async def test_a_post_is_accepted_as_long_as_providers_repeat_it(
    desk: Desk, provider: Provider
) -> None:
    post = desk.accounts.signed_at(provider, hours=24)
    assert (await desk.send(provider, post)).status_code == 200


async def test_many_events_of_one_post_count_each(desk: Desk) -> None:
    events = [
        posts.sendgrid_event("delivered", at, delivery=desk.token(at), at=NOW) for at in range(3)
    ]
    events.append(posts.sendgrid_event("spamreport", delivery=desk.token(2), at=NOW))
    events.append(posts.sendgrid_event("unheard-of"))
    answer = await desk.send("sendgrid", desk.accounts.sendgrid.post(events, at=NOW))
    assert answer.status_code == 200
    assert (await desk.hear()).kinds == {FeedbackKind.DELIVERED: 3, FeedbackKind.COMPLAINED: 1}
    counts = await counts_of(desk, Provider.SENDGRID)
    assert (counts.events, counts.unknown) == (4, 1)


async def test_event_grid_gets_the_answers_of_its_handshakes(desk: Desk) -> None:
    answer = await desk.send("acs", desk.accounts.grid.validate("the-code"))
    assert (answer.status_code, answer.json()) == (200, {"validationResponse": "the-code"})
    answer = await desk.send("acs", desk.accounts.grid.ask())
    assert answer.status_code == 200
    assert answer.headers["webhook-allowed-origin"] == "eventgrid.azure.net"


async def test_a_topic_that_asks_waits_for_an_owner(desk: Desk) -> None:
    assert (await desk.send("ses", desk.accounts.topic.ask())).status_code == 200
    [notice] = (await webhooks.notices(desk.owner.office.storage.tables)).values()
    assert notice.topic == desk.accounts.topic.arn
    over = desk.accounts.topic.ask("UnsubscribeConfirmation")
    assert (await desk.send("ses", over)).status_code == 200
    assert await webhooks.notices(desk.owner.office.storage.tables) == {}


# --- Refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_forged_post_is_refused_and_changes_nothing(desk: Desk, provider: Provider) -> None:
    forged = desk.accounts.forged().bounce(provider, desk.token())
    assert (await desk.send(provider, forged)).status_code == 403
    assert (await desk.hear()).kinds == {}
    counts = await counts_of(desk, provider)
    assert (counts.events, counts.refused, counts.refused_at) == (0, 1, NOW)
    assert counts.refusal == RefusalReason.BAD_SIGNATURE


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_post_without_a_proof_is_refused(desk: Desk, provider: Provider) -> None:
    post = desk.accounts.bounce(provider, desk.token())
    bare = WebhookRequest(body=post.body)
    if provider in (Provider.SES, Provider.MAILGUN):  # the proof is in the body
        bare = WebhookRequest(body=b"{}")
    assert (await desk.send(provider, bare)).status_code == 403
    assert (await desk.hear()).kinds == {}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_truncated_post_changes_nothing(desk: Desk, provider: Provider) -> None:
    """Refused if its signature covers it; else proven to be the provider's, and unreadable."""
    post = desk.accounts.bounce(provider, desk.token())
    cut = msgspec.structs.replace(post, body=post.body[: len(post.body) // 2])
    is_by_secret = provider in (Provider.ACS, Provider.POSTMARK)
    assert (await desk.send(provider, cut)).status_code == (200 if is_by_secret else 403)
    assert (await desk.hear()).kinds == {}
    counts = await counts_of(desk, provider)
    assert (counts.unknown, counts.refused) == ((1, 0) if is_by_secret else (0, 1))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_ten_megabytes_are_refused_before_they_are_read(
    desk: Desk, provider: Provider
) -> None:
    post = desk.accounts.bounce(provider, desk.token())
    large = msgspec.structs.replace(post, body=post.body + b" " * MEGABYTES_10)
    assert (await desk.send(provider, large)).status_code == 413
    assert (await desk.hear()).kinds == {}


@pytest.mark.parametrize("provider", SIGNED_WITH_THE_TIME)
@pytest.mark.parametrize("ago", [{"days": 2.0}, {"hours": -1.0}], ids=["replayed", "future"])
async def test_a_post_signed_at_another_time_is_refused(
    desk: Desk, provider: Provider, ago: dict[str, float]
) -> None:
    post = desk.accounts.signed_at(provider, **ago)
    assert (await desk.send(provider, post)).status_code == 403
    assert (await counts_of(desk, provider)).refusal == RefusalReason.OUTSIDE_WINDOW


async def test_somebody_elses_topic_is_refused_without_fetching_anything(desk: Desk) -> None:
    other = posts.SnsTopic(arn="arn:aws:sns:eu-central-1:999999999999:evil")
    assert (await desk.send("ses", other.ask())).status_code == 403
    assert await webhooks.notices(desk.owner.office.storage.tables) == {}
    assert (await counts_of(desk, Provider.SES)).refusal == RefusalReason.WRONG_TOPIC


async def test_amazon_tries_again_while_its_certificate_cannot_be_fetched(desk: Desk) -> None:
    moved = replace(
        desk.accounts.topic, certificate_url="https://sns.eu-west-1.amazonaws.com/other.pem"
    )
    assert (await desk.send("ses", moved.post(posts.ses_bounce("x", "y")))).status_code == 503


@pytest.mark.parametrize("name", ["mailchimp", "SENDGRID", "send grid", "sendgrid%2F"])
async def test_an_unknown_provider_is_not_found(desk: Desk, name: str) -> None:
    post = desk.accounts.bounce(Provider.SENDGRID, desk.token())
    assert (await desk.send(name, post)).status_code == 404


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_another_method_is_refused(desk: Desk, method: str) -> None:
    answer = await desk.owner.office.browser.request(method, "/webhooks/sendgrid")
    assert answer.status_code == 405


# --- Accidents -----------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("part", ["tables.batch", "queues.put"])
async def test_what_cannot_be_stored_is_answered_503_and_counts_when_it_comes_again(
    desk: Desk, provider: Provider, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = desk.accounts.bounce(provider, desk.token())
    port, _dot, method = part.partition(".")
    storage = desk.owner.office.storage
    with monkeypatch.context() as down:
        down.setattr(getattr(storage, port), method, failing(Unavailable("no answer")))
        answer = await desk.send(provider, post)
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert (await desk.send(provider, post)).status_code == 200
    assert (await desk.hear()).kinds == {FeedbackKind.BOUNCED: 1}


async def test_nothing_of_a_refused_post_is_logged(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    await desk.send("postmark", desk.accounts.forged().bounce(Provider.POSTMARK, desk.token()))
    logged: Callable[[], Any] = capsys.readouterr
    assert posts.ADDRESS not in "".join(logged())


async def test_a_webhook_needs_neither_a_session_nor_our_own_page(desk: Desk) -> None:
    """Its proof is its own: a cookie or a foreign origin makes no difference."""
    post = desk.accounts.bounce(Provider.POSTMARK, desk.token())
    headers = dict(post.headers) | {"origin": "https://postmarkapp.com", "sec-fetch-site": "none"}
    answer = await desk.owner.office.browser.post(
        "/webhooks/postmark", content=post.body, headers=headers
    )
    assert answer.status_code == 200
