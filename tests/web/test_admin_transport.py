"""How emails leave, on the admin pages: the transport's health, what is in doubt, and its test."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

from postroom import settings
from postroom.domain.doctor import Check, CheckResult
from postroom.domain.message import Status
from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.domain.trouble import Trouble, TroubleKind
from postroom.domain.user import Role
from postroom.records import leases, rate_limits
from postroom.web.security import limits_for
from postroom.wiring.transport_entry import TransportEntry
from postroom.wiring.transports import EXAMINE_S, transport_of
from tests.web.office import NOW, open_office
from tests.web.signed_in import Worker, sign_in_as
from tests.web.test_admin_sending import going_out

PAGE = "/admin/sending"
SERVER = "post.contoso.edu:587"
SMTP: dict[str, Any] = {
    "mail_server": SERVER,
    "transport": f"SMTP to {SERVER}, with STARTTLS, as postroom",
}
REFUSED = Trouble(
    TroubleKind.LOGIN, SERVER, "535 5.7.8 no", NOW, NOW + timedelta(seconds=30), faults=4
)


@asynccontextmanager
async def somebody_at(folder: Path, role: Role = Role.OWNER, **more: Any) -> AsyncIterator[Worker]:
    async with open_office(folder, **more) as office:
        worker = await sign_in_as(office, role)
        async with worker.browser:
            yield worker


def entry_of(address: str) -> TransportEntry:
    environment = {"POSTROOM_TRANSPORT": address}
    return transport_of(settings.load(environment, Path("/nonexistent.toml")))


async def shown(worker: Worker) -> str:
    answer = await worker.get(PAGE)
    assert answer.status_code == 200
    return text_of(answer.text)


def text_of(page: str) -> str:
    return unescape(re.sub(r"\s+", " ", page))


async def sender(worker: Worker, name: str, trouble: Trouble | None = None) -> None:
    lease: dict[str, Any] = {"now": NOW, "lease_s": 60.0, "mail_trouble": trouble}
    tables = worker.office.storage.tables
    await leases.hold(tables, leases.sender_lease(name), name, **lease)


async def test_a_transport_that_works_is_described_without_its_password(tmp_path: Path) -> None:
    async with somebody_at(tmp_path, Role.VIEWER, **SMTP) as viewer:
        assert "unknown until a sender runs" in await shown(viewer)
        await sender(viewer, "one")
        page = await shown(viewer)
        assert SMTP["transport"] in page
        assert "sending normally" in page
        assert "Test this transport" not in page  # for owners


async def test_a_transport_in_trouble_shows_the_last_error_with_advice(tmp_path: Path) -> None:
    async with somebody_at(tmp_path, Role.VIEWER, **SMTP) as viewer:
        await sender(viewer, "one", REFUSED)
        page = await shown(viewer)
        assert f"The mail server {SERVER} rejects the login: 535 5.7.8 no" in page
        assert "Check the user name and the password" in page
        assert "interrupted after 4 failed attempts in a row" in page


async def test_the_rate_limit_of_the_transport_is_shown(tmp_path: Path) -> None:
    async with somebody_at(tmp_path, Role.VIEWER, **SMTP) as viewer:
        tables = viewer.office.storage.tables
        await rate_limits.set_limit(tables, RateLimit("contoso.edu", 1.0))  # of a domain only
        assert "emails/s" not in await shown(viewer)
        await rate_limits.set_limit(tables, RateLimit(TRANSPORT, 500.0, 8))
        page = await shown(viewer)
        assert "500 emails/s" in page
        assert "8 connections" in page


async def test_deliveries_in_doubt_are_counted_with_their_messages(tmp_path: Path) -> None:
    async with somebody_at(tmp_path, **SMTP) as owner:
        assert "held for a decision" not in await shown(owner)
        path = await going_out(owner, Status.COMPLETED)
        await going_out(owner, Status.PAUSED)
        page = await shown(owner)
        assert "2 deliveries are held for a decision" in page
        assert f'href="{path}?outcome=held#people"' in page


async def test_a_test_shows_what_the_server_answered(tmp_path: Path) -> None:
    async def refuse() -> Check:
        return Check(CheckResult.WRONG, "transport", "535 <b>no</b>", "Check the password.")

    async with somebody_at(tmp_path, **SMTP, examine_transport=refuse) as owner:
        assert "Test this transport" in await shown(owner)
        answer = await owner.post(f"{PAGE}/test")
        assert "535 &lt;b&gt;no&lt;/b&gt;" in answer.text
        page = text_of(answer.text)
        assert "The test failed. No email was sent." in page
        assert "Check the password." in page


async def test_a_test_that_succeeds_says_that_nothing_was_sent(tmp_path: Path) -> None:
    async def answer() -> Check:
        return Check(CheckResult.RIGHT, "transport", "it answers")

    async with somebody_at(tmp_path, **SMTP, examine_transport=answer) as owner:
        page = text_of((await owner.post(f"{PAGE}/test")).text)
        assert "The test succeeded: a sender could connect and log in. No email was sent." in page


async def test_the_real_outbox_can_be_tested(tmp_path: Path) -> None:
    entry = entry_of("outbox:")
    more: dict[str, Any] = {"has_outbox": True, "transport": entry.description}
    async with somebody_at(tmp_path, **more, examine_transport=entry.examine) as owner:
        page = text_of((await owner.post(f"{PAGE}/test")).text)
        assert "Test mode needs no connection." in page


async def test_a_real_server_that_is_not_there_is_found_out(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        entry = entry_of(f"smtp://127.0.0.1:{nobody.getsockname()[1]}?tls=none")
        async with somebody_at(tmp_path, **SMTP, examine_transport=entry.examine) as owner:
            page = text_of((await owner.post(f"{PAGE}/test")).text)
        assert "The test failed." in page
        assert "Check the host and port in POSTROOM_TRANSPORT" in page


async def test_only_an_owner_may_test(tmp_path: Path) -> None:
    async with somebody_at(tmp_path, Role.EDITOR, **SMTP) as editor:
        assert (await editor.post(f"{PAGE}/test")).status_code == 403


def test_the_page_waits_longer_than_the_mail_server_may_take() -> None:
    limit = limits_for(f"{PAGE}/test").answer_s
    assert limit
    assert limit > 4 * EXAMINE_S  # connecting, TLS, greeting and login
