"""Signs of spam in sender, subject, words and foot: each has a mail that shows it and one that
nearly does; a normal newsletter has none."""

from __future__ import annotations

from time import process_time

import pytest

from postroom.domain.address import parse_address, parse_mailbox
from postroom.mail.merge import BadTemplate
from postroom.mail.mime import BODY_BYTES_MAX, MailParts, compile_mail
from postroom.mail.spam.finding import (
    FOUND_SHOWN_MAX,
    WEIGHTS,
    SpamFinding,
    SpamPlace,
    SpamSign,
    SpamWeight,
)
from postroom.mail.spam.signs import PHRASES, CheckedMail, spam_signs
from postroom.writing.layout import html_from_blocks
from postroom.writing.ready_made import READY_MADE, ready_made

POSTAL = "1 Campus Road\nContoso 12345"
LETTER = "<p>Dear reader, the library opens on Sundays from ten to four. Bring your card.</p>"
LONG = "The library opens on Sundays from ten to four, with coffee, but without the stacks. " * 4


def signs(
    html: str | None = LETTER,
    text: str | None = None,
    *,
    subject: str = "Opening hours",
    sender_domain: str = "contoso.edu",
    postal: str | None = POSTAL,
) -> list[SpamFinding]:
    mail = CheckedMail(
        subject=subject, sender_domain=sender_domain, html=html, text=text, postal=postal
    )
    return spam_signs(mail)


def test_a_normal_message_has_no_sign() -> None:
    assert signs() == []
    assert signs(None, "The library opens on Sundays: https://contoso.edu/library.") == []


@pytest.mark.parametrize("name", READY_MADE)
def test_the_ready_made_templates_have_no_sign(name: str) -> None:
    html = html_from_blocks(ready_made(name)).replace("https://example.org", "https://contoso.edu")
    assert signs(html, subject="New lecture series") == []


def test_every_sign_has_a_weight() -> None:
    assert set(WEIGHTS) == set(SpamSign)


def test_the_heaviest_sign_comes_first() -> None:
    html = '<a href="http://contoso.edu">x</a><iframe></iframe><form></form>'
    assert [each.weight for each in signs(html)] == [
        SpamWeight.HEAVY,
        SpamWeight.MEDIUM,
        SpamWeight.LIGHT,
    ]


def test_what_is_found_often_is_shown_a_few_times_and_clipped() -> None:
    links = "".join(f'<a href="http://contoso.edu/{at}{"x" * 200}">a</a>' for at in range(9))
    [found] = signs(links)
    assert len(found.found) == FOUND_SHOWN_MAX
    assert found.has_more
    assert all(len(place) <= 80 and place.endswith("…") for place in found.found)


def test_a_template_that_no_mail_can_be_made_of_is_refused() -> None:
    with pytest.raises(BadTemplate):
        signs("<p>Dear {{ name</p>")
    with pytest.raises(BadTemplate):
        signs("<b>" * 300)


# --- Sender and subject -----------------------------------------------------------------------


@pytest.mark.parametrize("domain", ["gmail.com", "yahoo.co.uk", "hotmail.fr", "outlook.com"])
def test_a_sender_at_a_free_mail_provider_is_found(domain: str) -> None:
    [found] = signs(sender_domain=domain)
    assert found == SpamFinding(SpamSign.FREE_MAIL_SENDER, SpamPlace.SENDER, (domain,))
    assert found.weight is SpamWeight.HEAVY


@pytest.mark.parametrize("domain", ["notgmail.com", "yahoo.contoso.edu", "gmail.com.contoso.edu"])
def test_a_sender_at_a_domain_of_their_own_is_not(domain: str) -> None:
    assert signs(sender_domain=domain) == []


@pytest.mark.parametrize(
    ("subject", "sign"),
    [
        ("OPEN ON SUNDAYS", SpamSign.SUBJECT_CAPITALS),
        ("ОТКРЫТО ПО ВОСКРЕСЕНЬЯМ", SpamSign.SUBJECT_CAPITALS),
        ("Open! On Sundays!", SpamSign.EXCLAMATIONS),
        ("开放！开放！", SpamSign.EXCLAMATIONS),
        ("Re: your card", SpamSign.FAKED_REPLY),
        ("FWD[2]: your card", SpamSign.FAKED_REPLY),
        ("AW: Ihre Karte", SpamSign.FAKED_REPLY),
        ("f r e e coffee and b.o.o.k.s", SpamSign.GAPPY),
        ("Dear *|FNAME|*", SpamSign.FOREIGN_FIELD),
        ("Dear {first_name}", SpamSign.FOREIGN_FIELD),
        ("Dear %%name%%", SpamSign.FOREIGN_FIELD),
        ("Dear name }}", SpamSign.FOREIGN_FIELD),
    ],
)
def test_a_subject_that_filters_know_is_found(subject: str, sign: SpamSign) -> None:
    [found] = signs(subject=subject)
    assert (found.sign, found.where) == (sign, SpamPlace.SUBJECT)


@pytest.mark.parametrize(
    "subject",
    [
        "NASA 2026",  # a name
        "THANKS",
        "周日开放",  # a script without capitals
        "{{ name }}, OPEN ON Sundays",
        "Open on Sundays!",
        "Recap: our year",
        "Re-opening: the library",
        "News of the U.S.A. and the E.U.",
        "A B C D E F: an index",  # the alphabet
        "金、木、水、火、土",
        'Dear {{ name | default("friend") }}',
        "100 % wool, 50% off",
    ],
)
def test_a_subject_that_nearly_is_one_is_not(subject: str) -> None:
    assert signs(subject=subject) == []


# --- Words ------------------------------------------------------------------------------------


def test_a_body_in_capitals_is_found() -> None:
    [found] = signs(f"<p>{LONG.upper()}</p>")
    assert (found.sign, found.where) == (SpamSign.CAPITALS, SpamPlace.HTML)
    assert [each.sign for each in signs(None, LONG.upper())] == [SpamSign.CAPITALS]


def test_a_heading_in_capitals_is_not() -> None:
    assert signs(f"<h1>THE LIBRARY OPENS ON SUNDAYS</h1><p>{LONG}</p>") == []


def test_words_with_gaps_are_found_in_the_body() -> None:
    [found] = signs(f"<p>{LONG} f-r-e-e c a s h</p>")
    assert (found.sign, found.found) == (SpamSign.GAPPY, ("f-r-e-e c a s h",))


@pytest.mark.parametrize(
    "row",
    [
        "".join(f"<td>{day}</td>" for day in "MTWTFSS"),
        "<td>A b c d e f g</td>",
        "<td>x, y, z, a, b, c</td>",
    ],
)
def test_cells_and_lists_of_single_letters_have_no_gaps(row: str) -> None:
    assert signs(f"{LETTER}<table><tr>{row}</tr></table>") == []


def test_many_phrases_of_advertising_are_found_together() -> None:
    text = "<p>Act now: RISK-FREE, no obligation, for a limited time.</p>"
    [found] = signs(text)
    assert found.sign is SpamSign.PHRASES
    assert set(found.found) == {"act now", "risk free", "no obligation", "limited time"}


def test_one_or_two_of_them_are_not() -> None:
    assert signs(f"{LETTER}<p>A free trial, for a limited time; factor nowhere.</p>") == []


def test_no_phrase_is_counted_twice() -> None:
    assert not [
        one for one in PHRASES for two in PHRASES if one != two and f" {one} " in f" {two} "
    ]


@pytest.mark.parametrize(
    "words", ["*|FNAME|*", "${name}", "{%FNAME%}", "[[name]]", "&lt;&lt;name&gt;&gt;", "%NAME%"]
)
def test_a_merge_field_of_another_program_is_found(words: str) -> None:
    [found] = signs(f"{LETTER}<p>Dear {words}</p>")
    assert found.sign is SpamSign.FOREIGN_FIELD
    [found] = signs(None, f"Dear *|FNAME|*, {LONG}")
    assert (found.where, found.found) == (SpamPlace.TEXT, ("*|FNAME|*",))


def test_our_own_conditions_are_not() -> None:
    condition = '{% if city == "Oslo" %}See you on Monday.{% else %}See you.{% endif %}'
    assert signs(f"{LETTER}<p>{condition}</p>") == []
    assert signs(None, f"{condition} {LONG}") == []


def test_our_own_fields_and_escaped_addresses_are_not() -> None:
    link = '<a href="https://contoso.edu/%E4%BD%A0%E5%A5%BD?a={{ email }}">{{ "{{" }}</a>'
    assert signs(f'{LETTER}<p>Dear {{{{ name | default("x") }}}}: {link}</p>') == []


# --- The text part ----------------------------------------------------------------------------


def test_a_text_part_that_says_something_else_is_found() -> None:
    html = "<p>" + " ".join(f"word{at}" for at in range(40)) + "</p>"
    [found] = signs(html, "Your program shows no HTML.")
    assert (found.sign, found.where) == (SpamSign.TEXT_DIFFERS, SpamPlace.TEXT)


def test_a_shorter_text_part_of_the_same_words_is_not() -> None:
    words = [f"word{at}" for at in range(40)]
    assert signs("<p>" + " ".join(words) + "</p>", " ".join(words[:15])) == []
    chinese = "图书馆星期日从十点到四点开放有阅览室和咖啡但没有书库请带上您的卡片欢迎来"
    assert signs(f"<p>{chinese}</p>", chinese[:20]) == []
    assert signs("<p>A short one</p>", "Nothing alike") == []


def test_long_lines_are_no_sign_because_they_are_folded_on_the_way() -> None:
    html, text = f"<p>{LONG * 20}</p>".replace("\n", " "), LONG * 20
    assert signs(html, text) == []
    sender = parse_mailbox("news@contoso.edu")
    compiled = compile_mail(MailParts(sender=sender, subject="Long", html=html, text=text))
    source = compiled.splice(
        parse_address("ada@contoso.edu"),
        {},
        message_id="<a@contoso.edu>",
        date="Mon, 2 Nov 2026 09:00:00 +0000",
        eight_bit=True,
    ).source
    assert max(map(len, source.split(b"\r\n"))) <= 998  # RFC 5322 2.1.1


# --- The foot ---------------------------------------------------------------------------------


def test_a_list_without_a_postal_address_is_found() -> None:
    [found] = signs(postal="")
    assert (found.sign, found.where) == (SpamSign.LIST_WITHOUT_ADDRESS, SpamPlace.LIST)
    assert signs(postal=None) == []  # the list is gone


def test_a_foot_of_ones_own_without_the_address_is_found() -> None:
    own = '<p><a href="{{ unsubscribe_url }}">Leave</a></p>'
    [found] = signs(LETTER + own)
    assert (found.sign, found.where) == (SpamSign.FOOT_WITHOUT_ADDRESS, SpamPlace.HTML)
    [found] = signs(None, "To leave: {{ unsubscribe_url }}")
    assert (found.sign, found.where) == (SpamSign.FOOT_WITHOUT_ADDRESS, SpamPlace.TEXT)


def test_a_foot_of_ones_own_with_the_address_is_not() -> None:
    own = '<p>1 Campus Road<br>Contoso, 12345 <a href="{{ unsubscribe_url }}">Leave</a></p>'
    assert signs(LETTER + own) == []


# --- Cost -------------------------------------------------------------------------------------


CPU_S_MAX = 2.0  # two checks of a tenth to half a second each, on a machine half as quick
LARGE = {
    "words": "<p>" + "a b words of a letter " * (BODY_BYTES_MAX // 22) + "</p>",
    "one word": "<p>" + "x" * BODY_BYTES_MAX,
    "braces": "<p>" + "{%" * (BODY_BYTES_MAX // 2),
    "percents": "<p>" + "%A" * (BODY_BYTES_MAX // 2),
    "blanks": "<p>" + " " * BODY_BYTES_MAX,
    "a label": '<a href="https://contoso.edu">' + "a." * (BODY_BYTES_MAX // 2),
    "styles": ('<p style="' + "color:#fff;" * 17 + '">some hidden words') * 9000,
    "a style": '<p style="' + "a:b;" * (BODY_BYTES_MAX // 4) + '">x',
    "links": ('<a href="http://раypal.com/' + "x" * 180 + '">www.contoso.edu/</a>') * 4900,
    "hidden": "<p>a</p>" + "<p hidden> b </p>" * 9000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_the_largest_body_takes_no_longer_than_a_page_may(name: str) -> None:
    before = process_time()
    signs(LARGE[name])
    signs(None, LARGE[name])
    assert process_time() - before < CPU_S_MAX
