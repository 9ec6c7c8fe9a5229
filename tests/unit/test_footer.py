"""The foot of a message: there unless its writer has placed the link, and harmless."""

from __future__ import annotations

import pytest

from postroom.domain.address import parse_address, parse_mailbox
from postroom.mail.footer import with_footer
from postroom.mail.mime import MailParts, compile_mail

PLACE = {"list_title": "History", "postal": "1 Campus Way"}


def test_both_parts_get_the_link_and_the_postal_address() -> None:
    html, text = with_footer("<p>Hi</p>", "Hi", **PLACE)
    for part in (html, text):
        assert part is not None
        assert "{{ unsubscribe_url }}" in part
        assert "History" in part
        assert "1 Campus Way" in part


def test_a_part_that_is_not_there_stays_away() -> None:
    assert with_footer(None, "Hi", **PLACE)[0] is None
    assert with_footer("<p>Hi</p>", None, **PLACE)[1] is None


def test_the_foot_stands_inside_the_body_at_its_end() -> None:
    html, _ = with_footer("<html><body><p>Hi</p></BODY ></html>", None, **PLACE)
    assert html is not None
    assert html.index("<p>Hi</p>") < html.index("unsubscribe_url") < html.index("</BODY >")


def test_only_the_last_end_of_a_body_counts() -> None:
    quoted = "<body><pre></body></pre><p>Hi</p></body>"
    html, _ = with_footer(quoted, None, **PLACE)
    assert html is not None
    assert html.index("<p>Hi</p>") < html.index("unsubscribe_url")


@pytest.mark.parametrize("comment", ["<!-- </body> -->", "<!-- </body>"])
def test_the_end_of_a_body_in_a_comment_is_none(comment: str) -> None:
    html, _ = with_footer(f"<body><p>Hi</p></body>{comment}", None, **PLACE)
    assert html is not None
    assert html.index("unsubscribe_url") < html.index("</body><!--")


@pytest.mark.parametrize(
    "link", ["{{ unsubscribe_url }}", "{{unsubscribe_url}}", '{{ unsubscribe_url | default("x") }}']
)
def test_a_writer_who_placed_the_link_gets_no_second_one(link: str) -> None:
    assert with_footer(f"<a href='{link}'>x</a>", f"x {link}", **PLACE) == (
        f"<a href='{link}'>x</a>",
        f"x {link}",
    )


def test_each_part_is_checked_separately() -> None:
    html, text = with_footer("<p>{{ unsubscribe_url }}</p>", "Hi", **PLACE)
    assert html == "<p>{{ unsubscribe_url }}</p>"
    assert text is not None
    assert "{{ unsubscribe_url }}" in text


def test_the_text_foot_begins_with_a_signature_separator() -> None:
    _, text = with_footer(None, "Hi\n\n\n", **PLACE)
    assert text is not None
    assert text.startswith("Hi\n\n-- \n")  # RFC 3676 4.3: clients fold it away


def test_titles_and_addresses_are_never_markup_nor_merge_fields() -> None:
    title = '<b>A</b> & "B" {{ email }}'
    html, text = with_footer("<p>Hi</p>", "Hi", list_title=title, postal="{{ 1 + 1 }} {")
    parts = MailParts(
        sender=parse_mailbox("donotreply@contoso.edu"), subject="News", html=html, text=text
    )
    compiled = compile_mail(parts)
    assert compiled.fields == {"unsubscribe_url"}
    mail = compiled.splice(
        parse_address("ada@contoso.edu"),
        {},
        message_id="<1@contoso.edu>",
        date="Sun, 15 Nov 2026 09:00:00 +0000",
        unsubscribe_url="https://post.contoso.edu/u/contoso1/1",
        eight_bit=True,
    ).source.decode()
    assert '<b>A</b> & "B" {{ email }}' in mail  # in the text part, as it is
    assert "&lt;b&gt;A&lt;/b&gt; &amp; &quot;B&quot; {{ email }}" in mail
    assert "{{ 1 + 1 }} {" in mail


def test_a_list_without_a_postal_address_has_no_empty_line_for_it() -> None:
    html, text = with_footer("<p>Hi</p>", "Hi", list_title="History", postal="")
    assert html is not None
    assert text is not None
    assert "<br>" not in html
    assert text.endswith("{{ unsubscribe_url }}\n")
