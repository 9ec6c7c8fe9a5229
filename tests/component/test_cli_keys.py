"""`postroom key …`: the key is shown once, then only its id."""

from __future__ import annotations

from tests.component.typed import Postroom


def test_a_key_is_shown_when_it_is_made_and_never_again(contoso1: Postroom) -> None:
    made = contoso1("key", "create", "portal", "--list", "contoso1", "--json").json
    assert made["key"].startswith("prk_")
    shown = contoso1("key", "all", "--json").json
    assert shown == [{name: value for name, value in made.items() if name != "key"}]
    everything = contoso1("key", "all").out + contoso1("storage", "rows", "service").out
    assert made["id"] in everything
    assert made["key"].removeprefix("prk_") not in everything


def test_a_person_is_told_what_the_key_is_for(contoso1: Postroom) -> None:
    told, key = contoso1("key", "create", "portal").out.splitlines()
    assert "(portal) is for every list" in told
    assert key.startswith("prk_")
    assert "portal" in contoso1("key", "all").out
    assert "never used" in contoso1("key", "all").out


def test_a_key_may_be_for_several_lists(contoso1: Postroom) -> None:
    contoso1("list", "create", "contoso2", "--from", "news@contoso.edu")
    options = ("--list", "contoso1", "--list", "contoso2", "--list", "contoso1")
    assert contoso1("key", "create", "shop", *options, "--json").json["lists"] == [
        "contoso1",
        "contoso2",
    ]


def test_a_key_has_the_rights_that_were_named(contoso1: Postroom) -> None:
    assert contoso1("key", "create", "portal", "--json").json["rights"] == ["subscribe"]
    options = ("--right", "write", "--right", "subscribe", "--right", "write")
    made = contoso1("key", "create", "program", *options, "--json").json
    assert made["rights"] == ["subscribe", "write"]
    assert "subscribe and write" in contoso1("key", "all").out
    assert contoso1("key", "create", "portal", "--right", "rule").code == 2


def test_a_key_for_a_list_that_is_not_there_is_not_made(contoso1: Postroom) -> None:
    refused = contoso1("key", "create", "portal", "--list", "contoso9")
    assert (refused.code, refused.out) == (1, "")
    assert "no list contoso9" in refused.err
    assert contoso1("key", "all", "--json").json == []


def test_a_revoked_key_is_gone(contoso1: Postroom) -> None:
    id_ = contoso1("key", "create", "portal", "--json").json["id"]
    assert contoso1("key", "revoke", id_, "--json").json == {"id": id_, "name": "portal"}
    assert contoso1("key", "all", "--json").json == []
    assert "no access keys yet" in contoso1("key", "all").err


def test_an_unknown_id_is_refused_with_a_sentence(contoso1: Postroom) -> None:
    refused = contoso1("key", "revoke", "00000000")
    assert (refused.code, refused.out) == (1, "")
    assert "There is no access key 00000000" in refused.err
