"""When a message is sent: now or later, never the one for the other, and back to draft."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.message import Status
from postroom.domain.user import Role
from postroom.records import messages
from tests.web.drafts import GOOD, etag_of, said_by, stored, written
from tests.web.office import LIST, NOW
from tests.web.people import join
from tests.web.signed_in import Worker, at_work, notice_in

LATER = {"date": "2026-12-01", "time": "09:30", "zone": "Europe/Berlin"}
TWICE = {"date": "2027-10-31", "time": "02:30", "zone": "Europe/Berlin"}


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def draft(editor: Worker, people: int = 1) -> tuple[str, str]:
    """The path and the etag of a draft to a list with so many confirmed people."""
    for at in range(people):
        await join(editor, f"student{at}@contoso.edu")
    path = await written(editor)
    return path, etag_of((await editor.get(f"{path}/schedule")).text)


async def scheduled(editor: Worker, people: int = 1) -> tuple[str, str]:
    path, etag = await draft(editor, people)
    assert (await editor.post(f"{path}/schedule", **LATER, etag=etag)).status_code == 303
    return path, etag_of((await editor.get(f"{path}/schedule")).text)


def beside(page: str) -> dict[str, str]:
    """The sentences beside fields."""
    return {
        name: unescape(words) for name, words in re.findall(r'id="(\w+)-mistake">([^<]+)<', page)
    }


def value(page: str, name: str) -> str:
    return str(re.findall(rf'name="{name}" value="([^"]*)"', page)[0])


# --- Now --------------------------------------------------------------------------------------


async def test_sending_now_asks_once_more_with_number_list_subject_and_sender(
    editor: Worker,
) -> None:
    path, _etag = await draft(editor, people=9)
    assert f'href="{path}/send"' in (await editor.get(path)).text
    page = unescape((await editor.get(f"{path}/send")).text)
    message = await stored(editor, path)
    assert "Send now to 9 subscribers</button>" in page
    for words in (LIST, message.subject, message.sender):
        assert words in page
    assert (await stored(editor, path)).status is Status.DRAFT


async def test_now_is_now_and_the_notice_says_so(editor: Worker) -> None:
    path, etag = await draft(editor, people=9)
    answer = await editor.post(f"{path}/send", etag=etag)
    assert answer.headers["location"] == path
    message = await stored(editor, path)
    assert (message.status, message.due_at) == (Status.PENDING, NOW)
    assert "Sending to 9 subscribers has started." in (await editor.get(path)).text


@pytest.mark.parametrize(
    "typed", [{"date": "2026-12-01"}, {"time": "09:30"}, LATER, LATER | {"when": "now"}]
)
async def test_sending_now_with_a_date_or_a_time_is_refused_and_nothing_typed_is_lost(
    editor: Worker, typed: dict[str, str]
) -> None:
    path, etag = await draft(editor)
    answer = await editor.post(f"{path}/send", **typed, etag=etag)
    assert answer.status_code == 422
    assert "Nothing was sent because you entered a date or time." in answer.text
    for name in {"date", "time", "zone"} & typed.keys():
        assert value(answer.text, name) == typed[name]
    assert f'action="{path}/schedule"' in answer.text  # what was typed can only be scheduled
    assert (await stored(editor, path)).status is Status.DRAFT


@pytest.mark.parametrize("typed", [{"when": "now"}, {"when": "now", "zone": "UTC"}, {}])
async def test_the_page_for_scheduling_never_sends_now(
    editor: Worker, typed: dict[str, str]
) -> None:
    path, etag = await draft(editor)
    answer = await editor.post(f"{path}/schedule", **typed, etag=etag)
    assert (answer.status_code, beside(answer.text)) == (
        422,
        {"date": "Choose a date and a time."},
    )
    assert (await stored(editor, path)).status is Status.DRAFT


async def test_a_date_with_now_beside_it_is_scheduled_and_not_sent(editor: Worker) -> None:
    """As a page of before would send it."""
    path, etag = await draft(editor)
    await editor.post(f"{path}/schedule", **LATER, when="now", etag=etag)
    due_at = (await stored(editor, path)).due_at
    assert due_at
    assert due_at > NOW


@pytest.mark.parametrize("people", [0, 8])
async def test_a_message_to_nobody_is_not_sent_and_the_way_out_is_shown(
    editor: Worker, people: int
) -> None:
    for at in range(people):
        await join(editor, f"student{at}@contoso.edu", verified=False)
    path, etag = await draft(editor, people=0)
    shown = await editor.get(f"{path}/send")
    refused = await editor.post(f"{path}/send", etag=etag)
    assert refused.status_code == 409
    for page in (unescape(shown.text), unescape(refused.text)):
        assert "Nobody would get this message" in page
        assert "Send now to" not in page
        assert f'href="/admin/subscribers?list={LIST}' in page
        assert ("8 subscribers have not confirmed yet" in page) == bool(people)
    assert (await stored(editor, path)).status is Status.DRAFT


async def test_a_scheduled_message_can_be_sent_now_with_a_separate_button(
    editor: Worker,
) -> None:
    path, etag = await scheduled(editor)
    assert "Send now…" in (await editor.get(path)).text
    assert "instead of at the scheduled time" in (await editor.get(f"{path}/send")).text
    answer = await editor.post(f"{path}/send", etag=etag)
    assert notice_in(answer) == "sending"
    assert (await stored(editor, path)).due_at == NOW


# --- Later ------------------------------------------------------------------------------------


async def test_a_time_is_meant_in_its_zone_and_shown_in_it(editor: Worker) -> None:
    path, etag = await draft(editor)
    await editor.post(f"{path}/schedule", **LATER, etag=etag)
    message = await stored(editor, path)
    assert message.due_at
    assert message.due_at.isoformat() == "2026-12-01T08:30:00+00:00"
    page = (await editor.get(path)).text
    assert "Scheduled for Tue 1 Dec, 09:30 (Europe/Berlin), 1 subscriber." in page
    assert "You can edit it until then" in (await editor.get(path)).text


async def test_rescheduling_begins_with_the_time_that_the_message_has(editor: Worker) -> None:
    path, etag = await scheduled(editor)
    page = (await editor.get(f"{path}/schedule")).text
    assert {name: value(page, name) for name in LATER} == LATER
    assert "Tue 1 Dec, 09:30 (Europe/Berlin)" in page
    assert "Reschedule" in page
    answer = await editor.post(f"{path}/schedule", **LATER | {"time": "10:00"}, etag=etag)
    assert notice_in(answer) == "scheduled"
    message = await stored(editor, path)
    assert message.due_at
    assert message.due_at.isoformat() == "2026-12-01T09:00:00+00:00"


async def test_a_time_without_a_zone_is_offered_in_utc(editor: Worker) -> None:
    """As a program may have given it."""
    path, etag = await draft(editor)
    await editor.post(f"{path}/schedule", **LATER | {"zone": ""}, etag=etag)
    page = (await editor.get(f"{path}/schedule")).text
    assert {name: value(page, name) for name in LATER} == LATER | {"zone": "UTC"}


async def test_scheduling_to_nobody_is_allowed_but_warned_of(editor: Worker) -> None:
    path, etag = await draft(editor, people=0)
    assert "Nobody would get this message" in (await editor.get(f"{path}/schedule")).text
    assert (await editor.post(f"{path}/schedule", **LATER, etag=etag)).status_code == 303
    page = (await editor.get(path)).text
    assert "(Europe/Berlin). Nobody on the list is confirmed yet." in page


async def test_a_time_that_comes_twice_is_told_apart_by_two_radio_buttons(
    editor: Worker,
) -> None:
    path, etag = await draft(editor)
    answer = await editor.post(f"{path}/schedule", **TWICE, etag=etag)
    assert (answer.status_code, list(beside(answer.text))) == (422, ["offset"])
    radios = re.findall(r'type="radio" name="offset"[^>]* value="([^"]*)"', answer.text)
    assert radios == ["+02:00", "+01:00"]
    assert {name: value(answer.text, name) for name in TWICE} == TWICE
    answer = await editor.post(f"{path}/schedule", **TWICE, offset=radios[1], etag=etag)
    assert answer.status_code == 303
    message = await stored(editor, path)
    assert message.due_at
    assert message.due_at.isoformat() == "2027-10-31T01:30:00+00:00"
    page = (await editor.get(f"{path}/schedule")).text  # and which of them it is stays known
    assert re.findall(r'value="([^"]*)" checked', page) == ["+01:00"]


async def test_the_choice_of_two_hours_means_nothing_on_another_day(editor: Worker) -> None:
    path, etag = await draft(editor)
    await editor.post(f"{path}/schedule", **LATER, offset="+02:00", etag=etag)
    due_at = (await stored(editor, path)).due_at
    assert due_at
    assert due_at.isoformat() == "2026-12-01T08:30:00+00:00"


async def test_an_offset_may_stand_for_a_zone(editor: Worker) -> None:
    path, etag = await draft(editor)
    await editor.post(f"{path}/schedule", **TWICE | {"zone": "+01:00"}, etag=etag)
    message = await stored(editor, path)
    assert message.due_at
    assert message.due_at.isoformat() == "2027-10-31T01:30:00+00:00"
    assert value((await editor.get(f"{path}/schedule")).text, "zone") == "+01:00"


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"date": "2020-01-01"}, "date", "This time is in the past."),
        ({"date": "2026-11-15", "time": "08:59", "zone": "UTC"}, "date", "in the past"),
        ({"date": "2026-11-15", "time": "09:00", "zone": "UTC"}, "date", "in the past"),
        ({"date": ""}, "date", "Choose a date."),
        ({"time": ""}, "time", "Choose a time."),
        ({"date": "", "time": ""}, "date", "Choose a date and a time."),
        ({"date": "tomorrow"}, "date", "Choose a date and a time."),
        ({"time": "noon"}, "date", "Choose a date and a time."),
        ({"zone": "Europe/Nowhere"}, "zone", "no time zone"),
        ({"date": "2027-03-28", "time": "02:30"}, "time", "does not exist in Europe/Berlin"),
    ],
)
async def test_a_time_that_cannot_be_is_refused_with_a_sentence_beside_its_field(
    editor: Worker, changes: dict[str, str], field: str, sentence: str
) -> None:
    path, etag = await draft(editor)
    answer = await editor.post(f"{path}/schedule", **LATER | changes, etag=etag)
    assert answer.status_code == 422
    [(name, words)] = beside(answer.text).items()
    assert name == field
    assert sentence in words
    for each, typed in (LATER | changes).items():
        assert value(answer.text, each) == typed
    assert (await stored(editor, path)).status is Status.DRAFT


# --- Clicked twice, changed meanwhile ----------------------------------------------------------


@pytest.mark.parametrize(("page", "typed"), [("send", {}), ("schedule", LATER)])
async def test_a_second_click_is_no_mistake(
    editor: Worker, page: str, typed: dict[str, str]
) -> None:
    """Nobody reads that it could not be done, nor is asked again, when it is as they wanted."""
    path, etag = await draft(editor)
    for _click in range(2):
        answer = await editor.post(f"{path}/{page}", **typed, etag=etag)
        assert answer.status_code == 303, answer.text
        assert answer.headers["location"] == path
    assert (await stored(editor, path)).status is Status.PENDING


async def test_another_time_from_a_page_that_is_old_is_asked_about(editor: Worker) -> None:
    path, etag = await draft(editor)
    assert (await editor.post(f"{path}/schedule", **LATER, etag=etag)).status_code == 303
    other = await editor.post(f"{path}/schedule", **LATER | {"time": "10:30"}, etag=etag)
    assert other.status_code == 409
    now = await editor.post(f"{path}/send", etag=etag)
    assert now.status_code == 409
    assert "Send now to 1 subscriber" in now.text  # asked again, with what is there now


@pytest.mark.parametrize(("page", "typed"), [("send", {}), ("schedule", LATER)])
async def test_what_somebody_changed_meanwhile_is_not_sent_unseen(
    editor: Worker, page: str, typed: dict[str, str]
) -> None:
    path, etag = await draft(editor)
    edit = GOOD | {"subject": "Changed", "etag": etag}
    assert (await editor.post(f"{path}/write", **edit)).status_code == 303
    answer = await editor.post(f"{path}/{page}", **typed, etag=etag)
    assert answer.status_code == 409
    assert "Changed" in answer.text
    assert (await stored(editor, path)).status is Status.DRAFT
    answer = await editor.post(f"{path}/{page}", **typed, etag=etag_of(answer.text))
    assert answer.status_code == 303


# --- Back to draft ----------------------------------------------------------------------------


async def test_a_scheduled_message_goes_back_to_draft_with_everything_in_it(
    editor: Worker,
) -> None:
    path, _etag = await scheduled(editor)
    words = await said_by(editor, path)
    assert f'action="{path}/unschedule"' in (await editor.get(path)).text
    for _click in range(2):
        answer = await editor.post(f"{path}/unschedule")
        assert (answer.headers["location"], notice_in(answer)) == (path, "unscheduled")
    message = await stored(editor, path)
    assert (message.status, message.due_at) == (Status.DRAFT, None)
    assert await said_by(editor, path) == words
    page = (await editor.get(path)).text
    assert "Unscheduled. The message is a draft again and will not be sent." in page
    assert "Scheduled for" not in page


async def test_who_unschedules_too_late_is_told_that_sending_has_begun(editor: Worker) -> None:
    path, _etag = await scheduled(editor)
    tables = editor.office.storage.tables
    found = await messages.find_live(tables, path.rpartition("/")[2])
    assert found
    begun = msgspec.structs.replace(
        found[0], status=Status.QUEUING, due_at=NOW, queuing_at=NOW + timedelta(seconds=1)
    )
    await messages.replace(tables, begun, found[1])
    answer = await editor.post(f"{path}/unschedule")
    assert answer.status_code == 409
    assert "can no longer be unscheduled" in answer.text
    assert await stored(editor, path) == begun


async def test_a_message_that_is_due_but_not_begun_can_still_be_unscheduled(
    editor: Worker,
) -> None:
    path, etag = await draft(editor)
    await editor.post(f"{path}/send", etag=etag)
    assert f'action="{path}/unschedule"' in (await editor.get(path)).text
    await editor.post(f"{path}/unschedule")
    assert (await stored(editor, path)).status is Status.DRAFT
