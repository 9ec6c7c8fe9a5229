"""Attachments: with everybody's email, as they were when it began, and gone with their message."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from postroom.actions import control_message, send_test_mail
from postroom.actions.attach_files import attach, copy_attachments, detach
from postroom.domain.attachment import NewFile
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message import Books, Status
from postroom.domain.trial import TrialState
from postroom.flow import compose, render, send
from postroom.flow.compose import Draft, Revision
from postroom.flow.render import Renderer
from postroom.records import attachments, messages, trials
from postroom.records.retry import retry_on_conflict
from postroom.storage.port import Conflict, Unavailable, Unreadable
from tests.acting import acting
from tests.attached import attachments_in
from tests.clock import soon
from tests.scenario.restoring import back_up, moved_town
from tests.scenario.test_test_mail import writer
from tests.scenario.town import DAY_S, LIST, SITE, Town, once_each

PLAN = NewFile("Plan für 2027.pdf", bytes(range(256)) * 2000)
MAP = NewFile("map.png", b"a map")
NAMES = ["ada", "bob", "carol"]
TOMORROW = timedelta(days=1)


async def draft(town: Town, *files: NewFile) -> str:
    """A list of three, and a draft with these files."""
    await town.found_list()
    await town.join(*NAMES)
    act = acting(town.storage, town.clock.now())
    ref = (await compose.compose(act, Draft(list_name=LIST, subject="News", text="Hello"))).ref
    if files:
        await attach(act, ref, files)
    return ref


async def scheduled(town: Town, *files: NewFile) -> str:
    ref = await draft(town, *files)
    now = town.clock.now()
    await compose.give_time(acting(town.storage, now), ref, now + TOMORROW)
    return ref


async def attached_blobs(town: Town) -> list[str]:
    names, _ = await town.storage.blobs.list()
    return [name for name in names if name.endswith(".attachment")]


def sent_files(town: Town) -> list[list[tuple[str, bytes]]]:
    return [
        [(name, content) for name, _, content in attachments_in(mail.content)]
        for mail in town.sink.mails
    ]


async def test_everybody_gets_the_files_and_they_are_encoded_once(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = base64.encodebytes

    def counted(content: bytes) -> bytes:
        encoded.append(len(content))
        return encode(content)

    monkeypatch.setattr(base64, "encodebytes", counted)
    await scheduled(town, PLAN, MAP)
    await town.open_sender()
    await town.pass_time(DAY_S + 1)
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    files = [(PLAN.name, PLAN.content), (MAP.name, MAP.content)]
    assert sent_files(town) == [files] * 3
    assert encoded == [len(PLAN.content), len(MAP.content)]


async def test_lanes_that_begin_together_share_what_is_encoded(town: Town) -> None:
    ref = await draft(town, PLAN)
    renderer = Renderer(town.storage, SITE, town.clock)
    message = await town.read(ref)
    compiled = await asyncio.gather(*(renderer.compiled(message) for _ in range(8)))
    assert len({id(each.compiled.tail) for each in compiled}) == 1


async def test_only_some_attachments_are_kept_in_memory(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "ATTACHED_BYTES_CACHED_MAX", 1_500_000)
    renderer = Renderer(town.storage, SITE, town.clock)
    await draft(town)
    act = acting(town.storage, town.clock.now())
    written = []
    for _ in range(3):
        one = await compose.compose(act, Draft(list_name=LIST, subject="News", text="Hello"))
        written.append((await attach(act, one.ref, [PLAN])).value)
    first = [await renderer.compiled(message) for message in written]
    again = [await renderer.compiled(message) for message in reversed(written)]
    again.reverse()
    assert [each is other for each, other in zip(first, again, strict=True)] == [False, True, True]


async def test_attaching_that_dies_before_the_row_attaches_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await draft(town)

    async def die(*_: Any) -> str:
        raise Unavailable("no answer")

    act = acting(town.storage, town.clock.now())
    with monkeypatch.context() as dying:
        dying.setattr(messages, "replace", die)
        with pytest.raises(Unavailable):
            await attach(act, ref, [PLAN])
    assert (await town.read(ref)).attachments == ()
    assert len(await attached_blobs(town)) == 1  # nobody reads it
    await attach(act, ref, [MAP])
    await compose.discard(town.storage, ref)
    assert await attached_blobs(town) == []


async def test_removing_that_dies_after_the_row_removed_the_file(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await draft(town, PLAN, MAP)
    [plan, picture] = (await town.read(ref)).attachments

    async def die(*_: Any) -> None:
        raise Unavailable("no answer")

    with monkeypatch.context() as dying:
        dying.setattr(attachments, "delete", die)
        with pytest.raises(Unavailable):
            await detach(acting(town.storage, town.clock.now()), ref, plan.id)
    assert (await town.read(ref)).attachments == (picture,)


async def test_a_call_repeated_attaches_nothing_twice(town: Town) -> None:
    ref = await draft(town)
    act = acting(town.storage, town.clock.now())
    for _ in range(2):
        await attach(act, ref, [PLAN], call="the same call")
    assert [each.name for each in (await town.read(ref)).attachments] == [PLAN.name]
    await attach(act, ref, [PLAN], call="another call")
    assert len(await attached_blobs(town)) == 2


async def test_a_call_that_loses_leaves_the_files_of_its_repetition(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message changes while it runs, and the repetition has read the change."""
    ref = await draft(town)
    act = acting(town.storage, town.clock.now())
    put, replace_row = attachments.put, messages.replace
    is_ready, is_over = asyncio.Event(), asyncio.Event()
    repetitions: list[asyncio.Task[Any]] = []

    async def change_meanwhile(*given: Any) -> None:
        await put(*given)
        monkeypatch.setattr(attachments, "put", put)
        await attach(act, ref, [MAP])
        monkeypatch.setattr(messages, "replace", hesitate)
        repetitions.append(asyncio.create_task(attach(act, ref, [PLAN], call="the same call")))
        await soon(is_ready.wait())

    async def hesitate(*given: Any) -> str:
        monkeypatch.setattr(messages, "replace", replace_row)
        is_ready.set()
        await soon(is_over.wait())
        return await replace_row(*given)

    monkeypatch.setattr(attachments, "put", change_meanwhile)
    with pytest.raises(WrongState, match="has just been changed"):
        await attach(act, ref, [PLAN], call="the same call")
    is_over.set()
    await asyncio.gather(*repetitions)
    [_, plan] = (await town.read(ref)).attachments
    assert await attachments.load(town.storage.blobs, ref, plan) == PLAN.content


async def test_files_are_attached_all_or_none(town: Town) -> None:
    ref = await draft(town)
    act = acting(town.storage, town.clock.now())
    with pytest.raises(BadInput, match=r"setup\.exe"):
        await attach(act, ref, [PLAN, NewFile("setup.exe", b"MZ")])
    assert (await town.read(ref)).attachments == ()
    assert await attached_blobs(town) == []


async def test_what_has_begun_keeps_the_files_it_has(town: Town) -> None:
    ref = await scheduled(town, PLAN)
    act = acting(town.storage, town.clock.now())
    _, etag = await messages.read_with_etag(town.storage.tables, ref)
    await attach(act, ref, [MAP], etag)  # a scheduled message can be edited
    with pytest.raises(Conflict):
        await attach(act, ref, [MAP], etag)
    await town.pass_time(DAY_S + 1)
    await town.fan_out()
    [plan, _] = (await town.read(ref)).attachments
    with pytest.raises(WrongState):
        await attach(act, ref, [MAP])
    with pytest.raises(WrongState):
        await detach(act, ref, plan.id)
    await town.open_sender()
    await town.quiet()
    assert {len(files) for files in sent_files(town)} == {2}


async def test_a_message_that_begins_at_that_moment_wins(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await scheduled(town)
    put = attachments.put

    async def begin_meanwhile(*given: Any) -> None:
        await put(*given)
        message, etag = await messages.read_with_etag(town.storage.tables, ref)
        begun = msgspec.structs.replace(message, status=Status.QUEUING)
        await messages.replace(town.storage.tables, begun, etag)

    monkeypatch.setattr(attachments, "put", begin_meanwhile)
    with pytest.raises(WrongState, match="has just been changed"):
        await attach(acting(town.storage, town.clock.now()), ref, [PLAN])
    assert (await town.read(ref)).attachments == ()
    assert await attached_blobs(town) == []


async def test_an_edit_keeps_them_and_a_copy_has_its_own(town: Town) -> None:
    ref = await draft(town, PLAN, MAP)
    _, etag = await messages.read_with_etag(town.storage.tables, ref)
    edited, _ = await compose.edit(town.storage, ref, Revision(text="Other words"), etag)
    act = acting(town.storage, town.clock.now())
    other = (await compose.compose(act, Draft(list_name=LIST, subject="Copy", text="x"))).ref
    for _ in range(2):
        await copy_attachments(town.storage, edited, other)
    await compose.discard(town.storage, ref)
    copied = await town.read(other)
    assert copied.attachments == edited.attachments
    first = await attachments.load(town.storage.blobs, other, copied.attachments[0])
    assert first == PLAN.content


async def test_they_expire_with_the_archive(town: Town) -> None:
    town.scheduler.keep_archive_days = 30
    ref = await scheduled(town, PLAN)
    await town.open_sender()
    await town.pass_time(DAY_S + 1)
    await town.quiet()
    assert await town.is_archived(ref)
    assert len(await attached_blobs(town)) == 1
    await town.pass_time(32 * DAY_S)
    await town.quiet()
    assert await town.everything_about(ref) == []
    assert await attached_blobs(town) == []


async def test_a_backup_has_them(town: Town) -> None:
    ref = await draft(town, PLAN)
    written = await back_up(town.storage, town.clock, town.folder)
    new, _ = await moved_town(town, written.path)
    try:
        [plan] = (await new.read(ref)).attachments
        assert await attachments.load(new.storage.blobs, ref, plan) == PLAN.content
    finally:
        await new.close()


async def test_a_damaged_file_holds_the_message_for_a_person(town: Town) -> None:
    ref = await scheduled(town, PLAN)
    [name] = await attached_blobs(town)
    await town.storage.blobs.put(name, b"something else")
    await town.open_sender()
    await town.pass_time(DAY_S + 1)
    await town.quiet()
    assert not town.sink.mails
    assert (await town.read(ref)).books == Books(held=3)
    [plan] = (await town.read(ref)).attachments
    with pytest.raises(NotFound, match="missing from storage, or damaged"):
        await attachments.load(town.storage.blobs, ref, plan)


async def test_a_server_that_takes_less_pauses_the_message_and_nobody_loses_an_attempt(
    town: Town,
) -> None:
    options = town.sink.options
    town.sink.options = replace(options, size_max=100_000)
    ref = await scheduled(town, PLAN)
    await town.open_sender()
    await town.pass_time(DAY_S + 1)
    await town.quiet()
    message = await town.read(ref)
    assert (message.status, message.books) == (Status.PAUSED, Books(queued=3))
    assert message.self_pause
    assert message.self_pause.is_too_large
    assert "accepts at most 100000" in message.self_pause.words
    assert all(not ledger.deferred for ledger in await town.ledgers(ref))
    town.sink.options = options
    await town.close()
    await town.open_sender()
    await control_message.resume(town.storage.tables, ref)
    await town.quiet()
    assert town.arrived() == once_each(NAMES)


@pytest.mark.parametrize("error", [Unreadable, Conflict])
async def test_a_message_that_cannot_be_paused_yet_is_paused_by_a_later_attempt(
    town: Town, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Its row is of a newer version at that moment, or changes again and again."""
    town.sink.options = replace(town.sink.options, size_max=100_000)
    ref = await scheduled(town, PLAN)

    async def fail(_pause: Any) -> None:
        monkeypatch.setattr(send, "retry_on_conflict", retry_on_conflict)
        raise error

    monkeypatch.setattr(send, "retry_on_conflict", fail)
    await town.open_sender()
    await town.pass_time(DAY_S + 1)
    await town.live_through(600, 60)
    assert (await town.read(ref)).books == Books(queued=3)
    assert (await town.read(ref)).status is Status.PAUSED


async def test_a_test_email_has_them_and_says_if_they_are_too_large(town: Town) -> None:
    ref, ada = await draft(town, PLAN), await writer(town)
    await town.open_sender()
    act = acting(town.storage, town.clock.now())
    await send_test_mail.ask_for_test(act, ref, ada.key, "one")
    await town.sender_alone()
    assert sent_files(town) == [[(PLAN.name, PLAN.content)]]
    await town.close()
    town.sink.options = replace(town.sink.options, size_max=100_000)
    await town.open_sender()
    await send_test_mail.ask_for_test(act, ref, ada.key, "two")
    await town.sender_alone()
    trial = await trials.find(town.storage.tables, ref, ada.key)
    assert trial
    assert trial.state is TrialState.REFUSED
    assert "accepts at most" in trial.words
