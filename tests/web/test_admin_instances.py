"""Running instances on pages and in the web service, and the limits of the senders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.instance import RateMeter, RunningInstance
from postroom.domain.scaling import ScalingCause, ScalingChange, ScalingReason, SenderLimits
from postroom.domain.user import Role
from postroom.records import instances, users
from postroom.storage.port import StorageFull, Troubles
from postroom.web.admin.overview import FULL_S
from postroom.web.context import FullDiskNotes
from tests.web.office import NOW
from tests.web.program import Program, problem
from tests.web.sent_forms import fields_of
from tests.web.signed_in import Worker, at_work

PAGE, SET = "/admin/instances", "/admin/instances/senders"
REASON = ScalingReason(ScalingCause.LENGTH, batches=32, single_mails=7)
SENDER = RunningInstance(
    role="sender",
    host="mail1",
    pid=7,
    version="0.1.0",
    since=NOW,
    seen_at=NOW,
    lasts_s=60.0,
    busy=3,
    per_s=512.5,
)
SUPERVISOR = msgspec.structs.replace(
    SENDER,
    role="supervisor",
    pid=1,
    limits=SenderLimits(0, 4),
    changes=(ScalingChange(NOW, 0, 4, REASON),),
)


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER, full_disk=FullDiskNotes()) as worker:
        yield worker


async def shown(worker: Worker, path: str = PAGE) -> str:
    answer = await worker.get(path)
    assert answer.status_code == 200
    return unescape(answer.text)


async def test_instances_show_what_they_do_and_why_the_number_of_senders_changed(
    owner: Worker,
) -> None:
    await instances.write(owner.office.storage.tables, [SENDER, SUPERVISOR])
    page = await shown(owner)
    assert ">512.5<" in page
    assert "0 → 4" in page
    assert "32 batches and 7 single emails were waiting." in page
    assert "32 batches and 7 single emails were waiting." in await shown(owner, "/admin")


async def test_an_instance_that_is_silent_has_ended_and_is_forgotten_later(owner: Worker) -> None:
    tables = owner.office.storage.tables
    old = msgspec.structs.replace(SENDER, pid=8, seen_at=NOW - timedelta(seconds=61))
    ahead = msgspec.structs.replace(SENDER, pid=9, seen_at=NOW + timedelta(hours=1))
    await instances.write(tables, [SENDER, old, ahead])
    assert await instances.running(tables, NOW) == [SENDER]
    await instances.forget_ended(tables, NOW + timedelta(hours=1))
    assert [each.pid for each in await instances.running(tables, NOW)] == [7]
    await instances.forget_ended(tables, NOW + timedelta(hours=1, seconds=1))
    assert await instances.running(tables, NOW) == []


async def test_the_limits_are_set_and_a_stale_form_is_refused(owner: Worker) -> None:
    form = fields_of(await shown(owner), SET)
    assert (await owner.post(SET, **form | {"senders_min": "0", "senders_max": "8"})).is_redirect
    now = fields_of(await shown(owner), SET)
    assert (now["senders_min"], now["senders_max"]) == ("0", "8")
    assert (await owner.post(SET, **form | {"senders_max": "9"})).status_code == 409
    assert (await owner.post(SET, **now | {"senders_min": "9"})).status_code == 422
    assert fields_of(await shown(owner), SET) == now


async def test_without_senders_the_overview_warns_of_nothing_if_one_starts_automatically(
    owner: Worker,
) -> None:
    assert "No sender is running, so nothing is sent." in await shown(owner, "/admin")
    await instances.write(owner.office.storage.tables, [SUPERVISOR])
    assert "No sender is running" not in await shown(owner, "/admin")


async def test_a_full_disk_is_an_alarm_that_needs_no_write(owner: Worker) -> None:
    context = owner.browser._transport.app._app._app.state.context  # type: ignore[attr-defined]
    assert "full-disk" not in await shown(owner, "/admin")
    context.full_disk.heard_at = NOW.timestamp() - FULL_S + 1  # another role told
    assert "The disk with the database is full, so sending is paused." in await shown(
        owner, "/admin"
    )
    context.full_disk.heard_at = NOW.timestamp() - FULL_S - 1
    assert "Sending was paused and has resumed." in await shown(owner, "/admin")
    context.storage.troubles = Troubles(full_at=NOW.timestamp())  # our own writes
    assert "so sending is paused" in await shown(owner, "/admin")


async def test_somebody_stays_signed_in_while_the_disk_is_full(
    owner: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise StorageFull("no space")

    tables = owner.office.storage.tables
    token = owner.browser.cookies["__Host-postroom"]
    monkeypatch.setattr(tables, "batch", refuse)
    assert await users.find_session(tables, token, NOW + timedelta(hours=1))
    assert "Instances" in await shown(owner)
    form = fields_of(await shown(owner), SET) | {"senders_max": "9"}
    answer = await owner.post(SET, **form)
    assert answer.status_code == 503
    assert "The disk is full" in answer.text
    assert 'value="9"' in answer.text  # what was typed comes back


def test_a_rate_is_measured_over_the_last_seconds() -> None:
    meter = RateMeter()
    assert meter.per_s == 0.0
    for second in range(30):
        meter.note(second * 50 if second < 15 else 700, float(second))
    assert meter.per_s == 0.0
    meter.note(1_700, 30.0)
    assert meter.per_s == 100.0


async def test_programs_see_instances_and_change_the_limits_by_their_version(
    program: Program,
) -> None:
    await instances.write(program.storage.tables, [SUPERVISOR])
    [seen] = (await program.call("GET", "/instances")).json()["items"]
    assert (seen["host"], seen["senders_max"]) == ("mail1", 4)
    assert seen["changes"][0]["reason"] == "32 batches and 7 single emails were waiting."
    before = await program.call("GET", "/senders")
    changed = await program.call(
        "PATCH", "/senders", {"min": 0, "max": 8}, if_match=before.headers["etag"]
    )
    assert changed.json() == {"min": 0, "max": 8}
    again = {"max": 9}
    problem(await program.call("PATCH", "/senders", again, if_match=before.headers["etag"]), 412)
    problem(await program.call("PATCH", "/senders", again), 428)
    problem(await program.call("PATCH", "/senders", {"min": 9}, if_match="*"), 422)
    assert (await program.call("GET", "/senders")).json() == {"min": 0, "max": 8}
