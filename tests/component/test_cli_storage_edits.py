"""`postroom storage …`: editing by hand, each change guarded and recorded."""

from __future__ import annotations

from pathlib import Path

from tests.component.typed import Postroom

ROW = ("service", "test", "row")


def test_a_row_is_created_changed_by_type_and_guarded_by_its_etag(contoso1: Postroom) -> None:
    made = contoso1("storage", "set-row", *ROW, "Text=a", "Count:int=1", "--create", "--json").json
    assert made["properties"] == {"Text": "a", "Count": 1}
    assert contoso1("storage", "set-row", *ROW, "Text=b", "--create").code == 1
    changed = contoso1("storage", "set-row", *ROW, "Is:bool=true", "Text=", "--json").json
    assert changed["properties"] == {"Count": 1, "Is": True}
    refused = contoso1("storage", "set-row", *ROW, "Count:int=2", "--etag", made["etag"])
    assert refused.code == 1
    assert "The row has changed" in refused.err
    for wrong in ("Count:int=x", "Count:real=1", "nothing", "PasswordHash=x"):
        assert contoso1("storage", "set-row", *ROW, wrong).code == 1
    assert contoso1("storage", "row", *ROW, "--json").json["properties"] == {"Count": 1, "Is": True}
    outcomes = [each["outcome"] for each in contoso1("audit", "--kind", "row", "--json").json]
    assert outcomes == ["done", "refused", "done"]


def test_rows_are_filtered_and_secrets_masked(contoso1: Postroom) -> None:
    for name in ("ada", "eve"):
        contoso1("subscriber", "add", "contoso1", f"{name}@contoso.edu")
    rows = ("storage", "rows", "mailinglist", "--partition", "contoso1", "--json")
    assert len(contoso1(*rows, "--prefix", "email:").json) == 2
    assert len(contoso1(*rows, "--prefix", "email:a").json) == 1
    assert len(contoso1(*rows, "--from", "email:b", "--to", "email:z").json) == 1
    found = contoso1(*rows, "--where", "EmailAddress=eve@contoso.edu").json
    assert [row["key"] for row in found] == ["email:eve@contoso.edu"]
    secret = contoso1("key", "create", "portal", "--json").json
    keys = contoso1("storage", "rows", "service", "--partition", "key")
    assert secret["id"] in keys.out
    assert "•••" in keys.out
    assert len(keys.out.split(" / ")[1].partition(" ")[0]) < 20  # not the whole hash


def test_the_audit_log_and_the_installation_secret_are_locked(contoso1: Postroom) -> None:
    [row] = contoso1("storage", "rows", "audit", "--json").json
    place = ("audit", row["partition"], row["key"])
    assert contoso1("storage", "delete-row", *place, "--yes").code == 1
    assert contoso1("storage", "set-row", *place, "Actor=nobody").code == 1
    assert contoso1("storage", "row", *place, "--json").json == row


def test_items_are_put_moved_and_deleted_by_id(contoso1: Postroom) -> None:
    queue, other = "azuremailqueue", "azuremailimportqueue"
    assert contoso1("storage", "put-item", queue, "one").code == 0
    [item] = contoso1("storage", "peek", queue, "--json").json
    assert (item["body"], item["taken"]) == ("one", 0)
    moved = contoso1("storage", "move-item", queue, item["id"], other, "--json").json
    assert moved["body"] == "one"
    [item] = contoso1("storage", "peek", other, "--json").json
    assert contoso1("storage", "delete-item", other, item["id"]).code == 0
    assert contoso1("storage", "delete-item", other, item["id"]).code == 1
    assert contoso1("storage", "put-item", "nobody", "one").code == 1


def test_blobs_are_uploaded_replaced_on_request_and_deleted(
    contoso1: Postroom, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("first")
    assert contoso1("storage", "put-blob", "test/a", str(file)).code == 0
    assert contoso1("storage", "put-blob", "test/a", str(file)).code == 1
    file.write_text("second")
    assert contoso1("storage", "put-blob", "test/a", str(file), "--replace").code == 0
    assert contoso1("storage", "blob", "test/a", "--json").json["bytes"] == 6
    assert contoso1("storage", "put-blob", "bad/", str(file)).code == 1
    assert contoso1("storage", "delete-blob", "test/a", "--yes").code == 0
    assert contoso1("storage", "blob", "test/a").code == 1


def test_one_dead_letter_is_handled_by_its_id(contoso1: Postroom) -> None:
    for body in ("one", "two"):
        contoso1("storage", "put-item", "azuremaildeadletter", body)
    first, second = contoso1("storage", "dead-letters", "--json").json
    assert contoso1("storage", "dead-letters", first["id"], "--requeue").code == 1
    assert contoso1("storage", "dead-letters", first["id"], "--resend").code == 1
    assert contoso1("storage", "dead-letters", "--resend").code == 1
    assert contoso1("storage", "dead-letters", first["id"], "--clear").code == 0
    [left] = contoso1("storage", "dead-letters", "--json").json
    assert left["id"] == second["id"]
    assert left["at"].startswith("20")
