"""The audit log: nothing changes without an entry, and no entry claims more than is known."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.act import Act
from postroom.domain.audit import (
    CHANGE_CHARS_MAX,
    NAME_CHARS_MAX,
    ActorKind,
    AuditAction,
    AuditActor,
    AuditEntry,
    AuditKind,
    AuditOutcome,
    changed_values,
    mask_addresses,
    new_entry,
)
from postroom.domain.errors import WrongState
from postroom.records import audit
from postroom.records.audit import AuditFilter
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Conflict, Unavailable
from tests.clock import MovableClock
from tests.unit.failing import Fuse, Killed, fused_storage

WHO = AuditActor(ActorKind.USER, "owner@contoso.edu", "10.0.0.1")
CPU_S_MAX = 2  # usually a tenth of a second
ROW = ("service", "test", "row")


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def act(clock: MovableClock) -> Act:
    return Act(MemoryStorage(clock, STORAGE_NAMES), clock, clock.now(), actor=WHO)


async def entries(act: Act, **wanted: object) -> list[AuditEntry]:
    found = AuditFilter(**wanted)  # type: ignore[arg-type]
    return [each async for each in audit.everything(act.tables, act.clock, found)]


async def change(act: Act) -> None:
    async with act.audited(AuditKind.ROW, "row", AuditAction.CHANGE, after="text: x"):
        await act.tables.insert(*ROW, {"Text": "x"})


# --- What is recorded ---------------------------------------------------------------------------


async def test_a_change_is_recorded_with_who_and_what_and_that_it_was_done(act: Act) -> None:
    await change(act)
    [entry] = await entries(act)
    assert (entry.actor, entry.client, entry.at) == (WHO.name, WHO.client, act.now)
    assert (entry.kind, entry.action) == (AuditKind.ROW, AuditAction.CHANGE)
    assert (entry.name, entry.after) == ("row", "text: x")
    assert entry.outcome is AuditOutcome.DONE


async def test_what_postroom_and_subscribers_do_is_not_recorded(act: Act) -> None:
    await change(replace(act, actor=None))
    assert await act.tables.get(*ROW)
    assert await entries(act) == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (WrongState("not now"), AuditOutcome.REFUSED),
        (Conflict("changed"), AuditOutcome.REFUSED),
        (Unavailable("no answer"), AuditOutcome.FAILED),
        (RuntimeError("a bug"), AuditOutcome.FAILED),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_a_change_that_is_refused_or_fails_is_recorded_as_such(
    act: Act, error: Exception, outcome: AuditOutcome
) -> None:
    with pytest.raises(type(error)):
        async with act.audited(AuditKind.LIST, "contoso1", AuditAction.DELETE):
            raise error
    [entry] = await entries(act)
    assert entry.outcome is outcome


async def test_addresses_of_subscribers_are_masked_and_found_by_the_whole_address(
    act: Act,
) -> None:
    name = "contoso1 ada@lovelace.example"
    async with act.audited(
        AuditKind.SUBSCRIBER, name, AuditAction.MOVE, after="address: eve@lovelace.example"
    ):
        pass
    [entry] = await entries(act, text="ada@lovelace.example")
    assert entry.name == "contoso1 a•••@lovelace.example"
    assert entry.after == "address: e•••@lovelace.example"
    assert await entries(act, text="bob@lovelace.example") == []


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("email:ada@contoso.edu", "email:a•••@contoso.edu"),
        ("<ada@contoso.edu>, x@y.z", "<a•••@contoso.edu>, x•••@y.z"),
        ("user=ada+news@contoso.edu;", "user=a•••@contoso.edu;"),
        ("学生@contoso.edu", "学•••@contoso.edu"),
        ("no address", "no address"),
        ("a•••@contoso.edu", "a•••@contoso.edu"),
    ],
)
def test_masking_keeps_the_first_letter_and_the_domain(text: str, masked: str) -> None:
    assert mask_addresses(text) == masked


def test_a_long_word_is_masked_in_linear_time() -> None:
    """As the id of an import in a path, it comes from whoever may stop one."""
    began_at = time.process_time()
    assert mask_addresses("a" * 60_000) == "a" * 60_000
    assert time.process_time() - began_at < CPU_S_MAX
    assert mask_addresses("a" * 480 + "@contoso.edu") == "a•••@contoso.edu"


def test_only_what_differs_is_recorded_and_never_a_secret() -> None:
    before = {"Name": "a", "Role": "viewer", "PasswordHash": "old hash"}
    after = {"Name": "a", "Role": "owner", "PasswordHash": "new hash"}
    found = changed_values(before, after, secret=["PasswordHash"])
    assert found == ("Role: viewer; PasswordHash: •••", "Role: owner; PasswordHash: •••")
    assert changed_values({"Gone": 1}, {}) == ("Gone: 1", "")


@pytest.mark.slow
def test_an_entry_is_a_line_and_not_a_copy(clock: MovableClock) -> None:
    long = "x" * 10_000
    entry = new_entry(
        WHO, AuditKind.BLOB, long, AuditAction.PUT, clock.now(), before=long, after=long
    )
    assert len(entry.name) == NAME_CHARS_MAX
    assert len(entry.before) == len(entry.after) == CHANGE_CHARS_MAX


# --- Dies half-way ------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("is_after", [False, True])
async def test_whenever_it_dies_there_is_no_change_without_an_entry(
    clock: MovableClock, at: int, is_after: bool
) -> None:
    fuse = Fuse()
    act = Act(fused_storage(clock, fuse), clock, clock.now(), actor=WHO)
    fuse.set(at, is_after=is_after)
    with pytest.raises(Killed):
        await change(act)
    is_changed = await act.tables.get(*ROW) is not None
    found = [each.outcome for each in await entries(act)]
    assert found or not is_changed
    assert AuditOutcome.DONE not in found or is_changed
    if is_changed and not (at == 3 and is_after):
        assert found == [AuditOutcome.STARTED]


async def test_a_change_that_cannot_be_recorded_is_not_made(
    act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_row: object) -> str:
        raise Unavailable("no answer")

    monkeypatch.setattr(audit, "begin", fail)
    with pytest.raises(Unavailable):
        await change(act)
    assert await act.tables.get(*ROW) is None


# --- Found --------------------------------------------------------------------------------------


async def test_entries_are_found_newest_first_by_person_kind_time_and_text(
    act: Act, clock: MovableClock
) -> None:
    times = []
    for name in ("first", "second", "third"):
        times.append(clock.now())
        async with act.audited(AuditKind.LIST, name, AuditAction.CREATE):
            pass
        clock.move(3600)
    other = replace(act, actor=AuditActor(ActorKind.KEY, "0123abcd", "192.0.2.1"))
    async with other.audited(AuditKind.MESSAGE, "fourth", AuditAction.CANCEL):
        pass
    assert [each.name for each in await entries(act)] == ["fourth", "third", "second", "first"]
    assert [each.name for each in await entries(act, person="0123")] == ["fourth"]
    assert [each.name for each in await entries(act, person="192.0.2")] == ["fourth"]
    assert [each.name for each in await entries(act, kind=AuditKind.MESSAGE)] == ["fourth"]
    assert [each.name for each in await entries(act, text="SECOND")] == ["second"]
    since_second = await entries(act, since=times[1], before=times[2])
    assert [each.name for each in since_second] == ["second"]


async def test_a_page_ends_when_its_time_is_over_and_continues_from_there(act: Act) -> None:
    for number in range(1200):
        await audit.begin(
            act.tables,
            new_entry(
                WHO,
                AuditKind.LIST,
                f"list {number}",
                AuditAction.CREATE,
                act.now - timedelta(seconds=number),
            ),
        )
    wanted = AuditFilter(text="list 1199")
    after: str | None = None
    names: list[str] = []
    pages = 0
    while after is not None or pages == 0:
        pages += 1
        page = await audit.page(act.tables, act.clock, wanted, limit=50, after=after, within_s=0.0)
        names += [each.name for each in page.entries]
        after = page.next
    assert names == ["list 1199"]
    assert pages == 3


async def test_no_entry_is_shown_twice_or_left_out_between_pages(act: Act) -> None:
    for number in range(130):
        async with act.audited(AuditKind.LIST, f"{number}", AuditAction.CREATE):
            pass
    names: list[str] = []
    after: str | None = None
    for _page in range(10):
        page = await audit.page(act.tables, act.clock, AuditFilter(), limit=50, after=after)
        names += [each.name for each in page.entries]
        after = page.next
        if after is None:
            break
    assert sorted(names, key=int) == [str(number) for number in range(130)]


async def test_old_entries_are_deleted_and_newer_ones_stay(act: Act) -> None:
    for days in range(5):
        at = act.now - timedelta(days=days)
        await audit.begin(
            act.tables, new_entry(WHO, AuditKind.LIST, f"{days}", AuditAction.CREATE, at)
        )
    assert await audit.expire(act.tables, act.now, keep_days=3) == 2
    assert [each.name for each in await entries(act)] == ["0", "1", "2"]
    assert await audit.expire(act.tables, act.now, keep_days=3) == 0


async def test_a_kind_that_nobody_changed_is_no_reason_to_read_everything(act: Act) -> None:
    for number in range(1200):
        at = act.now - timedelta(seconds=number)
        await audit.begin(act.tables, new_entry(WHO, AuditKind.LIST, "x", AuditAction.CREATE, at))
    wanted = AuditFilter(kind=AuditKind.BLOB)
    page = await audit.page(act.tables, act.clock, wanted, limit=50, within_s=0.0)
    assert page.entries == []
    assert page.next is not None
