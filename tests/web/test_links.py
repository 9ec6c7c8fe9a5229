"""Links as they are mailed, and no others: a slash too many leads nowhere, whoever asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.web.office import Office, open_office

HOSTS = ["post.contoso.edu", "elsewhere.example:8025"]


@pytest_asyncio.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as office:
        yield office


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_a_link_with_a_slash_too_many_is_not_found_and_not_redirected(
    office: Office, method: str, host: str
) -> None:
    """A redirect would trust the Host header, and carry the credential in the link there."""
    subscriber = await office.join(verified=False)
    for path in (
        office.leave_path(subscriber.guid),
        office.leave_path(subscriber.guid) + "/left",
        office.leave_path(subscriber.guid) + "/kept",
        office.confirm_path(subscriber.guid),
        "/api/v1/subscribe",
        "/healthz",
    ):
        body = {"List-Unsubscribe": "One-Click"} if method == "POST" else None
        answer = await office.browser.request(method, path + "/", data=body, headers={"host": host})
        assert answer.status_code == 404, path
        assert "location" not in answer.headers, path
        assert host not in answer.text, path
    assert await office.subscriber() == subscriber
