"""Bodies are checked before they are stored, and nobody waits for a large one."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from postroom.clock import WallClock
from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import MailingList
from postroom.flow import compose
from postroom.flow.compose import CHECKED_AT_ONCE_CHARS, Draft
from postroom.records import lists
from postroom.storage.memory import MemoryStorage

NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
LIST = "contoso1"


async def storage_with_a_list() -> MemoryStorage:
    storage = MemoryStorage(WallClock())
    one = MailingList(name=LIST, description="", sender="a@contoso.edu", created_at=NOW)
    await lists.create(storage.tables, one)
    return storage


@pytest.mark.parametrize("text", [None, "the same in words"])
async def test_a_body_that_would_hold_up_a_parser_is_refused(text: str | None) -> None:
    draft = Draft(list_name=LIST, subject="News", html="<div>" * 500, text=text)
    with pytest.raises(BadInput, match="open one within another"):
        await compose.compose(await storage_with_a_list(), draft, NOW)


@pytest.mark.parametrize(("chars", "is_at_once"), [(10, True), (CHECKED_AT_ONCE_CHARS + 1, False)])
async def test_a_large_body_is_checked_beside_the_event_loop(
    chars: int, is_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, threads = compose.check_bodies, list[int]()

    def noted(draft: Draft, sender: str) -> None:
        threads.append(threading.get_ident())
        check(draft, sender)

    monkeypatch.setattr(compose, "check_bodies", noted)
    draft = Draft(list_name=LIST, subject="News", text="x" * chars)
    await compose.compose(await storage_with_a_list(), draft, NOW)
    assert [thread == threading.get_ident() for thread in threads] == [is_at_once]
