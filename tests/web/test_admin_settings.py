"""The settings page: everything is shown, some change for all processes, secrets never appear."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from postroom import settings
from postroom.actions import change_settings
from postroom.actions.change_settings import LIVE
from postroom.domain.user import Role
from postroom.records import setting_changes
from postroom.settings import Settings
from tests.web.sent_forms import fields_of
from tests.web.signed_in import Worker, at_work, sign_in_as

PAGE = "/admin/settings"
SECRETS = {
    "POSTROOM_SENDGRID_KEY": "SG.very-secret",
    "POSTROOM_TRANSPORT": "smtp://user:hunter2@mail.contoso.edu:587",
    "POSTROOM_BOUNCE_MAILBOX": "imap://user:hunter3@mail.contoso.edu",
    "POSTROOM_SES_SECRET": "very-secret-too",
}
STARTED = settings.load(
    {"POSTROOM_SENDERS_MAX": "4", "POSTROOM_LANES": "7", **SECRETS}, Path("/nonexistent.toml")
)


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    more: dict[str, Any] = {
        "settings": STARTED,
        "setting_descriptions": {"transport": "mail.contoso.edu:587"},
    }
    async with at_work(tmp_path, Role.OWNER, **more) as worker:
        yield worker


async def current(worker: Worker) -> Settings:
    """As a process sees it at its next look."""
    changes, _etag = await setting_changes.read(worker.office.storage.tables)
    return change_settings.merged(STARTED, changes)


async def shown(worker: Worker) -> str:
    answer = await worker.get(PAGE)
    assert answer.status_code == 200
    return unescape(answer.text)


async def test_every_setting_is_there_with_its_source_and_no_secret_is(owner: Worker) -> None:
    page = await shown(owner)
    for name in Settings.model_fields:
        assert f"<code>POSTROOM_{name.upper()}</code>" in page
    for secret in ("very-secret", "hunter2", "hunter3"):
        assert secret not in page
    assert "mail.contoso.edu:587" in page
    row = page.partition("<code>POSTROOM_LANES</code>")[2].partition("</tr>")[0]
    assert "<code>7</code>" in row
    assert "environment" in row
    assert "<code>sender</code>" in row  # what has to be restarted


async def test_what_was_changed_counts_and_nothing_else_is_stored(owner: Worker) -> None:
    form = fields_of(await shown(owner), PAGE)
    assert form.keys() >= set(LIVE)
    answer = await owner.post(PAGE, **form | {"archive_days": "30", "retry_first_s": "5"})
    assert answer.status_code == 303
    now = await current(owner)
    assert (now.archive_days, now.retry_first_s, now.senders_max) == (30, 5.0, 4)
    changes, _etag = await setting_changes.read(owner.office.storage.tables)
    assert changes.changed.keys() == {"archive_days", "retry_first_s"}
    assert changes.changed["archive_days"].by.name == "owner@contoso.edu"
    page = await shown(owner)
    assert "Back to 365" in page
    assert "by user owner@contoso.edu" in page


async def test_a_change_is_set_back_to_what_it_was_started_with(owner: Worker) -> None:
    form = fields_of(await shown(owner), PAGE)
    await owner.post(PAGE, **form | {"senders_max": "9", "archive_days": "30"})
    answer = await owner.post(f"{PAGE}/reset", reset="senders_max")
    assert answer.status_code == 303
    now = await current(owner)
    assert (now.senders_max, now.archive_days) == (4, 30)
    for _again in range(2):
        assert (await owner.post(f"{PAGE}/reset", reset="archive_days")).status_code == 303
    assert await current(owner) == STARTED


@pytest.mark.parametrize(
    ("name", "typed", "sentence"),
    [
        ("senders_min", "-1", "Enter 0 or more."),
        ("senders_max", "65", "Enter 64 or less."),
        ("archive_days", "some", "Enter a whole number."),
        ("retry_first_s", "soon", "Enter a number."),
        ("retry_window_s", "0", "Enter more than 0."),
        ("retry_window_s", "nan", "Enter"),
        ("retry_window_s", "inf", "Enter"),
        ("senders_min", "5", "The minimum of 5 senders is more than the maximum of 4."),
        ("retry_first_s", "7200", "longer than the longest one"),
    ],
)
async def test_a_wrong_value_is_refused_by_the_rules_of_the_settings(
    owner: Worker, name: str, typed: str, sentence: str
) -> None:
    form = fields_of(await shown(owner), PAGE) | {name: typed, "claim_s": "61"}
    answer = await owner.post(PAGE, **form)
    assert answer.status_code == 422
    assert sentence in unescape(answer.text)
    assert fields_of(answer.text, PAGE) == form  # nothing typed is lost
    assert await current(owner) == STARTED


async def test_the_summary_names_the_setting_of_a_wrong_value(owner: Worker) -> None:
    form = fields_of(await shown(owner), PAGE) | {"senders_min": "-1"}
    answer = await owner.post(PAGE, **form)
    assert (
        '<a href="#senders_min"><code>POSTROOM_SENDERS_MIN</code>: Enter 0 or more.</a>'
        in answer.text
    )


async def test_what_somebody_else_changed_meanwhile_is_not_overwritten_unseen(
    owner: Worker,
) -> None:
    form = fields_of(await shown(owner), PAGE)
    await owner.post(PAGE, **form | {"archive_days": "30"})
    answer = await owner.post(PAGE, **form | {"archive_days": "31"})
    assert answer.status_code == 409
    assert "Somebody else changed this" in answer.text
    assert (await current(owner)).archive_days == 30
    again = fields_of(answer.text, PAGE)
    assert (await owner.post(PAGE, **again)).status_code == 303
    assert (await current(owner)).archive_days == 31


async def test_the_same_form_twice_is_saved_once_and_refused_never(owner: Worker) -> None:
    form = fields_of(await shown(owner), PAGE) | {"archive_days": "30"}
    for _click in range(2):
        assert (await owner.post(PAGE, **form)).status_code == 303


async def test_a_setting_that_needs_a_restart_cannot_be_sent_either(owner: Worker) -> None:
    form = fields_of(await shown(owner), PAGE)
    assert (await owner.post(PAGE, **form | {"lanes": "9", "storage": "x"})).status_code == 303
    assert await current(owner) == STARTED


@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR])
async def test_only_owners_see_settings(owner: Worker, role: Role) -> None:
    worker = await sign_in_as(owner.office, role)
    async with worker.browser:
        assert (await worker.get(PAGE)).status_code == 403
        assert (await worker.post(PAGE, archive_days="1")).status_code == 403
        assert (await worker.post(f"{PAGE}/reset", reset="archive_days")).status_code == 403
        limits = {"senders_min": "0", "senders_max": "1"}
        assert (await worker.post("/admin/instances/senders", **limits)).status_code == 403
    assert await current(owner) == STARTED


async def test_a_change_of_another_version_is_left_out(owner: Worker) -> None:
    """It wrote a setting or a value that we do not know."""
    tables = owner.office.storage.tables
    form = fields_of(await shown(owner), PAGE)
    await owner.post(PAGE, **form | {"archive_days": "30", "claim_s": "100"})
    changes, etag = await setting_changes.read(tables)
    changed = changes.changed["archive_days"]
    strange = {"unheard_of": changed, "lanes": changed, "claim_s": changes.changed["claim_s"]}
    await setting_changes.write(tables, setting_changes.SettingChanges(strange), etag)
    now = await current(owner)
    assert (now.claim_s, now.lanes) == (100.0, 7)
    assert (await owner.get(PAGE)).status_code == 200
