"""Trouble with the mail server comes to whoever waits for it, live and on every load."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.message import Status
from postroom.domain.trial import Trial, TrialState
from postroom.domain.trouble import Trouble, TroubleKind
from postroom.domain.user import Role
from postroom.records import leases, messages, trials
from postroom.storage.memory import MemoryStorage
from postroom.web import live_updates
from tests.web.drafts import written
from tests.web.office import NOW
from tests.web.signed_in import Worker, at_work, sign_in_as
from tests.web.test_admin_sending import going_out
from tests.web.test_live import Room, live, room

__all__ = ["room"]

LOGIN = Trouble(
    TroubleKind.LOGIN,
    "mail.contoso.edu:587",
    "535 5.7.8 <authentication> failed",
    since=NOW - timedelta(minutes=5),
    next_try_at=NOW + timedelta(seconds=8),
    faults=5,
)
SENTENCE = (
    "The mail server mail.contoso.edu:587 rejects the login: "
    "535 5.7.8 &lt;authentication&gt; failed"
)


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read a moment ago is read again."""
    monkeypatch.setattr(live_updates, "CACHED_S", 0.0)


async def sender(storage: MemoryStorage, owner: str, trouble: Trouble | None) -> None:
    """A living sender that says so."""
    name = leases.sender_lease(owner)
    more: dict[str, Any] = {"now": NOW, "lease_s": 30.0, "mail_trouble": trouble}
    assert await leases.hold(storage.tables, name, owner, **more)


def words(page: str) -> str:
    """Of the first alert, without tags."""
    alert = page.partition('<div class="alert alert-danger trouble">')[2].partition("</p>")[0]
    return " ".join(re.sub("<[^>]+>", "", alert).split())


async def test_the_overview_says_what_is_wrong_since_when_and_what_to_do(editor: Worker) -> None:
    await sender(editor.office.storage, "one", LOGIN)
    shown = words((await editor.get("/admin")).text)
    assert shown == (
        f"{SENTENCE} Since 2026-11-15 08:55 UTC. "
        "Nothing is lost. The next attempt is at 09:00:08 UTC. "
        "Check the user name and the password in POSTROOM_TRANSPORT."
    )


async def test_nothing_is_reported_while_it_works(editor: Worker) -> None:
    await sender(editor.office.storage, "one", None)
    assert "alert-danger" not in (await editor.get("/admin")).text


async def test_trouble_of_some_senders_is_not_told_as_everybodys(editor: Worker) -> None:
    for owner, trouble in (("one", LOGIN), ("two", None), ("three", None)):
        await sender(editor.office.storage, owner, trouble)
    shown = words((await editor.get("/admin")).text)
    assert "1 of 3 senders reports this problem." in shown


async def test_the_same_trouble_of_several_senders_is_told_once(editor: Worker) -> None:
    later = msgspec.structs.replace(LOGIN, since=NOW, next_try_at=NOW + timedelta(seconds=60))
    await sender(editor.office.storage, "one", later)
    await sender(editor.office.storage, "two", LOGIN)
    page = (await editor.get("/admin")).text
    assert page.count("rejects the login") == 1
    assert "Since 2026-11-15 08:55 UTC. Nothing is lost. The next attempt is at 09:00:08" in words(
        page
    )


async def test_the_trouble_of_a_dead_sender_is_not_told(editor: Worker) -> None:
    storage = editor.office.storage
    name = leases.sender_lease("one")
    past = NOW - timedelta(seconds=31)
    assert await leases.hold(
        storage.tables, name, "one", now=past, lease_s=30.0, mail_trouble=LOGIN
    )
    assert "rejects the login" not in (await editor.get("/admin")).text


async def test_who_has_nothing_to_try_it_with_does_not_promise_a_try(editor: Worker) -> None:
    old = msgspec.structs.replace(LOGIN, next_try_at=NOW - timedelta(hours=1))
    await sender(editor.office.storage, "one", old)
    assert "Postroom tries again with the next email" in words((await editor.get("/admin")).text)


@pytest.mark.parametrize("status", [Status.QUEUING, Status.PROCESSING])
async def test_a_message_that_waits_for_it_says_so(editor: Worker, status: Status) -> None:
    await sender(editor.office.storage, "one", LOGIN)
    assert SENTENCE in words((await editor.get(await going_out(editor, status))).text)


async def test_a_message_about_to_go_out_says_so(editor: Worker) -> None:
    await sender(editor.office.storage, "one", LOGIN)
    path, tables = await written(editor), editor.office.storage.tables
    found = await messages.find_live(tables, path.rpartition("/")[2])
    assert found
    due = msgspec.structs.replace(found[0], status=Status.PENDING, due_at=NOW)
    await messages.replace(tables, due, found[1])
    assert SENTENCE in words((await editor.get(path)).text)


@pytest.mark.parametrize("status", [Status.PAUSED, Status.COMPLETED])
async def test_a_message_that_waits_for_something_else_does_not(
    editor: Worker, status: Status
) -> None:
    await sender(editor.office.storage, "one", LOGIN)
    path = await going_out(editor, status, completed_at=NOW)
    assert "rejects the login" not in (await editor.get(path)).text


async def test_trouble_comes_and_goes_while_somebody_watches_a_message(room: Room) -> None:
    message = await room.message()
    async with room.watching(live(message)) as stream:
        assert "refuses" not in (await stream.event())[1]
        await sender(room.storage, "one", LOGIN)
        await room.clock.tick()
        assert SENTENCE in words((await stream.event())[1])
        name = leases.sender_lease("one")
        lease = await leases.holder(room.storage.tables, name, now=NOW)
        assert lease
        await leases.hold(room.storage.tables, name, "one", now=NOW, lease_s=30.0, kept=lease)
        await room.clock.tick()
        assert "refuses" not in (await stream.event())[1]


async def test_trouble_comes_while_somebody_watches_the_overview(room: Room) -> None:
    async with room.watching("/admin/live") as stream:
        await stream.event()
        await sender(room.storage, "one", LOGIN)
        await room.clock.tick()
        assert SENTENCE in words((await stream.event())[1])


# --- A test mail --------------------------------------------------------------------------------


async def asked(editor: Worker, state: TrialState, said: str = "") -> str:
    """The path of a message whose test mail got that far."""
    path = await written(editor)
    ref, user = path.rpartition("/")[2], editor.user.key
    trial = Trial(ref=ref, user=user, nonce="n", asked_at=NOW, state=state, words=said, at=NOW)
    await trials.ask(editor.office.storage.tables, trial)
    return path


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (TrialState.SENT, "Sent, <time"),
        (TrialState.REFUSED, "550 5.1.1 &lt;nobody&gt;"),
        (TrialState.DEFERRED, "550 5.1.1 &lt;nobody&gt; Postroom will try again."),
        (TrialState.UNKNOWN, "The connection broke before the mail server confirmed it"),
        (TrialState.GIVEN_UP, "Gave up after several attempts"),
        (TrialState.UNWRITABLE, "Not sent: 550 5.1.1"),
    ],
)
async def test_the_outcome_of_a_test_is_beside_its_button(
    editor: Worker, state: TrialState, said: str
) -> None:
    path = await asked(editor, state, "550 5.1.1 <nobody>")
    for where in (path, f"{path}/test/live"):
        assert said in (await editor.get(where)).text


async def test_a_test_that_waits_is_asked_about_again_and_one_that_is_over_is_not(
    editor: Worker,
) -> None:
    again = 'hx-trigger="every 2s"'
    assert again in (await editor.get(await asked(editor, TrialState.WAITING))).text
    assert again not in (await editor.get(await asked(editor, TrialState.SENT))).text


async def test_a_test_that_waits_for_the_mail_server_says_so(editor: Worker) -> None:
    await sender(editor.office.storage, "one", LOGIN)
    assert SENTENCE in words((await editor.get(await asked(editor, TrialState.WAITING))).text)


async def test_a_test_that_waits_for_a_sender_says_so(editor: Worker) -> None:
    page = (await editor.get(await asked(editor, TrialState.WAITING))).text
    assert "No sender is running, so nothing is sent." in page


async def test_the_button_asks_and_the_page_waits(editor: Worker) -> None:
    path = await written(editor)
    answer = await editor.post(f"{path}/test")
    assert answer.status_code == 303
    page = (await editor.get(answer.headers["location"])).text
    assert "Waiting to be sent" in page
    assert "The result appears below the button." in page


async def test_somebody_elses_test_is_theirs(editor: Worker) -> None:
    path = await asked(editor, TrialState.SENT)
    owner = await sign_in_as(editor.office, Role.OWNER)
    async with owner.browser:
        assert "Sent, <time" not in (await owner.get(path)).text
