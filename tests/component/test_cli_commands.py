"""Commands that succeed: what they print for a script and for a person."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path

import msgspec
import pytest

from postroom import settings
from postroom.domain.dead_letter import Reason
from postroom.domain.delivery_token import DeliveryId
from postroom.domain.feedback import (
    BounceClass,
    BounceReason,
    Classification,
    FeedbackEvent,
    FeedbackKind,
)
from postroom.domain.message import PauseCause, Status, paused_for
from postroom.records import dead_letters, feedback, messages
from postroom.records.feedback import LocatedEvent
from postroom.records.names import MAIL_QUEUE
from postroom.web.api import lists as api_lists
from postroom.web.api import messages as api_messages
from postroom.wiring import open_parts
from tests.clock import START
from tests.component.typed import Postroom

FUTURE = "2120-01-01T09:00+01:00"
BOOKS = ("queued", "sending", "sent", "failed", "held", "skipped")
BASIS = "they asked for it"


def message(postroom: Postroom, *options: str) -> str:
    """The ref of a new message to contoso1."""
    Path("body.htm").write_text("<p>Hello {{ name }}</p>", encoding="utf-8")
    common = ("--list", "contoso1", "--subject", "New lecture series", "--html", "body.htm")
    return str(postroom("message", "create", *common, *options, "--json").json["ref"])


def test_a_list_is_made_shown_and_deleted(contoso1: Postroom) -> None:
    contoso1("subscriber", "add", "contoso1", "a@contoso.edu", "--verified")
    contoso1("subscriber", "add", "contoso1", "b@contoso.edu")
    contoso1("subscriber", "add", "contoso1", "c@contoso.edu")
    contoso1("subscriber", "remove", "contoso1", "c@contoso.edu")
    shown = contoso1("list", "show", "contoso1", "--json").json
    assert (shown["verified"], shown["unverified"], shown["inactive"]) == (1, 1, 1)
    assert [each["name"] for each in contoso1("list", "all", "--json").json] == ["contoso1"]
    assert contoso1("list", "delete", "contoso1", "--yes", "--json").json["name"] == "contoso1"
    assert contoso1("list", "all", "--json").json == []
    assert "no lists yet" in contoso1("list", "all").err


def test_what_is_exported_can_be_imported_again(contoso1: Postroom) -> None:
    Path("people.csv").write_bytes(
        "\ufeffE-Mail;Größe;Remark\r\n"
        "+ada@contoso.edu;5;=1+1\r\n"
        '"bob@contoso.edu";6;"two\r\nlines"\r\n'
        "carol@münchen.example;7;-\r\n".encode()
    )
    counts = contoso1("subscriber", "import", "contoso1", "people.csv", "--verified", "--json").json
    assert (counts["added"], counts["bad"], counts["delimiter"]) == (3, 0, ";")
    exported = contoso1("subscriber", "export", "contoso1").out
    rows = list(csv.DictReader(io.StringIO(exported)))
    assert [row["email"] for row in rows] == [
        "'+ada@contoso.edu",
        "bob@contoso.edu",
        "carol@xn--mnchen-3ya.example",
    ]
    assert [row["remark"] for row in rows] == ["'=1+1", "two lines", "'-"]
    contoso1("list", "create", "contoso2", "--from", "news@contoso.edu")
    Path("export.csv").write_text(exported, encoding="utf-8", newline="")
    again = contoso1("subscriber", "import", "contoso2", "export.csv", "--verified", "--json").json
    assert again["added"] == 3
    people = [contoso1("subscriber", "export", name, "--json").json for name in LISTS]
    assert [each["attributes"] for each in people[0]] == [each["attributes"] for each in people[1]]
    assert people[0][0]["attributes"] == {"grosse": "5", "remark": "=1+1"}


LISTS = ("contoso1", "contoso2")


def test_an_export_into_a_file_is_whole_and_private(contoso1: Postroom) -> None:
    contoso1("subscriber", "add", "contoso1", "a@contoso.edu", "--verified")
    done = contoso1("subscriber", "export", "contoso1", "out.csv", "--json").json
    assert done == {"list": "contoso1", "file": "out.csv", "people": 1}
    assert Path("out.csv").read_bytes().startswith(b"email,subscription,since\na@contoso.edu,")
    assert Path("out.csv").stat().st_mode & 0o077 == 0
    assert [path.name for path in Path().glob(".out*")] == []


def test_one_is_not_many(contoso1: Postroom) -> None:
    """What is told of a single person, item or row is said of one."""
    contoso1("subscriber", "add", "contoso1", "a@contoso.edu", "--verified")
    exported = contoso1("subscriber", "export", "contoso1", "out.csv").err
    assert exported == "1 person on contoso1 was exported to out.csv.\n"
    asked = contoso1("list", "delete", "contoso1").err
    assert asked.startswith("Delete contoso1 with 1 person (1 verified)?")
    contoso1("subscriber", "add", "contoso1", "b@contoso.edu")
    exported = contoso1("subscriber", "export", "contoso1", "out.csv").err
    assert exported == "2 people on contoso1 were exported to out.csv.\n"
    asked = contoso1("list", "delete", "contoso1").err
    assert asked.startswith("Delete contoso1 with 2 people (1 verified)?")


def test_those_who_unsubscribed_can_be_exported_and_do_not_join_elsewhere(
    contoso1: Postroom,
) -> None:
    contoso1("subscriber", "add", "contoso1", "a@contoso.edu", "--verified")
    contoso1("subscriber", "remove", "contoso1", "a@contoso.edu")
    assert contoso1("subscriber", "export", "contoso1", "--json").json == []
    contoso1("subscriber", "export", "contoso1", "gone.csv", "--inactive")
    contoso1("list", "create", "contoso2", "--from", "news@contoso.edu")
    counts = contoso1("subscriber", "import", "contoso2", "gone.csv", "--verified", "--json").json
    assert (counts["added"], counts["unsubscribed"]) == (0, 1)


def test_refused_rows_are_reported_with_line_value_and_reason(contoso1: Postroom) -> None:
    Path("people.csv").write_text("email,x\na@contoso.edu,1\nnobody,2\n=b@,3\n", encoding="utf-8")
    arguments = ("contoso1", "people.csv", "--basis", BASIS, "--report", "refused.csv")
    ran = contoso1("subscriber", "import", *arguments)
    assert ran.code == 0
    assert "1 added to contoso1" in ran.out
    assert "2 bad" in ran.out
    assert "line 3: nobody: " in ran.out
    with Path("refused.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["line"], row["value"]) for row in rows] == [("3", "nobody"), ("4", "'=b@")]
    assert all(row["reason"] for row in rows)


def test_a_dry_run_adds_nobody(contoso1: Postroom) -> None:
    Path("people.csv").write_text("email\na@contoso.edu\nb@contoso.edu\n", encoding="utf-8")
    counts = contoso1("subscriber", "import", "contoso1", "people.csv", "--dry-run", "--json").json
    assert (counts["added"], counts["dry_run"]) == (2, True)
    assert contoso1("subscriber", "export", "contoso1", "--json").json == []


@pytest.mark.parametrize(
    ("encoding", "told"),
    [("utf-8", "UTF-8"), ("utf-16", "UTF-16"), ("cp1252", "UTF-8 with 1 line in Windows-1252")],
)
def test_a_file_may_have_the_encoding_of_its_spreadsheet(
    contoso1: Postroom, encoding: str, told: str
) -> None:
    Path("people.csv").write_bytes("email,city\na@contoso.edu,Köln\n".encode(encoding))
    arguments = ("contoso1", "people.csv", "--basis", BASIS, "--json")
    assert contoso1("subscriber", "import", *arguments).json["encoding"] == told
    shown = contoso1("subscriber", "show", "contoso1", "a@contoso.edu", "--json").json
    assert shown["attributes"] == {"city": "Köln"}


def test_scripts_see_lists_and_messages_as_the_web_service_shows_them(contoso1: Postroom) -> None:
    ref = message(contoso1)
    assert list(contoso1("message", "show", ref, "--json").json) == list(api_messages.EXAMPLE)
    [shown] = contoso1("list", "all", "--json").json
    assert list(shown) == list(api_lists.EXAMPLE)


def test_a_message_without_a_time_stays_a_draft_and_says_so(contoso1: Postroom) -> None:
    ref = message(contoso1)
    assert contoso1("message", "show", ref, "--json").json["status"] == "draft"
    Path("body.txt").write_text("Hello", encoding="utf-8")
    common = ("--list", "contoso1", "--subject", "s", "--text", "body.txt")
    assert "nothing is sent" in contoso1("message", "create", *common).out


def test_the_books_of_a_message_have_every_part(contoso1: Postroom) -> None:
    ref = message(contoso1, "--at", FUTURE, "--on-doubt", "hold")
    shown = contoso1("message", "show", ref, "--json").json
    assert shown["due_at"] == "2120-01-01T08:00:00Z"
    assert shown["audience"] == sum(shown[part] for part in BOOKS) == 0
    assert {"ref", "status", "list", "subject", "doubts", "completed_at"} <= set(shown)
    assert f"{ref}  pending" in contoso1("message", "all").out
    assert contoso1("message", "people", ref, "--json").json == []
    assert contoso1("message", "people", ref).out == "address,outcome,at,words\n"


def test_what_came_back_for_a_message_is_shown(contoso1: Postroom) -> None:
    ref = message(contoso1, "--at", FUTURE)
    empty = contoso1("message", "feedback", ref, "--json").json
    assert (empty["ref"], empty["bounced"], empty["reasons"]) == (ref, 0, [])
    why = Classification(BounceClass.DEAD, BounceReason.NO_SUCH_USER, "5.1.1", "550 5.1.1 gone")
    asyncio.run(bounce(ref, why))
    shown = contoso1("message", "feedback", ref)
    assert "bounced  1" in shown.out
    assert "1  dead       no_such_user       550 5.1.1 gone" in shown.out
    assert "contoso.edu: 0 delivered, 1 bounced, 0 spam" in shown.out
    found = contoso1("message", "feedback", ref, "--json").json
    assert found["classes"]["dead"] == 1
    assert found["paused_because"] is None
    asyncio.run(pause_by_itself(ref))
    assert "Paused automatically: 30 of 120 emails" in contoso1("message", "feedback", ref).out
    assert contoso1("message", "feedback", "634852858215726983").code == 1


async def bounce(ref: str, why: Classification) -> None:
    event = FeedbackEvent(
        id="1", kind=FeedbackKind.BOUNCED, at=START, source="smtp", classification=why
    )
    located = LocatedEvent(event, DeliveryId(ref, 0, 0), "a@contoso.edu", "a@contoso.edu")
    async with open_parts(settings.load()) as parts:
        await feedback.record(parts.storage.tables, ref, [located])


async def pause_by_itself(ref: str) -> None:
    async with open_parts(settings.load()) as parts:
        tables = parts.storage.tables
        found = await messages.find_live(tables, ref)
        assert found
        going = msgspec.structs.replace(found.value, status=Status.PROCESSING)
        paused = paused_for(going, PauseCause(30, 120, "550 5.7.1 blocked"))
        await messages.replace(tables, paused, found.etag)


def test_a_scheduled_message_goes_back_to_draft(contoso1: Postroom) -> None:
    ref = message(contoso1, "--at", FUTURE)
    ran = contoso1("message", "unschedule", ref)
    assert ran.out == f"Message {ref} is a draft again. It will not be sent.\n"
    shown = contoso1("message", "show", ref, "--json").json
    assert (shown["status"], shown["due_at"]) == ("draft", None)
    again = contoso1("message", "unschedule", ref)
    assert (again.code, again.err) == (1, f"Message {ref} is already a draft.\n")


def test_a_message_is_steered_only_where_that_makes_sense(contoso1: Postroom) -> None:
    ref = message(contoso1, "--at", FUTURE)
    for arguments, complaint in [
        (["pause", ref], "Only a message that is being sent can be paused"),
        (["resume", ref], "not paused"),
        (["retry", ref], "it cannot be sent again yet"),
        (["retry", ref, "--held"], "it cannot be sent again yet"),
        (["settle", ref], "it cannot be sent again yet"),
    ]:
        ran = contoso1("message", *arguments)
        assert (ran.code, ran.out) == (1, "")
        assert complaint in ran.err
    assert contoso1("message", "cancel", ref, "--json").json["status"] == "cancelled"
    assert "already" in contoso1("message", "cancel", ref).err


def test_storage_can_be_looked_into_and_keeps_its_secret(contoso1: Postroom) -> None:
    message(contoso1)
    assert "mailinglist" in contoso1("storage", "tables", "--json").json
    assert set(contoso1("storage", "queues", "--json").json.values()) == {0}
    [row] = contoso1("storage", "rows", "mailinglist", "--partition", "contoso1", "--json").json
    assert row["properties"]["FromEmailAddress"] == "news@contoso.edu"
    assert len(contoso1("storage", "rows", "mailinglist", "--limit", "1", "--json").json) == 1
    [body] = contoso1("storage", "blobs", "--json").json
    assert contoso1("storage", "blob", body, "--json").json["bytes"] == 23
    assert contoso1("storage", "peek", "azuremailqueue", "--json").json == []


def test_a_row_is_deleted_only_after_a_yes(contoso1: Postroom) -> None:
    place = ("mailinglist", "contoso1", "mailinglist")
    refused = contoso1("storage", "delete-row", *place)
    assert refused.code == 1
    assert "--yes" in refused.err
    assert contoso1("storage", "row", *place).code == 0
    assert contoso1("storage", "delete-row", *place, "--yes", "--json").json["deleted"] is True
    assert contoso1("storage", "row", *place).code == 1


def test_the_doctor_finds_nothing_wrong_with_a_fresh_house(contoso1: Postroom) -> None:
    findings = contoso1("doctor", "--json").json
    assert {finding["verdict"] for finding in findings} <= {"right", "note"}
    about = {finding["about"] for finding in findings}
    assert about >= {"settings", "storage", "integrity", "disk", "transport", "url", "journals"}


def test_the_doctor_tells_every_wrong_setting(
    postroom: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_TRANSPORT", "pigeon:")
    ran = postroom("doctor")
    assert ran.code == 1
    assert "POSTROOM_TRANSPORT" in ran.out


def test_the_doctor_sees_what_is_due_and_dead_letters(
    contoso1: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    message(contoso1, "--at", "now")
    asyncio.run(put_dead_letter())
    monkeypatch.setenv("POSTROOM_TRANSPORT", "smtp://127.0.0.1:1")
    ran = contoso1("doctor", "--json")
    assert (ran.code, ran.err) == (1, "")
    wrong = {each["about"] for each in json.loads(ran.out) if each["verdict"] == "wrong"}
    assert wrong == {"scheduler", "dead letters", "transport", "url"}


async def put_dead_letter() -> None:
    async with open_parts(settings.load()) as parts:
        await parts.storage.queues.put("azuremaildeadletter", "nobody can read this")


async def bury(body: str, reason: Reason) -> None:
    async with open_parts(settings.load()) as parts:
        queues = parts.storage.queues
        await queues.put(MAIL_QUEUE, body)
        [claim] = await queues.claim(MAIL_QUEUE, limit=1, lease_s=60)
        await dead_letters.bury(queues, claim, reason, parts.clock.now())


def test_dead_letters_are_explained_put_back_and_cleared(contoso1: Postroom) -> None:
    assert contoso1("storage", "dead-letters").out == "There are no dead letters.\n"
    asyncio.run(bury("2026-11-15,123,ada,0,4", Reason.UNREADABLE))
    asyncio.run(put_dead_letter())
    shown = contoso1("storage", "dead-letters")
    assert "2026-11-15,123,ada,0,4" in shown.out
    assert "newer version" in shown.out
    assert "Postroom did not write this entry" in shown.out
    [first, second] = contoso1("storage", "dead-letters", "--json").json
    assert (first["reason"], second["reason"]) == ("unreadable", "unknown")
    findings = json.loads(contoso1("doctor", "--json").out)
    [found] = [each for each in findings if "newer version" in each["words"]]
    assert found["verdict"] == "wrong"
    assert contoso1("storage", "dead-letters", "--requeue", "--json").json == {
        "requeued": 1,
        "kept": 1,
    }
    assert contoso1("storage", "queues", "--json").json[MAIL_QUEUE] == 1
    refused = contoso1("storage", "dead-letters", "--clear")
    assert (refused.code, "--yes" in refused.err) == (1, True)
    cleared = contoso1("storage", "dead-letters", "--clear", "--yes", "--json")
    assert cleared.json == {"cleared": 1}
    findings = json.loads(contoso1("doctor", "--json").out)
    assert [each["verdict"] for each in findings if each["about"] == "dead letters"] == ["right"]


def test_dead_letters_are_not_cleared_and_put_back_at_once(contoso1: Postroom) -> None:
    assert contoso1("storage", "dead-letters", "--clear", "--requeue").code == 1


def test_the_doctor_sees_a_file_that_is_no_database(
    postroom: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("notes.db").write_bytes(b"no database at all" * 1000)
    monkeypatch.setenv("POSTROOM_STORAGE", "sqlite:///notes.db")
    ran = postroom("doctor")
    assert ran.code == 1
    assert "wrong  storage" in ran.out


def test_files_are_attached_shown_and_removed(contoso1: Postroom) -> None:
    ref = message(contoso1)
    Path("Plan für Mai.pdf").write_bytes(b"%PDF plan")
    Path("setup.exe").write_bytes(b"MZ")
    refused = contoso1("message", "attach", ref, "Plan für Mai.pdf", "setup.exe")
    assert refused.code
    assert "Gmail and Outlook block" in refused.err
    assert "cannot be read" in contoso1("message", "attach", ref, "nothing.pdf").err
    attached = contoso1("message", "attach", ref, "Plan für Mai.pdf", "--json").json
    assert [each["name"] for each in attached["items"]] == ["Plan für Mai.pdf"]
    assert "They add 14 bytes to every email." in contoso1("message", "attachments", ref).out
    assert "Plan für Mai.pdf" in contoso1("message", "show", ref).out
    assert "has no attachment" in contoso1("message", "detach", ref, "other.pdf").err
    assert contoso1("message", "detach", ref, "Plan für Mai.pdf", "--json").json["items"] == []


def test_a_message_is_created_with_its_files_before_it_has_a_time(contoso1: Postroom) -> None:
    Path("plan.pdf").write_bytes(b"%PDF plan")
    ref = message(contoso1, "--attach", "plan.pdf", "--at", FUTURE)
    shown = contoso1("message", "show", ref, "--json").json
    assert (shown["status"], shown["attachments"]) == ("pending", ["plan.pdf"])
    Path("setup.exe").write_bytes(b"MZ")
    common = ("--list", "contoso1", "--subject", "x", "--html", "body.htm")
    assert contoso1("message", "create", *common, "--attach", "setup.exe").code
    assert len(contoso1("message", "all", "--json").json) == 1
