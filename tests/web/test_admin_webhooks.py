"""Webhooks on the admin pages: addresses, secrets, counts, the self-test, topics of Amazon SNS."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from postroom.domain.user import Role
from postroom.feedback.webhooks.post import RefusalReason, SubscriptionNotice
from postroom.records import feedback, webhooks
from postroom.records.webhooks import WebhookCounts
from postroom.web import fetching
from postroom.web.webhooks.keys import Provider, WebhookKeys, webhook_secret
from tests import webhook_posts as posts
from tests.web.office import NOW, open_office
from tests.web.signed_in import Worker, notice_in, sign_in_as

PAGE = "/admin/webhooks"
TOPIC = posts.SnsTopic()
KEYS = WebhookKeys(posts.SendGrid().verification_key, "a signing key", TOPIC.arn)
NOTICE = SubscriptionNotice(
    topic=TOPIC.arn, url=json.loads(TOPIC.ask().body)["SubscribeURL"], token="t"
)


class Amazon:
    """Counts what is fetched from it."""

    def __init__(self, answer: bytes | None = b"<ok/>") -> None:
        self.answer = answer
        self.fetched: list[str] = []

    async def fetch(self, url: str) -> bytes | None:
        self.fetched.append(url)
        return self.answer


@asynccontextmanager
async def owner_at(folder: Path, **more: Any) -> AsyncIterator[Worker]:
    async with open_office(folder, **more) as office:
        worker = await sign_in_as(office, Role.OWNER)
        async with worker.browser:
            yield worker


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with owner_at(tmp_path, webhook_keys=KEYS) as worker:
        yield worker


async def shown(worker: Worker) -> str:
    answer = await worker.get(PAGE)
    assert answer.status_code == 200
    return unescape(re.sub(r"\s+", " ", answer.text))


def card_of(page: str, provider: Provider) -> str:
    return page.partition(f'<section class="card" id="{provider.value}">')[2].partition("</sec")[0]


async def counts_of(worker: Worker, provider: Provider) -> WebhookCounts:
    return await webhooks.find_counts(worker.office.storage.tables, provider)


# --- Shown ---------------------------------------------------------------------------------------


async def test_every_provider_has_its_address_and_the_secret_that_we_give(owner: Worker) -> None:
    page = await shown(owner)
    secrets = {each: webhook_secret(owner.office.site.secret, each) for each in Provider}
    for provider in Provider:
        card = card_of(page, provider)
        assert f"https://post.contoso.edu/webhooks/{provider.value}" in card
        is_given = provider in (Provider.ACS, Provider.POSTMARK)
        assert (secrets[provider] in card) is is_given
    assert f"/webhooks/acs?secret={secrets[Provider.ACS]}" in page
    assert len(set(secrets.values())) == len(Provider)


async def test_a_missing_setting_is_named_and_nothing_can_be_tested_without_it(
    tmp_path: Path,
) -> None:
    async with owner_at(tmp_path) as owner:
        page = await shown(owner)
        for provider, setting in (
            (Provider.SENDGRID, "POSTROOM_SENDGRID_WEBHOOK_KEY"),
            (Provider.MAILGUN, "POSTROOM_MAILGUN_WEBHOOK_KEY"),
            (Provider.SES, "POSTROOM_SNS_TOPICS"),
        ):
            card = card_of(page, provider)
            assert setting in card
            assert "not set up" in card
            assert "/test" not in card
            answer = await owner.post(f"{PAGE}/{provider.value}/test")
            assert (answer.status_code, answer.headers["location"]) == (303, PAGE)
        assert "Set <code>" not in card_of(page, Provider.POSTMARK)


async def test_with_its_settings_nothing_is_missing(owner: Worker) -> None:
    assert "not set up" not in await shown(owner)


async def test_an_address_that_providers_cannot_reach_is_pointed_out(tmp_path: Path) -> None:
    async with owner_at(tmp_path, is_url_given=False) as owner:
        assert "Set POSTROOM_URL first." in await shown(owner)


async def test_a_public_address_is_fine(owner: Worker) -> None:
    assert "POSTROOM_URL" not in await shown(owner)


async def test_what_came_in_is_counted_with_the_last_refusal(owner: Worker) -> None:
    counts = WebhookCounts(12_345, 2, 3, NOW, NOW, RefusalReason.BAD_SIGNATURE)
    await webhooks.add_counts(owner.office.storage.tables, Provider.SENDGRID, counts)
    card = card_of(await shown(owner), Provider.SENDGRID)
    assert "<dd>12,345</dd>" in card
    assert "the signature or the secret was wrong" in card
    assert "receiving" in card


async def test_a_refusal_of_another_version_is_shown_as_it_is(owner: Worker) -> None:
    counts = WebhookCounts(refused=1, refused_at=NOW, refusal="unheard_of")
    await webhooks.add_counts(owner.office.storage.tables, Provider.SES, counts)
    assert "unheard_of" in card_of(await shown(owner), Provider.SES)


async def test_the_menu_shows_it_to_owners_alone(owner: Worker) -> None:
    assert f'href="{PAGE}"' in (await owner.get("/admin")).text
    editor = await sign_in_as(owner.office, Role.EDITOR)
    async with editor.browser:
        assert f'href="{PAGE}"' not in (await editor.get("/admin")).text


# --- Tested --------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", [Provider.ACS, Provider.MAILGUN, Provider.POSTMARK])
async def test_a_test_post_is_counted_as_unknown_and_changes_nothing(
    owner: Worker, provider: Provider
) -> None:
    page = (await owner.post(f"{PAGE}/{provider.value}/test")).text
    assert "A correctly signed test request was accepted" in card_of(page, provider)
    assert "nothing received yet" in card_of(page, provider)  # by the provider itself
    counts = await counts_of(owner, provider)
    assert (counts.events, counts.unknown, counts.refused) == (0, 1, 0)
    assert await feedback.shards_with_events(owner.office.storage.tables) == []


@pytest.mark.parametrize("provider", [Provider.SENDGRID, Provider.SES])
async def test_where_only_the_provider_can_sign_the_settings_are_examined(
    owner: Worker, provider: Provider
) -> None:
    card = card_of((await owner.post(f"{PAGE}/{provider.value}/test")).text, provider)
    assert "alert-success" in card
    assert await counts_of(owner, provider) == WebhookCounts()  # a test is no refusal


async def test_a_topic_that_is_no_arn_is_found(tmp_path: Path) -> None:
    keys = WebhookKeys(sns_topics="contoso-mail")
    async with owner_at(tmp_path, webhook_keys=keys) as owner:
        card = card_of((await owner.post(f"{PAGE}/ses/test")).text, Provider.SES)
        assert "not the ARN of an SNS topic: contoso-mail" in card


async def test_a_provider_that_is_none_cannot_be_tested(owner: Worker) -> None:
    assert (await owner.post(f"{PAGE}/mailchimp/test")).status_code == 404


# --- Topics of Amazon SNS ------------------------------------------------------------------------


async def asked(worker: Worker, notice: SubscriptionNotice = NOTICE) -> str:
    """The path of a topic that wants to post to us."""
    tables = worker.office.storage.tables
    await webhooks.put_notice(tables, notice)
    [name] = await webhooks.notices(tables)
    return f"{PAGE}/topics/{name}"


async def waiting(worker: Worker) -> int:
    return len(await webhooks.notices(worker.office.storage.tables))


async def test_an_owner_confirms_a_topic_after_a_question(tmp_path: Path) -> None:
    amazon = Amazon()
    async with owner_at(tmp_path, webhook_keys=KEYS, fetch=amazon.fetch) as owner:
        path = await asked(owner)
        assert TOPIC.arn in await shown(owner)
        assert TOPIC.arn in (await owner.get(f"{path}/confirm")).text
        assert amazon.fetched == []  # a question, and nothing more
        answer = await owner.post(f"{path}/confirm")
        assert (answer.status_code, notice_in(answer)) == (303, "topic-confirmed")
        assert amazon.fetched == [NOTICE.url]
        assert await waiting(owner) == 0
        assert (await owner.post(f"{path}/confirm")).status_code == 303  # a second click
        assert amazon.fetched == [NOTICE.url]


async def test_a_topic_that_amazon_does_not_confirm_stays(tmp_path: Path) -> None:
    amazon = Amazon(None)
    async with owner_at(tmp_path, webhook_keys=KEYS, fetch=amazon.fetch) as owner:
        path = await asked(owner)
        answer = await owner.post(f"{path}/confirm")
        assert answer.status_code == 502
        assert "Amazon did not accept the confirmation." in answer.text
        assert await waiting(owner) == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.contoso.edu/?Action=ConfirmSubscription",
        "http://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription",
        "https://sns.eu-central-1.amazonaws.com.evil.example/?Action=x",
        "https://sns.eu-central-1.amazonaws.com@evil.example/?Action=x",
        "https://sns.eu-central-1.amazonaws.com:8443/?Action=x",
        "https://s3.eu-central-1.amazonaws.com/?Action=x",
    ],
)
async def test_nothing_but_amazon_sns_is_ever_fetched(tmp_path: Path, url: str) -> None:
    amazon = Amazon()
    notice = SubscriptionNotice(topic=TOPIC.arn, url=url, token="t")
    async with owner_at(tmp_path, webhook_keys=KEYS, fetch=amazon.fetch) as owner:
        answer = await owner.post(f"{await asked(owner, notice)}/confirm")
        assert answer.status_code == 502
        assert amazon.fetched == []


async def test_a_topic_can_be_dismissed(tmp_path: Path) -> None:
    amazon = Amazon()
    async with owner_at(tmp_path, webhook_keys=KEYS, fetch=amazon.fetch) as owner:
        path = await asked(owner)
        answer = await owner.post(f"{path}/dismiss")
        assert notice_in(answer) == "topic-dismissed"
        assert (await waiting(owner), amazon.fetched) == (0, [])
        assert (await owner.get(f"{path}/confirm")).status_code == 404


# --- What is fetched -----------------------------------------------------------------------------


def served(monkeypatch: pytest.MonkeyPatch, answer: httpx2.Response | Exception) -> None:
    """As if a server of Amazon answered so."""

    def respond(_request: httpx2.Request) -> httpx2.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = httpx2.AsyncClient

    def opened(**options: Any) -> httpx2.AsyncClient:
        return client(transport=httpx2.MockTransport(respond), **options)

    monkeypatch.setattr(httpx2, "AsyncClient", opened)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (httpx2.Response(200, content=b"page"), b"page"),
        (httpx2.Response(403, content=b"page"), None),
        (httpx2.Response(302, headers={"location": "https://evil.example/"}), None),
        (httpx2.Response(200, content=b"x" * (fetching.FETCHED_BYTES_MAX + 1)), None),
        (httpx2.ConnectError("no route"), None),
        (httpx2.ReadTimeout("too slow"), None),
    ],
    ids=["page", "refused", "redirect", "large", "unreachable", "slow"],
)
async def test_a_page_is_fetched_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, answer: httpx2.Response | Exception, body: bytes | None
) -> None:
    served(monkeypatch, answer)
    assert await fetching.fetch_page(NOTICE.url) == body
