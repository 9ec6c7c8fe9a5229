"""`postroom list create --public-form`: told when made, shown afterwards, off unless asked for."""

from __future__ import annotations

from tests.component.typed import Postroom

MADE = ("--from", "news@contoso.edu", "--json")


def test_a_list_has_a_form_if_it_is_made_with_one(postroom: Postroom) -> None:
    assert postroom("list", "create", "contoso1", *MADE, "--public-form").json["public_form"]
    assert postroom("list", "show", "contoso1", "--json").json["public_form"]


def test_a_list_has_no_form_unless_somebody_asks_for_it(postroom: Postroom) -> None:
    assert not postroom("list", "create", "contoso1", *MADE).json["public_form"]
    assert not postroom("list", "create", "contoso2", *MADE, "--no-public-form").json["public_form"]
