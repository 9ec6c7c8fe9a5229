"""Work items: they are read as they were written, and nothing else is accepted."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.address import parse_address
from postroom.domain.token import new_guid
from postroom.domain.work_item import (
    BadItem,
    BatchItem,
    ConfirmItem,
    RecipientItem,
    TrialItem,
    is_trial_item,
    parse_confirm_item,
    parse_mail_item,
    parse_trial_item,
)

ITEM = BatchItem("2026-11-15", "639303300000000000", "student1@contoso.edu", False, 7)


def test_an_item_is_the_samples_four_fields_and_the_batch() -> None:
    assert ITEM.body() == "2026-11-15,639303300000000000,student1@contoso.edu,0,7"


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("address", ["student1@contoso.edu", "o'hara+a@x.de", "jürgen@contoso.edu"])
def test_an_item_is_read_as_it_was_put(restart: bool, address: str) -> None:
    item = BatchItem("2026-11-15", "1", parse_address(address).storage_key, restart, 0)
    assert parse_mail_item(item.body()) == item


def test_an_item_without_a_batch_names_one_recipient() -> None:
    item = parse_mail_item("2012-10-15,634852858215726983,Student1@Contoso.edu,1")
    key = parse_address("student1@contoso.edu").storage_key
    assert item == RecipientItem("2012-10-15", "634852858215726983", key, True)


def test_a_bare_guid_is_an_item_for_any_list() -> None:
    guid = "6f32b03b90ed41a9b8acc1310c67b66a"
    for spelling in (guid, guid.upper(), str(UUID(guid))):
        assert parse_confirm_item(spelling) == ConfirmItem(guid, "")


def test_a_confirmation_item_is_read_as_it_was_put() -> None:
    item = ConfirmItem(new_guid(), "contoso1")
    assert parse_confirm_item(item.body()) == item


@pytest.mark.parametrize(
    "body",
    [
        "",
        "nonsense",
        "2026-11-15,1,a@b.de",
        "2026-11-15,1,nobody,0",
        "2026-11-15,ref,a@b.de,0",
        "2026-11-15,1,a@b.de,2",
        "2026-11-15,1,a@b.de,0,1,2",
        "2026-11-15,ref,a@b.de,0,1",
        "2026-11-15,1,a@b.de,2,1",
        "2026-11-15,1,a@b.de,0,-1",
        "2026-11-15,1,a@b.de,0,²",  # a digit to Unicode, not to us
        "2026-11-15,²,a@b.de,0,1",
        "2026-11-15,1,a@b.de,0," + "9" * 5000,
    ],
)
def test_a_bad_mail_item_is_refused(body: str) -> None:
    with pytest.raises(BadItem):
        parse_mail_item(body)


@pytest.mark.parametrize(
    "body", ["", ",", "guid", "guid,", ",contoso1", "a,b,c", "a/b,contoso1", "0f,näme", "0f,a#b"]
)
def test_a_bad_confirmation_item_is_refused(body: str) -> None:
    with pytest.raises(BadItem):
        parse_confirm_item(body)


def test_a_trial_item_says_which_message_and_for_whom() -> None:
    item = TrialItem("634852858215726983", "0f3a", "student1~2b@contoso.edu")
    assert is_trial_item(item.body())
    assert parse_trial_item(item.body()) == item


@pytest.mark.parametrize(
    "body",
    ["test", "test,1,0f", "test,ref,0f,a@b.de", "test,1,0-f,a@b.de", "test,1,0f,a/b", "0f,list"],
)
def test_a_bad_trial_item_is_refused(body: str) -> None:
    with pytest.raises(BadItem):
        parse_trial_item(body)


@given(st.text())
def test_no_text_at_all_breaks_the_reader(body: str) -> None:
    for parse in (parse_mail_item, parse_confirm_item, parse_trial_item):
        try:
            parse(body)
        except BadItem:
            continue
