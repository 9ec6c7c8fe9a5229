"""`postroom subscriber import` and `ask` for people who have not confirmed: no dead end."""

from __future__ import annotations

from pathlib import Path

from postroom.cli import exit_codes
from tests.component.typed import Postroom

PEOPLE = "email,name\nada@contoso.edu,Ada\nbob@contoso.edu,Bob\n"


def brought_in(postroom: Postroom, *options: str, people: str = PEOPLE) -> dict[str, object]:
    Path("people.csv").write_text(people, encoding="utf-8")
    counts: dict[str, object] = postroom(
        "subscriber", "import", "contoso1", "people.csv", *options, "--json"
    ).json
    return {name: count for name, count in counts.items() if isinstance(count, int) and count}


def items(postroom: Postroom) -> int:
    found: int = len(postroom("storage", "peek", "azuremailsubscribequeue", "--json").json)
    return found


def test_who_was_imported_unconfirmed_is_confirmed_by_the_next_import(contoso1: Postroom) -> None:
    assert brought_in(contoso1) == {"rows": 2, "added": 2, "complete": True}
    dry = brought_in(contoso1, "--verified", "--dry-run")
    assert (dry["already"], dry["confirmed"]) == (2, 2)
    done = contoso1("subscriber", "import", "contoso1", "people.csv", "--verified")
    assert "2 already there\n2 confirmed\n" in done.out
    one = contoso1("subscriber", "show", "contoso1", "ada@contoso.edu", "--json").json
    assert one["verified"]


def test_an_import_of_unconfirmed_people_says_what_to_do_next(contoso1: Postroom) -> None:
    Path("people.csv").write_text(PEOPLE, encoding="utf-8")
    ran = contoso1("subscriber", "import", "contoso1", "people.csv")
    assert "postroom subscriber ask contoso1 --all" in ran.out
    ran = contoso1("subscriber", "add", "contoso1", "eve@contoso.edu")
    assert "“postroom subscriber ask contoso1 eve@contoso.edu” sends" in ran.out


def test_fields_of_who_is_there_follow_the_file_if_asked_to(contoso1: Postroom) -> None:
    brought_in(contoso1, "--verified")
    changed = PEOPLE.replace("Ada", "Ada L.")
    assert "updated" not in brought_in(contoso1, "--existing", "fill", people=changed)
    assert brought_in(contoso1, "--existing", "overwrite", people=changed)["updated"] == 1
    one = contoso1("subscriber", "show", "contoso1", "ada@contoso.edu", "--json").json
    assert one["attributes"] == {"name": "Ada L."}


def test_an_import_asks_everybody_who_has_not_confirmed(contoso1: Postroom) -> None:
    assert brought_in(contoso1, "--ask")["asked"] == 2
    assert items(contoso1) == 2
    assert "asked" not in brought_in(contoso1, "--ask")


def test_typing_errors_are_corrected_and_reported(contoso1: Postroom) -> None:
    Path("people.csv").write_text(
        'email\nmailto:ada@contoso.edu\n"Bob, B. <bob@contoso.edu>"\neve@gmial.com\n'
        "eve@gmial.com\n",
        encoding="utf-8",
    )
    ran = contoso1("subscriber", "import", "contoso1", "people.csv", "--dry-run")
    assert ran.out.startswith(
        "3 would be added to contoso1\n0 already there\n1 more than once in the file"
    )
    assert "2 with a typo in the address that was corrected" in ran.out
    assert "line 2: mailto:ada@contoso.edu: read as ada@contoso.edu" in ran.out
    assert "line 4: eve@gmial.com: Did you mean gmail.com?" in ran.out


def test_one_person_is_asked_once_a_day(contoso1: Postroom) -> None:
    contoso1("subscriber", "add", "contoso1", "ada@contoso.edu")
    ran = contoso1("subscriber", "ask", "contoso1", "ada@contoso.edu")
    assert (ran.code, ran.out) == (0, "ada@contoso.edu will get a confirmation email.\n")
    ran = contoso1("subscriber", "ask", "contoso1", "ada@contoso.edu")
    assert ran.code == exit_codes.REFUSED
    assert "They were asked in the last 24 hours" in ran.err
    assert items(contoso1) == 1


def test_everybody_who_has_not_confirmed_is_asked(contoso1: Postroom) -> None:
    brought_in(contoso1)
    contoso1("subscriber", "add", "contoso1", "eve@contoso.edu", "--verified")
    contoso1("subscriber", "ask", "contoso1", "ada@contoso.edu")
    ran = contoso1("subscriber", "ask", "contoso1", "--all")
    assert ran.out.splitlines()[0] == "1 person on contoso1 was asked to confirm."
    again = contoso1("subscriber", "ask", "contoso1", "--all", "--json").json
    assert (again["asked"], again["skipped"], again["status"]) == (0, 2, "done")
    assert items(contoso1) == 2
    assert contoso1("subscriber", "ask", "nowhere", "--all").code == exit_codes.REFUSED
