"""Dead letters on the admin pages: what they say, and what becomes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.audit import AuditAction, AuditOutcome
from postroom.domain.dead_letter import EXPLANATIONS, Reason, dead_letter
from postroom.domain.user import Role
from postroom.domain.work_item import ConfirmItem
from postroom.records import dead_letters
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE, SINGLE_MAIL_QUEUE
from tests.web.office import LIST, NOW
from tests.web.people import join, leave
from tests.web.signed_in import Worker, at_work, notice_in, sign_in_as
from tests.web.test_admin_audit import entries

PAGE = "/admin/dead-letters"
ITEM = "2026-11-15,639303300000000000,student1@contoso.edu,0,0"


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER) as worker:
        yield worker


async def bury(
    worker: Worker, reason: Reason, body: str = ITEM, queue: str = MAIL_QUEUE, days: int = 0
) -> str:
    """Set an item aside, and return its id."""
    queues = worker.office.storage.queues
    letter = dead_letter(queue, body, reason, NOW - timedelta(days=days))
    await queues.put(DEAD_LETTER_QUEUE, msgspec.json.encode(letter).decode())
    return (await queues.peek(DEAD_LETTER_QUEUE))[-1].id


async def ids(worker: Worker) -> list[str]:
    return [item.id for item in await worker.office.storage.queues.peek(DEAD_LETTER_QUEUE)]


async def test_each_says_why_since_when_and_what_to_do(owner: Worker) -> None:
    for reason in Reason:
        if reason is not Reason.UNKNOWN:
            await bury(owner, reason)
    await owner.office.storage.queues.put(DEAD_LETTER_QUEUE, "from elsewhere")
    page = unescape((await owner.get(PAGE)).text)
    for reason in Reason:
        assert str(EXPLANATIONS[reason]) in page
    assert page.count("<strong><time") == len(Reason)
    assert 'href="/admin/messages/639303300000000000"' in page
    overview = unescape((await owner.get("/admin")).text)
    assert f"{len(Reason)} work items could not be processed" in overview
    assert f'href="{PAGE}"' in overview


async def test_one_is_put_back_on_its_own_queue(owner: Worker) -> None:
    queues = owner.office.storage.queues
    kept = await bury(owner, Reason.NO_BATCH, "2026-11-15,639303300000000001,a@contoso.edu,0,0")
    id_ = await bury(owner, Reason.UNREADABLE)
    answer = await owner.post(f"{PAGE}/put-back", id=id_)
    assert notice_in(answer) == "letter-put-back"
    assert [item.body for item in await queues.peek(MAIL_QUEUE)] == [ITEM]
    assert await ids(owner) == [kept]
    assert (await owner.post(f"{PAGE}/put-back", id=id_)).status_code == 409
    assert await queues.length(MAIL_QUEUE) == 1


async def test_what_no_sender_understands_is_not_put_back(owner: Worker) -> None:
    id_ = await bury(owner, Reason.MALFORMED, "nonsense")
    refused = await owner.post(f"{PAGE}/put-back", id=id_)
    assert refused.status_code == 409
    assert "No sender can process this item" in unescape(refused.text)
    assert await ids(owner) == [id_]  # and can be handled at once
    await owner.post(f"{PAGE}/put-back")
    assert await ids(owner) == [id_]


async def test_one_or_all_are_cleared(owner: Worker) -> None:
    first = await bury(owner, Reason.NO_BATCH)
    second = await bury(owner, Reason.MALFORMED)
    assert notice_in(await owner.post(f"{PAGE}/clear", id=first)) == "letters-cleared"
    assert await ids(owner) == [second]
    assert "Clear 1 dead letter?" in (await owner.get(f"{PAGE}/clear-all")).text
    await owner.post(f"{PAGE}/clear-all")
    assert "No dead letters" in (await owner.get(PAGE)).text
    actions = [(each.action, each.outcome) for each in await entries(owner.office.storage)]
    assert actions == [(AuditAction.CLEAR, AuditOutcome.DONE)] * 2


async def test_a_confirmation_is_requested_again(owner: Worker) -> None:
    queues = owner.office.storage.queues
    one = await join(owner, "ada@contoso.edu", verified=False)
    body = ConfirmItem(one.guid, LIST).body()
    id_ = await bury(owner, Reason.UNREADABLE, body, SINGLE_MAIL_QUEUE)
    page = unescape((await owner.get(PAGE)).text)
    assert "Send a new confirmation" in page
    assert "ada@contoso.edu" in page
    assert notice_in(await owner.post(f"{PAGE}/resend", id=id_)) == "asked"
    assert await ids(owner) == []
    assert [item.body for item in await queues.peek(SINGLE_MAIL_QUEUE)] == [body]
    id_ = await bury(owner, Reason.UNREADABLE, body, SINGLE_MAIL_QUEUE)
    refused = await owner.post(f"{PAGE}/resend", id=id_)
    assert refused.status_code == 409  # they were asked a moment ago
    assert await ids(owner) == [id_]
    await leave(owner, one)
    gone = await owner.post(f"{PAGE}/resend", id=id_)
    assert "This person is no longer on any list" in unescape(gone.text)


async def test_old_ones_expire_and_the_others_stay(owner: Worker) -> None:
    queues = owner.office.storage.queues
    for days in (100, 10, 95, 20):
        await bury(owner, Reason.NO_BATCH, days=days)
    for number in range(40):
        await bury(owner, Reason.NO_BATCH, f"item {number}", days=99)
    assert await dead_letters.expire(queues, NOW, keep_days=90) == 42
    left = [(NOW - each.at).days for each in await dead_letters.oldest(queues)]
    assert sorted(left) == [10, 20]
    assert await dead_letters.expire(queues, NOW, keep_days=90) == 0


@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR])
async def test_others_see_them_and_cannot_act(owner: Worker, role: Role) -> None:
    id_ = await bury(owner, Reason.NO_BATCH)
    other = await sign_in_as(owner.office, role)
    async with other.browser:
        page = await other.get(PAGE)
        assert page.status_code == 200
        assert "<button" not in page.text.partition('<div class="stack">')[2]
        for act in ("put-back", "resend", "clear", "clear-all"):
            assert (await other.post(f"{PAGE}/{act}", id=id_)).status_code == 403
    assert await ids(owner) == [id_]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR])
async def test_others_do_not_see_the_guid_that_unsubscribes_a_person(
    owner: Worker, role: Role
) -> None:
    one = await join(owner, "ada@contoso.edu", verified=False)
    body = ConfirmItem(one.guid, LIST).body()
    await bury(owner, Reason.UNREADABLE, body, SINGLE_MAIL_QUEUE)
    await bury(owner, Reason.MALFORMED, str(UUID(one.guid)).upper(), SINGLE_MAIL_QUEUE)
    await owner.office.storage.queues.put(DEAD_LETTER_QUEUE, f"{one.guid}, {LIST}, and more")
    assert body in (await owner.get(PAGE)).text
    other = await sign_in_as(owner.office, role)
    async with other.browser:
        page = (await other.get(PAGE)).text
    assert page.count(f"{one.guid[:8]}…") == 2
    assert one.guid[-12:] not in page.lower()
