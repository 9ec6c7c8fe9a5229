"""Addresses: which are accepted, which are the same, and how they are shown."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.address import (
    STORAGE_KEY_CHARS_MAX,
    Address,
    BadAddress,
    Mailbox,
    key_prefix,
    mask,
    parse_address,
    parse_mailbox,
)
from postroom.storage.validation import check_keys


@pytest.mark.parametrize(
    "text",
    [
        "student1@contoso.edu",
        "a@b.test",
        "first.last+tag@mail.contoso.edu",
        "o'brien@contoso.edu",
        "!#$%&'*+/=?^_`{|}~-@contoso.edu",
        "1@2.com",
        "a@r3---sn.contoso.edu",
        "x" * 64 + "@contoso.edu",
        "a@" + "x" * 63 + ".edu",
    ],
)
def test_a_plain_address_is_accepted_as_typed(text: str) -> None:
    assert parse_address(text).typed == text


def test_the_local_part_keeps_its_spelling_and_the_domain_is_lowered() -> None:
    address = parse_address("Student.One@Contoso.EDU")
    assert address == Address("Student.One@contoso.edu", "student.one@contoso.edu")
    assert (address.local, address.domain) == ("Student.One", "contoso.edu")


def test_capitals_do_not_change_the_identity_but_tags_and_dots_do() -> None:
    keys = [
        parse_address(text).key
        for text in ("Ann@contoso.edu", "ann@CONTOSO.edu", "ann+x@contoso.edu", "a.nn@contoso.edu")
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    "around", ["\xa0{}", "{}\u200b", " \t{}\r\n", "\ufeff{}", "\u2003{}\u3000"]
)
def test_blanks_around_an_address_are_trimmed(around: str) -> None:
    assert parse_address(around.format("ann@contoso.edu")).typed == "ann@contoso.edu"


def test_a_domain_is_the_same_as_unicode_and_as_a_label() -> None:
    unicode_spelling = parse_address("ann@Bücher.example")
    assert unicode_spelling.typed == "ann@xn--bcher-kva.example"
    assert unicode_spelling == parse_address("ann@xn--bcher-kva.example")
    assert unicode_spelling == parse_address("ann@bücher。example")
    assert not unicode_spelling.needs_utf8


def test_a_local_part_in_any_script_needs_utf8_and_is_composed() -> None:
    decomposed = parse_address("mu\u0308ller@contoso.edu")
    assert decomposed == parse_address("m\xfcller@contoso.edu")
    assert decomposed.needs_utf8
    assert parse_address("MÜLLER@contoso.edu").key == decomposed.key
    assert parse_address("用户@例子.example").typed == "用户@xn--fsqu00a.example"


def test_what_composes_to_ascii_is_judged_after_composing() -> None:
    kelvin = parse_address("\u212aay@contoso.edu")
    assert (kelvin.typed, kelvin.needs_utf8) == ("Kay@contoso.edu", False)
    with pytest.raises(BadAddress, match="not allowed in addresses"):
        parse_address("a\u037eb@contoso.edu")  # the Greek question mark composes to ";"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Enter an email address"),
        (" \u200b ", "Enter an email address"),
        ("contoso.edu", "no @"),
        ("ann@contoso.edu, bob@contoso.edu", "more than one @"),
        ("@contoso.edu", "nothing before the @"),
        ("ann@contoso", "no dot"),
        ("ann@", "no dot"),
        ("ann..b@contoso.edu", "misplaced dot"),
        (".ann@contoso.edu", "misplaced dot"),
        ("ann.@contoso.edu", "misplaced dot"),
        ('"ann b"@contoso.edu', "quotation marks or comments"),
        ("ann(work)@contoso.edu", "quotation marks or comments"),
        ("Ann <ann@contoso.edu>", "only the address"),
        ("ann b@contoso.edu", "space or an invisible"),
        ("ann\u200bb@contoso.edu", "space or an invisible"),
        ("ann\ue000@contoso.edu", "space or an invisible"),
        ("ann,b@contoso.edu", "not allowed in addresses"),
        ("ann@[192.0.2.1]", "IP address"),
        ("ann@192.0.2.1", "not a domain name"),
        ("ann@-contoso.edu", "not a domain name"),
        ("ann@contoso-.edu", "not a domain name"),
        ("ann@con_toso.edu", "not a domain name"),
        ("ann@contoso..edu", "not a domain name"),
        ("ann@contoso.edu.", "not a domain name"),
        ("ann@xn--a.example", "not a domain name"),
        ("ann@b\u2260c.example\u2028", "control character"),
        ("ann@" + "x" * 64 + ".edu", "not a domain name"),
        ("x" * 65 + "@contoso.edu", "64 bytes"),
        ("ü" * 33 + "@contoso.edu", "64 bytes"),
        ("anna@" + "x.".join(["y" * 60] * 4) + ".edu", "254 bytes"),
        ("a@" + "x.".join(["y" * 60] * 5) + ".edu", "255 bytes"),
        ("ann\x00@contoso.edu", "control character"),
        ("ann@contoso.edu\nBcc: x@y.example", "control character"),
        ("ann\ud800@contoso.edu", "control character"),
        ("\u1fb7" * 21 + "@" + ("y" * 60 + ".") * 3 + "ex", "too long in this script"),
    ],
)
def test_an_invalid_address_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadAddress, match=sentence):
        parse_address(text)


@settings(max_examples=300)
@given(st.text(max_size=40), st.sampled_from(["contoso.edu", "bücher.example", "例子.example"]))
def test_an_accepted_address_is_stable_and_storable(local: str, domain: str) -> None:
    try:
        address = parse_address(f"{local}@{domain}")
    except BadAddress:
        return
    assert parse_address(address.typed) == address
    assert len(address.typed.encode()) <= 254
    assert len(address.storage_key) <= STORAGE_KEY_CHARS_MAX
    check_keys(address.storage_key)


_storable_locals = st.text("aZ~/#?ü✓0f-", min_size=1, max_size=8)


@settings(max_examples=300)
@given(_storable_locals, _storable_locals)
def test_two_identities_never_share_a_storage_key(one: str, other: str) -> None:
    first, second = parse_address(f"{one}@contoso.edu"), parse_address(f"{other}@contoso.edu")
    assert (first.key == second.key) == (first.storage_key == second.storage_key)


def test_the_storage_key_is_the_key_but_for_what_storage_cannot_hold() -> None:
    assert parse_address("Ann+x@contoso.edu").storage_key == "ann+x@contoso.edu"
    assert parse_address("a/b~ü@contoso.edu").storage_key == "a~2fb~7e~c3~bc@contoso.edu"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("student1@contoso.edu", "s•••••1@contoso.edu"),
        ("anna@contoso.edu", "a•••••a@contoso.edu"),
        ("ann@contoso.edu", "a•••••@contoso.edu"),
        ("a@contoso.edu", "•••••@contoso.edu"),
    ],
)
def test_a_masked_address_shows_its_ends_only(text: str, shown: str) -> None:
    assert mask(parse_address(text)) == shown


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("History Department <news@contoso.edu>", "History Department"),
        ('"Dept., History" <news@contoso.edu>', "Dept., History"),
        (r'"The \"Dept\"" <news@contoso.edu>', 'The "Dept"'),
        ('"a <b>" <news@contoso.edu>', "a <b>"),
        ("Größe <news@contoso.edu>", "Größe"),
        ("<news@contoso.edu>", ""),
        (" news@contoso.edu ", ""),
    ],
)
def test_a_mailbox_has_a_name_and_an_address(text: str, name: str) -> None:
    assert parse_mailbox(text) == Mailbox(name, parse_address("news@contoso.edu"))


@pytest.mark.parametrize(
    "text",
    [
        "A <a@contoso.edu>, B <b@contoso.edu>",
        "A <a@contoso.edu",
        "A <a@contoso.edu> B",
        "A <>",
        "A\nBcc: x <a@contoso.edu>",
        "x" * 201 + " <a@contoso.edu>",
    ],
)
def test_a_text_that_is_no_single_mailbox_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_mailbox(text)


# --- Capitals -------------------------------------------------------------------------------------


def spelled_differently() -> list[str]:
    """Letters whose capital spelling has another key."""
    found: list[str] = []
    for number in range(sys.maxunicode + 1):
        letter = chr(number)
        capital = letter.upper()
        if capital == letter or unicodedata.normalize("NFC", letter) != letter:
            continue
        try:
            one = parse_address(f"{letter}x@contoso.edu")
            other = parse_address(f"{capital}x@contoso.edu")
        except BadAddress:
            continue
        if one.key != other.key and capital.casefold() == letter.casefold():
            found.append(letter)
    return found


def test_a_capital_letter_does_not_change_the_identity() -> None:
    assert spelled_differently() == []


def test_greek_with_two_marks_is_one_address_and_found_by_its_beginning() -> None:
    small, capital = "ΐ@contoso.edu", "Ϊ́@contoso.edu"
    assert parse_address(small).key == parse_address(capital).key
    assert parse_address(small).storage_key.startswith(key_prefix("Ϊ́"))
