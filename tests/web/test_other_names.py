"""Admin pages opened by another name than POSTROOM_URL has: let in, or told what to set."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.actions import sign_in
from postroom.records import users
from tests.web.office import NOW, open_office
from tests.web.signed_in import PASSWORD

NEW = "owner@contoso.edu"


def opened_as(host: str, origin: str = "") -> dict[str, str]:
    """What a browser sends over plain http to another machine."""
    return {"host": host, "origin": origin or f"http://{host}"}


@pytest.mark.parametrize("host", ["server:8030", "192.0.2.7:8030", "[2001:db8::7]:8030", "SERVER"])
async def test_the_first_account_is_made_by_whatever_name_the_machine_was_opened(
    tmp_path: Path, host: str
) -> None:
    url = "http://127.0.0.1:8030"  # follows the bound address, 0.0.0.0:8030
    async with open_office(tmp_path, url, is_url_given=False) as office:
        token = await sign_in.first_link(office.storage.tables, NOW)
        fields = {"address": NEW, "password": PASSWORD}
        headers = opened_as(host, f"http://{host.lower()}")
        answer = await office.browser.post(f"/admin/welcome/{token}", data=fields, headers=headers)
        assert answer.status_code == 303
        assert await users.has_any(office.storage.tables)


@pytest.mark.parametrize(
    "headers",
    [
        opened_as("server:8030", "http://evil.example"),
        opened_as("server:8030", "http://server:9999"),
        opened_as("server:8030", "null"),
        opened_as("server:8030") | {"sec-fetch-site": "cross-site"},
        opened_as("server:8030") | {"sec-fetch-site": "same-site"},
        {"host": "server:8030"},
    ],
)
async def test_another_site_stays_another_site_without_an_address_of_our_own(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with open_office(tmp_path, "http://127.0.0.1:8030", is_url_given=False) as office:
        answer = await office.browser.post("/admin/sign-in", headers=headers)
        assert answer.status_code == 403
        assert "another site" in answer.text


async def test_who_comes_by_another_name_reads_both_addresses_and_the_setting(
    tmp_path: Path,
) -> None:
    async with open_office(tmp_path, "http://127.0.0.1:8030") as office:
        answer = await office.browser.post("/admin/sign-in", headers=opened_as("server:8030"))
    assert answer.status_code == 403
    for words in ("http://127.0.0.1:8030", "http://server:8030", "POSTROOM_URL"):
        assert words in answer.text
    assert "another site" not in answer.text


@pytest.mark.parametrize(
    "host", ["<b>server</b>", 'server"onload=', "server/path", "user@server", "x" * 300, ""]
)
@pytest.mark.parametrize("is_url_given", [True, False])
async def test_a_host_that_is_no_name_is_neither_shown_nor_let_in(
    tmp_path: Path, host: str, is_url_given: bool
) -> None:
    url = "http://127.0.0.1:8030"
    async with open_office(tmp_path, url, is_url_given=is_url_given) as office:
        headers = {"host": host, "origin": f"http://{host}"}
        answer = await office.browser.post("/admin/sign-in", headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text
