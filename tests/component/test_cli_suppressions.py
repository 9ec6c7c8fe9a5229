"""`postroom suppression …`: what people type, and what scripts read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroom.cli.session import work
from postroom.domain.address import parse_address
from postroom.domain.delivery_token import delivery_tokens
from postroom.domain.suppression import Suppression, SuppressionReason, SuppressionScope
from postroom.records import suppressions
from postroom.records.secrets import installation_secret
from postroom.wiring import Parts
from tests.component.typed import Postroom

ADA = "ada@contoso.edu"
HEADER = "email,scope,reason,since,lists,source,status,words,note\n"
BOUNCED_AT = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


def test_an_address_is_added_explained_widened_and_removed(contoso1: Postroom) -> None:
    added = contoso1("suppression", "add", "Ada@Contoso.EDU", "--note", "asked by phone")
    assert added.out == "Ada@contoso.edu is suppressed for all lists.\n"
    again = contoso1("suppression", "add", ADA, "--scope", "list", "--list", "contoso1", "--json")
    assert (again.json["scope"], again.json["changed"]) == ("bulk", False)
    contoso1("suppression", "add", ADA, "--scope", "all")
    shown = contoso1("suppression", "show", ADA).out
    assert "suppressed for  all email" in shown
    assert "command line" in shown
    data = contoso1("suppression", "show", ADA, "--json").json
    assert (data["scope"], data["reason"], data["message"]) == ("all", "added", "")
    assert contoso1("suppression", "remove", ADA).out == f"{ADA} is no longer suppressed.\n"
    gone = contoso1("suppression", "show", ADA)
    assert (gone.code, gone.err) == (1, f"{ADA} is not suppressed.\n")
    assert contoso1("suppression", "remove", ADA).code == 1


def test_show_names_the_message_and_the_words_of_the_server(contoso1: Postroom) -> None:
    Path("hello.txt").write_text("Hello", encoding="utf-8")
    made = contoso1(
        *(
            "message",
            "create",
            "--list",
            "contoso1",
            "--subject",
            "New lectures",
            "--text",
            "hello.txt",
        ),
        "--json",
    )
    ref = made.json["ref"]
    key = parse_address(ADA).storage_key

    async def bounce(parts: Parts) -> None:
        tables = parts.storage.tables
        secret = await installation_secret(tables)
        token = delivery_tokens(secret.encode(), ref, 0, [3])[3]
        entry = Suppression(
            key=key,
            address=ADA,
            scope=SuppressionScope.ALL,
            reason=SuppressionReason.DEAD,
            since=BOUNCED_AT,
            source="smtp",
            delivery=token,
            status="5.1.1",
            words="550 5.1.1 No such user",
        )
        await suppressions.put(tables, secret, key, entry, BOUNCED_AT)

    work(bounce)
    shown = contoso1("suppression", "show", ADA).out
    assert f"{ref} “New lectures” to contoso1" in shown
    assert "550 5.1.1 No such user" in shown
    assert "the mail server, while sending" in shown
    data = contoso1("suppression", "show", ADA, "--json").json
    assert (data["message"], data["subject"], data["status"]) == (ref, "New lectures", "5.1.1")
    assert data["since"] == "2026-11-15T09:00:00Z"


def test_an_export_is_read_again_and_no_cell_runs_as_a_formula(contoso1: Postroom) -> None:
    contoso1("suppression", "add", ADA, "--note", "=1+1")
    contoso1("suppression", "add", "ben@contoso.edu", "--scope", "list", "--list", "contoso1")
    contoso1("suppression", "add", "müller@contoso.edu", "--scope", "all")
    contoso1("suppression", "erase", "zoe@contoso.edu", "--yes")
    printed = contoso1("suppression", "export").out
    assert printed.startswith(HEADER + f"{ADA},bulk,added,")
    assert ",'=1+1\n" in printed
    assert "müller@contoso.edu" in printed
    assert "zoe" not in printed
    told = contoso1("suppression", "export", "all.csv")
    assert (told.out, told.err) == ("", "3 addresses were exported to all.csv.\n")
    before = contoso1("suppression", "export", "--json").json
    for address in (ADA, "ben@contoso.edu", "müller@contoso.edu"):
        contoso1("suppression", "remove", address)
    assert contoso1("suppression", "import", "all.csv", "--json").json["added"] == 3
    assert contoso1("suppression", "export", "--json").json == before


@pytest.mark.parametrize(
    "content",
    [
        "ada@contoso.edu\nben@contoso.edu\n",
        "\ufeffemail\r\nada@contoso.edu\r\nben@contoso.edu\r\n",
        "status,reason,Email,created\n5,550 no,ada@contoso.edu,1700000000\n,,ben@contoso.edu,\n",
        "address;why\nada@contoso.edu;spam\nben@contoso.edu;spam\n",
        "1\tada@contoso.edu\n2\tben@contoso.edu\n",
    ],
)
def test_files_of_other_tools_are_read(contoso1: Postroom, content: str) -> None:
    Path("file.csv").write_text(content, encoding="utf-8")
    counts = contoso1("suppression", "import", "file.csv", "--json").json
    assert (counts["added"], counts["bad"]) == (2, 0)
    data = contoso1("suppression", "show", "ben@contoso.edu", "--json").json
    assert (data["scope"], data["reason"], data["source"]) == ("bulk", "imported", "file file.csv")


def test_what_another_tool_says_is_kept(contoso1: Postroom) -> None:
    Path("sg.csv").write_text(
        "status,reason,email,created\n5.1.1,550 5.1.1 no such user,ada@contoso.edu,1700000000\n",
        encoding="utf-8",
    )
    contoso1("suppression", "import", "sg.csv", "--scope", "all")
    data = contoso1("suppression", "show", ADA, "--json").json
    assert data["note"] == "550 5.1.1 no such user"
    assert (data["status"], data["since"]) == ("5.1.1", "2023-11-14T22:13:20Z")


def test_bad_rows_are_reported_with_their_lines_and_the_rest_is_added(contoso1: Postroom) -> None:
    rows = [
        "email,scope",
        "ada@contoso.edu,all",
        "nobody,bulk",
        "",
        "ben@contoso.edu,most",
        "ada@contoso.edu,bulk",
    ]
    Path("rows.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    ran = contoso1("suppression", "import", "rows.csv", "--report", "bad.csv")
    assert ran.code == 0
    assert ran.out.startswith(
        "1 added\n1 already suppressed, or more than once in the file\n2 bad\n"
    )
    assert "  line 3: nobody: " in ran.out
    assert "  line 5: ben@contoso.edu: Choose what is stopped" in ran.out
    assert len(Path("bad.csv").read_text(encoding="utf-8").splitlines()) == 3
    again = contoso1("suppression", "import", "rows.csv", "--json").json
    assert (again["added"], again["already"], again["bad"]) == (0, 2, 2)


def test_erasing_deletes_the_person_and_keeps_a_hash(contoso1: Postroom) -> None:
    contoso1("subscriber", "add", "contoso1", ADA, "--verified")
    contoso1("suppression", "add", ADA, "--note", "Ada")
    refused = contoso1("suppression", "erase", ADA)
    assert (refused.code, refused.out) == (1, "")
    assert contoso1("suppression", "erase", ADA, "--yes", "--json").json["lists"] == ["contoso1"]
    assert contoso1("subscriber", "show", "contoso1", ADA).code == 1
    shown = contoso1("suppression", "show", ADA, "--json").json
    assert (shown["reason"], shown["scope"], shown["note"]) == ("erased", "all", "")
    counted = contoso1("list", "show", "contoso1", "--json").json
    assert (counted["verified"], counted["inactive"]) == (0, 0)
    for table in ("mailinglist", "suppression"):
        rows = contoso1("storage", "rows", table, "--json").out
        assert "ada@" not in rows.lower(), table
    assert contoso1("suppression", "add", ADA, "--json").json["changed"] is False
    assert contoso1("suppression", "remove", ADA).code == 0
    assert contoso1("suppression", "show", ADA).code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "nobody"], "no @"),
        (["add", ADA, "--scope", "list"], "at least one list"),
        (["add", ADA, "--list", "contoso1"], "only with the scope"),
        (["add", ADA, "--scope", "list", "--list", "nolist"], "no list nolist"),
        (["add", ADA, "--note", "x" * 501], "500"),
        (["import", "missing.csv"], "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_reported_in_a_sentence(
    contoso1: Postroom, arguments: list[str], words: str
) -> None:
    ran = contoso1("suppression", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err
