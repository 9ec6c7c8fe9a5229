"""Editing: a message or a list changes as a whole, for who saw what stands there, or not at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postroom.actions import manage_lists
from postroom.actions.manage_lists import ListChanges
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message import Status
from postroom.flow import compose
from postroom.flow.compose import Draft, Revision
from postroom.records import bodies, lists, messages
from postroom.storage.port import Conflict, Unavailable
from tests.acting import acting
from tests.scenario.town import LIST, Town, once_each

NEXT_WEEK = timedelta(days=7)


async def written(town: Town, text: str = "Hello") -> tuple[str, str]:
    """A list with two people, and a pending message: its ref and etag."""
    await town.found_list()
    await town.join("ada", "bob")
    now = town.clock.now()
    draft = Draft(list_name=LIST, subject="News", text=text, due_at=now + NEXT_WEEK)
    ref = (await compose.compose(acting(town.storage, now), draft)).ref
    return ref, (await messages.read_with_etag(town.storage.tables, ref))[1]


async def test_an_edited_message_is_sent_as_edited(town: Town) -> None:
    ref, etag = await written(town)
    revision = Revision(subject="Lectures", text="They begin on Tuesday")
    edited, _ = await compose.edit(town.storage, ref, revision, etag)
    assert edited.status is Status.PENDING
    await town.open_sender()
    await town.pass_time(NEXT_WEEK.total_seconds() + 1)
    await town.quiet()
    assert town.arrived() == once_each(["ada", "bob"])
    for mail in town.sink.mails:
        assert b"They begin on Tuesday" in mail.content
        assert b"Subject: Lectures" in mail.content


async def test_an_edit_that_dies_before_the_row_changes_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, etag = await written(town)

    async def die(*_: Any) -> str:
        raise Unavailable("no answer")

    with monkeypatch.context() as dying:
        dying.setattr(messages, "replace", die)
        with pytest.raises(Unavailable):
            await compose.edit(town.storage, ref, Revision(text="New", subject="New"), etag)
    message = await town.read(ref)
    assert (message.subject, message.status) == ("News", Status.PENDING)
    assert await bodies.load(town.storage.blobs, message) == (None, "Hello")
    await compose.discard(town.storage, ref, etag)
    assert await town.storage.blobs.list(ref) == ([], None)  # also what the dead one left


async def test_old_bodies_go_with_the_edit(town: Town) -> None:
    ref, etag = await written(town)
    for number in range(3):
        _, etag = await compose.edit(town.storage, ref, Revision(text=f"Text {number}"), etag)
    names, _ = await town.storage.blobs.list(ref)
    assert len(names) == 1


async def test_an_empty_subject_or_no_body_is_refused(town: Town) -> None:
    ref, etag = await written(town)
    for wrong in (Revision(subject=" "), Revision(text=None), Revision(html="{{ oops")):
        with pytest.raises(BadInput):
            await compose.edit(town.storage, ref, wrong, etag)
    assert (await messages.read_with_etag(town.storage.tables, ref))[1] == etag


async def test_who_saw_an_older_message_neither_edits_nor_deletes_it(town: Town) -> None:
    ref, seen = await written(town)
    await compose.edit(town.storage, ref, Revision(subject="First"), seen)
    with pytest.raises(Conflict):
        await compose.edit(town.storage, ref, Revision(subject="Second"), seen)
    with pytest.raises(Conflict):
        await compose.discard(town.storage, ref, seen)
    assert (await town.read(ref)).subject == "First"


async def test_a_message_that_is_going_out_is_not_edited(town: Town) -> None:
    ref, etag = await written(town)
    now = town.clock.now()
    await compose.give_time(acting(town.storage, now), ref, now)
    await town.fan_out()
    with pytest.raises(WrongState):
        await compose.edit(town.storage, ref, Revision(subject="Late"), etag)


# --- Lists --------------------------------------------------------------------------------------


async def test_an_edit_of_an_outdated_version_of_a_list_is_refused(town: Town) -> None:
    await town.found_list()
    tables = town.storage.tables
    before, seen = await lists.read_with_etag(tables, LIST)
    wording = ListChanges(description=" News ", sender="New <new@contoso.edu>")
    edited, etag = await manage_lists.edit(acting(tables, town.clock.now()), LIST, wording, seen)
    assert (edited.description, edited.sender) == ("News", "New <new@contoso.edu>")
    assert edited.created_at == before.created_at
    assert await lists.read_with_etag(tables, LIST) == (edited, etag)
    for late in (ListChanges(description="Late"), ListChanges()):
        with pytest.raises(Conflict):
            await manage_lists.edit(acting(tables, town.clock.now()), LIST, late, seen)


async def test_a_list_that_changed_is_not_deleted(town: Town) -> None:
    await town.found_list()
    tables = town.storage.tables
    seen = (await lists.read_with_etag(tables, LIST))[1]
    _, etag = await manage_lists.edit(
        acting(tables, town.clock.now()), LIST, ListChanges(description="New"), seen
    )
    with pytest.raises(Conflict):
        await manage_lists.delete(acting(tables, town.clock.now()), LIST, seen)
    assert not await lists.is_being_deleted(tables, LIST)
    await manage_lists.delete(acting(tables, town.clock.now()), LIST, etag)
    assert await lists.find(tables, LIST) is None
    with pytest.raises(NotFound):
        await manage_lists.edit(acting(tables, town.clock.now()), LIST, ListChanges(), etag)
