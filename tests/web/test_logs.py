"""What the web role writes down: no address, no token, no password, whatever happens."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog

from postroom.actions import sign_in
from postroom.domain.user import Role
from postroom.records import keys
from postroom.storage.port import Unavailable
from tests.web.office import ADDRESS, LIST, NOW, Office, open_office
from tests.web.signed_in import OWN_PAGE, PASSWORD, sign_in_as

OWNER = "owner@contoso.edu"


@pytest_asyncio.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as office:
        yield office


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> Iterator[list[object]]:
    """Every line, of us and of the libraries, but for the test's own browser."""
    before = structlog.get_config()
    lines: list[object] = []

    def keep(_logger: object, _name: str, event: MutableMapping[str, Any]) -> str:
        lines.append(dict(event))
        return ""

    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx2").setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[structlog.processors.format_exc_info, keep],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    yield lines
    structlog.configure(**before)


async def a_day_at_the_office(office: Office) -> list[str]:
    """Everything people do with secrets in hand; the secrets."""
    tables, browser = office.storage.tables, office.browser
    token = await sign_in.first_link(tables, NOW)
    assert token
    await browser.get(f"/admin/welcome/{token}")
    account = {"address": OWNER, "password": PASSWORD}
    await browser.post(f"/admin/welcome/{token}", data=account, headers=OWN_PAGE)
    await browser.post("/admin/sign-in", data=account, headers=OWN_PAGE)
    await browser.post("/admin/sign-in", data=account | {"password": "wrong"}, headers=OWN_PAGE)
    key, _ = await keys.create(tables, "site", (), NOW)
    for secret in (key, "prk_" + "x" * 40):
        await browser.post(
            "/api/v1/subscribe",
            json={"list": LIST, "email": "new@contoso.edu"},
            headers={"Authorization": f"Bearer {secret}"},
        )
    person = await office.join(verified=False)
    paths = [office.confirm_path(person.guid), office.leave_path(person.guid)]
    for path in paths:
        await browser.get(path)
        await browser.post(path, data={"leave": "yes"})
        await browser.get(path + "/nowhere")
    worker = await sign_in_as(office, Role.EDITOR)
    async with worker.browser:
        await worker.get("/admin/subscribers", list=LIST, q=ADDRESS)
        session = worker.browser.cookies["__Host-postroom"]
    guid_and_token = [part for path in paths for part in path.split("/") if len(part) > 20]
    return [token, PASSWORD, key, OWNER, ADDRESS, "new@contoso.edu", session, *guid_and_token]


async def test_nothing_secret_is_written_down(
    office: Office, written: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    secrets = await a_day_at_the_office(office)
    everything = repr(written) + caplog.text
    assert [secret for secret in secrets if secret in everything] == []


async def test_nothing_secret_is_written_down_when_storage_fails(
    office: Office,
    written: list[object],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person = await office.join(verified=True)

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("no answer")

    monkeypatch.setattr(office.storage.tables, "get", fail)
    path = office.leave_path(person.guid)
    assert (await office.browser.get(path)).status_code == 503
    assert (await office.browser.post(path, data={"leave": "yes"})).status_code == 503
    everything = repr(written) + caplog.text
    assert "storage_failed" in everything
    assert person.guid not in everything
    assert ADDRESS not in everything
