"""/messages/{ref}/feedback and /bounces: the same numbers as on the pages, for programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from postroom.domain.access_key import Right
from postroom.domain.message import Status
from postroom.domain.user import Role
from postroom.records import keys
from postroom.web.api.feedback import FEEDBACK_EXAMPLE, BounceView, FeedbackView
from tests.web import returned
from tests.web.office import LIST, NOW
from tests.web.signed_in import Worker, at_work


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER) as worker:
        yield worker


async def call(worker: Worker, path: str, *lists: str, status: int = 200) -> Any:
    """Call with a key that may read these lists, or all."""
    tables = worker.office.storage.tables
    secret, _key = await keys.create(tables, "program", lists, NOW, (Right.READ,))
    answer = await worker.office.browser.get(
        f"/api/v1{path}", headers={"Authorization": f"Bearer {secret}"}
    )
    assert answer.status_code == status, answer.text
    return answer.json()


def api_path(path: str) -> str:
    return path.removeprefix("/admin")


async def test_the_summary_has_every_number(owner: Worker) -> None:
    path = await returned.sent_to(owner, 12)
    empty = await call(owner, f"{api_path(path)}/feedback")
    assert (empty["sent"], empty["bounced"], empty["reasons"], empty["domains"]) == (12, 0, [], [])
    await returned.everything(owner, path)
    found = await call(owner, f"{api_path(path)}/feedback", LIST)
    assert found.keys() == FEEDBACK_EXAMPLE.keys()
    FeedbackView.model_validate(found)
    counted = ("delivered", "bounced", "complained", "unsubscribed", "deferred", "opened")
    assert [found[name] for name in counted] == [6, 5, 1, 1, 1, 2]
    assert found["classes"] == {"dead": 2, "temporary": 1, "ours": 1, "complaint": 0, "ignore": 0}
    assert found["reasons"][0] == {
        "class": "dead",
        "reason": "no_such_user",
        "count": 2,
        "example": returned.DEAD.words,
    }
    by_domain = {each["domain"]: each for each in found["domains"]}
    assert by_domain["contoso.edu"]["dead"] == 1
    total = sum(each["dead"] + each["temporary"] + each["ours"] + each["other"] for each in
                by_domain.values())  # fmt: skip
    assert total == found["bounced"]
    assert found["paused_because"] is None


async def test_a_message_paused_automatically_has_the_reason(owner: Worker) -> None:
    more = {"pause_cause": returned.CAUSE, "is_self_paused": True}
    path = await returned.sent_to(owner, 1, Status.PAUSED, **more)
    found = await call(owner, f"{api_path(path)}/feedback")
    words = returned.CAUSE.words
    cause = {"refused": 30, "ended": 120, "words": words, "is_too_large": False}
    assert found["paused_because"] == cause
    await owner.post(f"{path}/resume")
    assert (await call(owner, f"{api_path(path)}/feedback"))["paused_because"] is None


async def test_bounces_come_in_pages_in_the_order_of_the_audience(owner: Worker) -> None:
    path = await returned.sent_to(owner, 12)
    await returned.everything(owner, path)
    first = await call(owner, f"{api_path(path)}/bounces?limit=4")
    rest = await call(owner, f"{api_path(path)}/bounces?limit=4&cursor={first['next']}")
    assert rest["next"] is None
    items = first["items"] + rest["items"]
    addresses = [each["address"] for each in items]
    assert addresses == [returned.address_at(at) for at in (0, 6, 7, 8, 9, 10)]
    for each in items:
        BounceView.model_validate(each)
    assert (items[0]["kind"], items[1]["class"], items[5]["class"]) == ("complained", "dead", None)
    assert items[1]["words"] == returned.DEAD.words


async def test_a_key_of_another_list_sees_nothing(owner: Worker) -> None:
    path = await returned.sent_to(owner, 1)
    for page in ("feedback", "bounces"):
        await call(owner, f"{api_path(path)}/{page}", "contoso2", status=404)


async def test_a_message_that_does_not_exist_has_no_feedback(owner: Worker) -> None:
    for page in ("feedback", "bounces"):
        await call(owner, f"/messages/634852858215726983/{page}", status=404)


async def test_the_document_describes_both(owner: Worker) -> None:
    document = (await owner.office.browser.get("/api/v1/openapi.json")).json()
    for page in ("feedback", "bounces"):
        described = document["paths"][f"/api/v1/messages/{{ref}}/{page}"]["get"]
        assert described["summary"]
        assert "200" in described["responses"]
