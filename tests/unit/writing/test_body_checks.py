"""What the checks find in a body by line, and that a repair mends just that."""

from __future__ import annotations

import pytest

from postroom.domain.block import (
    Article,
    ArticlesBlock,
    BlockDocument,
    ButtonBlock,
    TextBlock,
)
from postroom.domain.errors import BadInput
from postroom.domain.message import BodyKind
from postroom.mail.mime import check_template
from postroom.writing.block_checks import check_blocks, fixed
from postroom.writing.body_checks import check_typed, repaired
from postroom.writing.sources import BodySource, html_from_source

MJML = "<mjml><mj-body><mj-section><mj-column>{}</mj-column></mj-section></mj-body></mjml>"


def checked(kind: BodyKind, typed: str) -> list[tuple[int, str, str]]:
    finished = typed if kind is BodyKind.HTML else html_from_source(BodySource(kind, typed))
    found = check_typed(kind, typed, finished, ["name", "first name"])
    return [(each.line, str(each.sentence), each.fix) for each in found]


@pytest.mark.parametrize(
    ("typed", "words", "mended"),
    [
        (
            '<p>\n<img src="https://x.example/a.png">',
            "alt text",
            '<p>\n<img alt="" src="https://x.example/a.png">',
        ),
        (
            "<p>\n<IMG title='alt text' src=x>",
            "alt text",
            "<p>\n<IMG alt=\"\" title='alt text' src=x>",
        ),
        ('<p>\n<table width="900">', "900 pixels", '<p>\n<table width="600">'),
        ("<p>\n<p style='min-width: 1200px'>", "1200 pixels", "<p>\n<p style='min-width: 600px'>"),
        ("<p>\nHello {name}}", "two braces", "<p>\nHello {{ name }}"),
        ("<p>\nHello {{ name }", "two braces", "<p>\nHello {{ name }}"),
        ("<p>\nHello { name }", "two braces", "<p>\nHello {{ name }}"),
        ("<p>\nHello {\xa0first name }", "two braces", "<p>\nHello {{ first name }}"),
        (
            '<p>\n<p style="color: #CCC; background:#fff">pale</p>',
            "hard to read: #cccccc on #ffffff",
            '<p>\n<p style="color: #707070; background:#fff">pale</p>',
        ),
        (
            '<div style="background-color:#000000">\n<font color="#333333">dark</font></div>',
            "hard to read: #333333 on #000000",
            None,
        ),
    ],
)
def test_a_line_of_html_is_named_and_mended(typed: str, words: str, mended: str | None) -> None:
    if "name }" in typed and "{{" in typed:
        found = [
            (each.line, str(each.sentence), each.fix)
            for each in check_typed(BodyKind.MARKDOWN, typed, "", ["name"])
        ]
    else:
        found = checked(BodyKind.HTML, typed)
    [(line, sentence, fix)] = found
    assert line == 2
    assert sentence.startswith("Line 2: ")
    assert words in sentence
    after = repaired(typed, fix)
    if mended is not None:
        assert after == mended
    assert checked(BodyKind.HTML, after) == []
    with pytest.raises(BadInput):
        repaired(after, fix)


def test_links_to_ones_own_network_are_named_by_line() -> None:
    typed = '<p>\n\n<a href="http://localhost:8000/x">x</a><a href="https://contoso.edu">y</a>'
    [(line, sentence, fix)] = checked(BodyKind.HTML, typed)
    assert (line, fix) == (3, "")
    assert "http://localhost:8000/x works only" in sentence


def test_mjml_is_checked_as_it_was_typed() -> None:
    typed = MJML.format(
        '\n<mj-image src="https://contoso.edu/a.png" />\n<mj-text color="#eeeeee">pale</mj-text>'
    )
    found = checked(BodyKind.MJML, typed)
    assert [line for line, _sentence, _fix in found] == [2, 3]
    for _line, _sentence, fix in found:
        typed = repaired(typed, fix)
    assert checked(BodyKind.MJML, typed) == []


@pytest.mark.parametrize(
    "typed",
    [
        "<style>a{color:red}}</style><p>x",
        "<p>{ color } { 5 }",
        "<p>{{ name }} {{ name | default('x') }}",
        "<p style='display:none;color:#fff'>hidden</p>",
        "<p style='color:#fff'>as white as the page, which is a sign of spam</p>",
        '<p style="max-width:900px">x</p><img alt src=x width="100%">',
        "<p style='font-size:30px;color:#888'>large</p>",
        "<p class=a>who knows</p><style>.a{background:#000}</style>",
    ],
)
def test_what_is_fine_is_not_named(typed: str) -> None:
    assert checked(BodyKind.HTML, typed) == []


@pytest.mark.parametrize(
    "operation", ["fix:body", "fix:body:alt:x", "fix:body:colour:a:b", "fix:x"]
)
def test_a_repair_that_is_not_known_is_refused(operation: str) -> None:
    with pytest.raises(BadInput):
        repaired("<p>x</p>", operation)


def test_broken_fields_in_blocks_are_mended() -> None:
    document = BlockDocument(blocks=[TextBlock(id="b1", text="Dear {name}}, in {city}}")])
    found = check_blocks(document)
    assert [each.block_id for each in found] == ["b1", "b1"]
    after = fixed(document, found[0].fix)
    assert after.blocks == [TextBlock(id="b1", text="Dear {{ name }}, in {{ city }}")]


def test_links_in_blocks_lead_somewhere() -> None:
    articles = [Article(title="A", href="https://example.org/1", text="[b](http://localhost/2)")]
    document = BlockDocument(
        blocks=[
            ButtonBlock(id="b1", text="Go", href="https://www.example.com"),
            TextBlock(id="b2", text="See [this](https://example.net/a), https://contoso.edu"),
            ArticlesBlock(id="b3", articles=articles),
            ButtonBlock(id="b4", text="Go", href="https://contoso.edu/example.org"),
            ButtonBlock(id="b5", text="Go", href="https://[example.org"),
        ]
    )
    found = [(each.block_id, str(each.sentence)) for each in check_blocks(document)]
    assert [(block_id, words.partition(":")[0]) for block_id, words in found] == [
        ("b1", "This block still has sample links"),
        ("b2", "This block still has sample links"),
        ("b3", "http"),  # //localhost/2 works only on your own computer or network.
        ("b3", "This block still has sample links"),
    ]


@pytest.mark.parametrize(
    "field",
    [
        "{{&nbsp;name&nbsp;}}",
        "{{ first&nbsp;name }}",
        "{{ \u200bname }}",
        "{% if&nbsp;city&nbsp;==&nbsp;&quot;x&quot;&nbsp;%}a{% endif %}",
        "{{ name&nbsp;|&nbsp;default(&quot;x&quot;) }}",
    ],
)
def test_unseen_signs_within_braces_do_no_harm(field: str) -> None:
    check_template(f"<p>{field}</p>", is_html=True)


@pytest.mark.slow
def test_long_hostile_bodies_are_read_in_no_time() -> None:
    """Each pattern reads a body once; a slow one would take hours here."""
    for piece in ("<style", "<img ", "{name", 'href="', "color:#", "width:", "<img alt='"):
        check_typed(BodyKind.HTML, piece * (500_000 // len(piece)), "", ["name"])


def test_spaces_before_a_colour_take_no_longer_than_other_characters() -> None:
    body = '<p style="background:#fff;color:#eee">a</p><p title="color:' + " " * 200_000 + '">'
    assert repaired(body, "fix:body:colour:#eeeeee:#ffffff") != body
