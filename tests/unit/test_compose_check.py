"""Bodies are checked before they are stored, and nobody waits for a large one."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from postroom.clock import WallClock
from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import BODY_BYTES_MAX
from postroom.flow import compose
from postroom.flow.compose import CHECKED_AT_ONCE_CHARS, Draft
from postroom.mail.merge import FIELDS_MAX
from postroom.records import lists
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from tests.acting import acting

NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
LIST = "contoso1"


async def storage_with_a_list() -> MemoryStorage:
    storage = MemoryStorage(WallClock(), STORAGE_NAMES)
    one = MailingList(name=LIST, description="", sender="a@contoso.edu", created_at=NOW)
    await lists.create(storage.tables, one)
    return storage


@pytest.mark.parametrize("text", [None, "the same in words"])
async def test_a_body_that_parsers_are_slow_with_is_refused(text: str | None) -> None:
    draft = Draft(list_name=LIST, subject="News", html="<div>" * 500, text=text)
    with pytest.raises(BadInput, match="nested elements"):
        await compose.compose(acting(await storage_with_a_list(), NOW), draft)


async def test_the_foot_that_every_mail_gets_is_a_part_of_the_check() -> None:
    html = "<p>" + "{{ name }} " * FIELDS_MAX + "</p>"
    draft = Draft(list_name=LIST, subject="News", html=html)
    with pytest.raises(BadInput, match=f"more than {FIELDS_MAX}"):
        await compose.compose(acting(await storage_with_a_list(), NOW), draft)


async def test_a_body_as_long_as_it_may_be_has_room_for_its_foot() -> None:
    html = "<p>" + "x " * ((BODY_BYTES_MAX - 7) // 2) + "</p>"
    draft = Draft(list_name=LIST, subject="News", html=html)
    made = await compose.compose(acting(await storage_with_a_list(), NOW), draft)
    assert made.has_html


@pytest.mark.parametrize(("chars", "is_at_once"), [(10, True), (CHECKED_AT_ONCE_CHARS + 1, False)])
async def test_a_large_body_is_checked_beside_the_event_loop(
    chars: int, is_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, threads = compose.check_bodies, list[int]()

    def noted(draft: Draft, mailing_list: MailingList) -> None:
        threads.append(threading.get_ident())
        check(draft, mailing_list)

    monkeypatch.setattr(compose, "check_bodies", noted)
    draft = Draft(list_name=LIST, subject="News", text="x" * chars)
    await compose.compose(acting(await storage_with_a_list(), NOW), draft)
    assert [thread == threading.get_ident() for thread in threads] == [is_at_once]
