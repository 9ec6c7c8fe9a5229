"""Rate limits on the admin pages: seen by everybody, set, replaced and cleared by owners."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.rate_limit import TRANSPORT, RateLimit, Share
from postroom.domain.user import Role
from postroom.records import rate_limits
from postroom.records.rate_limits import LIMITS_MAX
from postroom.storage.port import Unavailable
from tests.web.sent_forms import fields_of
from tests.web.signed_in import Worker, at_work, sign_in_as

SET = "/admin/limits/set"
DOMAIN = "contoso.edu"
ALL_MAILS = RateLimit(TRANSPORT, 500.0, 8)
TO_DOMAIN = RateLimit(DOMAIN, 0.5)


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER) as worker:
        yield worker


async def put(worker: Worker, *limits: RateLimit) -> None:
    for limit in limits:
        await rate_limits.set_limit(worker.office.storage.tables, limit)


async def stored(worker: Worker) -> list[RateLimit]:
    found = await rate_limits.all_limits(worker.office.storage.tables)
    return [row.limit(name) for name, row in found.items()]


async def shown(worker: Worker, path: str = "/admin/limits", **more: str) -> str:
    answer = await worker.get(path, **more)
    assert answer.status_code == 200
    return unescape(answer.text)


# --- Shown --------------------------------------------------------------------------------------


async def test_without_a_limit_the_page_says_what_one_is_for_and_offers_the_form(
    owner: Worker,
) -> None:
    page = await shown(owner)
    assert "Emails are sent as fast as the mail server accepts them." in page
    assert fields_of(page, SET).keys() == {
        "once", "etag", "domain", "mails_per_second", "connections",
    }  # fmt: skip


async def test_all_mails_come_first_and_each_limit_says_how_many_senders_share_it(
    owner: Worker,
) -> None:
    await put(owner, RateLimit("zoo.contoso.edu", 1_000_000.0), TO_DOMAIN, ALL_MAILS)
    tables = owner.office.storage.tables
    row = (await rate_limits.all_limits(tables))[TRANSPORT]
    shares = {"one": Share(250.0, 4), "two": Share(250.0, 4)}
    await rate_limits.write_shares(tables, {TRANSPORT: msgspec.structs.replace(row, shares=shares)})
    page = await shown(owner)
    names = ["<strong>all emails<", "<strong>emails to contoso.edu<", "emails to zoo.contoso.edu<"]
    places = [page.index(name) for name in names]
    assert places == sorted(places)
    first, second, third = (page[start:].partition("</tr>")[0] for start in places)
    assert all(each in first for each in (">500<", ">8<", ">2 senders<"))
    assert all(each in second for each in (">0.5<", ">–<", ">0 senders<"))
    assert ">1,000,000<" in third


async def test_a_limit_that_cannot_be_read_is_reported_and_can_be_set_again(owner: Worker) -> None:
    await put(owner, ALL_MAILS)
    tables = owner.office.storage.tables
    row = await tables.get("service", "limit", TRANSPORT)
    assert row
    await tables.upsert("service", "limit", TRANSPORT, {**row.properties, "Format": 99})
    assert "so no emails are being sent" in await shown(owner)
    typed = fields_of(await shown(owner, change=TRANSPORT), SET) | {"mails_per_second": "5"}
    assert (await owner.post(SET, **typed)).status_code == 303
    assert await stored(owner) == [RateLimit(TRANSPORT, 5.0)]


async def test_a_limit_to_be_changed_is_in_the_form(owner: Worker) -> None:
    await put(owner, ALL_MAILS, RateLimit(DOMAIN, 12_345.5))
    of_all = fields_of(await shown(owner, change=TRANSPORT), SET)
    assert of_all | {"once": "", "etag": ""} == {
        "once": "", "etag": "", "domain": "", "mails_per_second": "500", "connections": "8",
    }  # fmt: skip
    of_domain = fields_of(await shown(owner, change=DOMAIN), SET)
    assert (await owner.post(SET, **of_domain)).status_code == 303
    assert await stored(owner) == [ALL_MAILS, RateLimit(DOMAIN, 12_345.5)]


# --- Set and replaced ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "limit"),
    [
        ({"mails_per_second": "500", "connections": "8"}, ALL_MAILS),
        ({"domain": " Contoso.EDU ", "mails_per_second": " 0.5 ", "connections": " "}, TO_DOMAIN),
        (
            {"domain": "bücher.example", "connections": "3"},
            RateLimit("xn--bcher-kva.example", 0.0, 3),
        ),
    ],
)
async def test_a_limit_is_set_and_the_page_says_when_it_counts(
    owner: Worker, typed: dict[str, str], limit: RateLimit
) -> None:
    answer = await owner.post(SET, **typed)
    assert answer.status_code == 303
    assert await stored(owner) == [limit]
    assert "within a few seconds" in await shown(owner, answer.headers["location"])


async def test_a_limit_takes_the_place_of_the_one_for_the_same_mails(owner: Worker) -> None:
    await put(owner, ALL_MAILS, TO_DOMAIN)
    await owner.post(SET, domain=DOMAIN, mails_per_second="", connections="2")
    assert await stored(owner) == [ALL_MAILS, RateLimit(DOMAIN, 0.0, 2)]


async def test_a_form_sent_again_does_not_undo_what_was_set_after_it(owner: Worker) -> None:
    typed = fields_of(await shown(owner), SET) | {"mails_per_second": "5"}
    await owner.post(SET, **typed)
    await put(owner, ALL_MAILS)
    assert (await owner.post(SET, **typed)).status_code == 409
    assert await stored(owner) == [ALL_MAILS]


# --- What cannot be set -------------------------------------------------------------------------

RATE = "Emails per second must be between 0.01 and 1,000,000."
LINES = "Connections must be from 1 to 10,000."
GOOD = {"domain": DOMAIN, "mails_per_second": "20", "connections": "4"}


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        ({"domain": "contoso"}, "domain", "“contoso” is not a domain such as contoso.edu."),
        ({"domain": "a@contoso.edu"}, "domain", "is not a domain such as contoso.edu."),
        *(
            ({"mails_per_second": each}, "mails_per_second", RATE)
            for each in ("0", "-1", "1,5", "many", "nan", "1e9")
        ),
        *(
            ({"connections": each}, "connections", LINES)
            for each in ("0", "10001", "1.5", "many", "9" * 5000)
        ),
        (
            {"mails_per_second": "", "connections": " "},
            "mails_per_second",
            "Enter emails per second, connections, or both.",
        ),
    ],
)
async def test_wrong_input_is_reported_beside_its_field_and_nothing_typed_is_lost(
    owner: Worker, typed: dict[str, str], field: str, sentence: str
) -> None:
    sent = fields_of(await shown(owner), SET) | GOOD | typed
    answer = await owner.post(SET, **sent)
    assert answer.status_code == 422
    page = unescape(answer.text)
    beside = page.partition(f'id="{field}-mistake">')[2].partition("</div>")[0]
    assert beside.endswith(sentence)
    assert fields_of(page, SET) == sent
    assert await stored(owner) == []


async def test_every_field_that_is_wrong_is_reported_at_once(owner: Worker) -> None:
    answer = await owner.post(SET, domain="x", mails_per_second="x", connections="x")
    for field in ("domain", "mails_per_second", "connections"):
        assert f'id="{field}-mistake"' in answer.text


async def test_one_limit_too_many_is_refused_with_a_sentence(owner: Worker) -> None:
    await put(owner, *(RateLimit(f"d{number}.contoso.edu", 1.0) for number in range(LIMITS_MAX)))
    sent = fields_of(await shown(owner), SET) | GOOD
    answer = await owner.post(SET, **sent)
    assert answer.status_code == 422
    assert f"There are already {LIMITS_MAX} limits. Clear one first." in answer.text
    assert fields_of(answer.text, SET) == sent
    await owner.post("/admin/limits/d7.contoso.edu/clear")
    assert (await owner.post(SET, **sent)).status_code == 303


async def test_a_form_that_storage_refused_is_shown_again_and_can_be_resubmitted(
    owner: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Unavailable("no answer")

    sent = fields_of(await shown(owner), SET) | GOOD
    with monkeypatch.context() as failing:
        failing.setattr(rate_limits, "set_limit", fail)
        answer = await owner.post(SET, **sent)
    assert answer.status_code == 503
    assert fields_of(answer.text, SET) == sent
    assert (await owner.post(SET, **sent)).status_code == 303
    assert await stored(owner) == [RateLimit(DOMAIN, 20.0, 4)]


# --- Cleared ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "left", "named"),
    [(ALL_MAILS, TO_DOMAIN, "all emails"), (TO_DOMAIN, ALL_MAILS, "emails to contoso.edu")],
)
async def test_clearing_asks_by_name_and_leaves_the_others(
    owner: Worker, gone: RateLimit, left: RateLimit, named: str
) -> None:
    await put(owner, gone, left)
    path = f"/admin/limits/{gone.name}/clear"
    assert f'href="{path}"' in await shown(owner)
    assert f"<h1>Clear the limit for {named}?</h1>" in await shown(owner, path)
    assert len(await stored(owner)) == 2
    answer = await owner.post(path)
    assert "within a few seconds" in await shown(owner, answer.headers["location"])
    assert await stored(owner) == [left]


async def test_what_somebody_else_cleared_is_cleared(owner: Worker) -> None:
    for name in (DOMAIN, TRANSPORT, "%00", "a%23b"):
        assert (await owner.get(f"/admin/limits/{name}/clear")).status_code == 404
        assert (await owner.post(f"/admin/limits/{name}/clear")).status_code == 303


# --- Rights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR])
async def test_who_is_no_owner_sees_limits_and_changes_none(owner: Worker, role: Role) -> None:
    worker = await sign_in_as(owner.office, role)
    async with worker.browser:
        assert "<form" not in (await shown(worker)).partition("<main")[2]
        await put(owner, ALL_MAILS)
        page = (await shown(worker)).partition("<main")[2]
        assert ">500<" in page
        assert "<form" not in page
        assert "/clear" not in page
        assert 'href="/admin/limits"' in await shown(worker, "/admin/lists")
        path = f"/admin/limits/{TRANSPORT}/clear"
        assert (await worker.get(path)).status_code == 403
        assert (await worker.post(path)).status_code == 403
        assert (await worker.post(SET, mails_per_second="1")).status_code == 403
    assert await stored(owner) == [ALL_MAILS]


async def test_a_form_sent_again_never_says_that_a_limit_is_set_which_is_not(owner: Worker) -> None:
    """Back in the browser, and the button once more, after it was cleared."""
    form = fields_of(await shown(owner), SET) | {"domain": DOMAIN, "mails_per_second": "10"}
    await owner.post(SET, **form)
    await owner.post(f"/admin/limits/{DOMAIN}/clear")
    assert await stored(owner) == []
    answer = await owner.post(SET, **form)
    is_said = answer.status_code == 303 and "limit-set" in answer.headers["location"]
    assert is_said == (await stored(owner) == [RateLimit(DOMAIN, 10.0)])


async def test_a_limit_somebody_else_changed_meanwhile_is_not_overwritten_unseen(
    owner: Worker,
) -> None:
    await put(owner, RateLimit(DOMAIN, 10.0, 5))
    form = fields_of(await shown(owner, change=DOMAIN), SET)
    await put(owner, RateLimit(DOMAIN, 100.0, 5))
    answer = await owner.post(SET, **(form | {"connections": "6"}))
    assert answer.status_code == 409
    assert await stored(owner) == [RateLimit(DOMAIN, 100.0, 5)]
