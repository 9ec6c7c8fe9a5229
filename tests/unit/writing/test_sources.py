"""What people bring: MJML, styles, languages; and what is refused before it can do harm."""

from __future__ import annotations

import contextlib

import pytest

from postroom.domain.block import (
    BadBlock,
    BlockDocument,
    HeadingBlock,
    document_of,
    kind_of,
    parse_document,
)
from postroom.domain.message import BodyKind
from postroom.domain.theme import Theme
from postroom.mail.merge import BadTemplate
from postroom.writing.body_blocks import blocks_from
from postroom.writing.layout import html_from_blocks, mjml_from_blocks
from postroom.writing.mjml import LAYOUT_TAGS_MAX, TAGS_MAX, html_from_mjml
from postroom.writing.ready_made import READY_MADE, ready_made
from postroom.writing.sources import BodySource, html_from_source, with_inline_styles

MJML = "<mjml><mj-body><mj-section><mj-column>{}</mj-column></mj-section></mj-body></mjml>"


def mjml(content: str) -> str:
    return html_from_mjml(MJML.format(content))


def test_fields_and_conditions_survive_mjml() -> None:
    made = mjml(
        '<mj-text>{{ name | default("x") }} & {% if a < 3 %}y{% endif %}</mj-text>'
        '<mj-button href="https://a/{{ id }}">Go</mj-button>'
    )
    assert "{{ name | default(&quot;x&quot;) }} &amp; {% if a < 3 %}y{% endif %}" in made
    assert 'href="https://a/{{ id }}"' in made
    assert "[if mso" in made


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("hello", "must begin with <mjml>"),
        (MJML.format('<mj-include path="/etc/passwd" />'), "mj-include"),
        (MJML.format("<mj-text>x"), "end tag"),
        ("<mjml><mj-body>" + "<mj-wrapper>" * (LAYOUT_TAGS_MAX + 1), "tags"),
        ("<mjml><mj-body>" + "<p>" * (TAGS_MAX + 1), "tags"),
        ("<mjml>" + "x" * 300_000, "characters"),
    ],
)
def test_mjml_that_cannot_be_read_is_refused_with_a_sentence(source: str, why: str) -> None:
    with pytest.raises(BadTemplate, match=why):
        html_from_mjml(source)


@pytest.mark.parametrize("tag", ["mj-wrapper", "mj-hero", "mj-section", "mj-column"])
def test_the_deepest_mjml_that_is_allowed_does_not_overflow_the_stack(tag: str) -> None:
    depth = LAYOUT_TAGS_MAX - 2
    inner = "<div>" * (TAGS_MAX - depth - 10) + "</div>" * (TAGS_MAX - depth - 10)
    nested = f"<{tag}>" * depth + inner + f"</{tag}>" * depth
    with contextlib.suppress(BadTemplate):  # refused is fine as well; the process still runs
        html_from_mjml(f"<mjml><mj-body>{nested}</mj-body></mjml>")


def test_styles_are_inlined_without_reading_files_or_the_network() -> None:
    source = (
        '<link rel="stylesheet" href="file:///etc/passwd">'
        "<style>p { color: red } @media (max-width: 600px) { p { color: blue } }</style>"
        "<!--[if mso]><p>Outlook</p><![endif]--><p>{{ name | default('x') }}</p>"
    )
    made = with_inline_styles(source)
    assert '<p style="color: red;">' in made
    assert "@media (max-width: 600px) { p { color: blue !important } }" in " ".join(made.split())
    assert "<!--[if mso]><p>Outlook</p><![endif]-->" in made
    assert "root:" not in made


@pytest.mark.parametrize("kind", [BodyKind.MARKDOWN, BodyKind.MJML, BodyKind.BLOCKS])
def test_a_body_has_the_language_and_direction_of_its_message(kind: BodyKind) -> None:
    text = {
        BodyKind.MARKDOWN: "x",
        BodyKind.MJML: MJML.format("<mj-text>x</mj-text>"),
        BodyKind.BLOCKS: '{"blocks":[{"kind":"text","id":"b1","text":"x"}]}',
    }[kind]
    made = html_from_source(BodySource(kind, text), "ar-EG")
    assert '<html lang="ar-EG" dir="rtl"' in made


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ({"kind": "button", "href": "javascript:alert(1)"}, "Block 1 .Button.: .*not a link"),
        ({"kind": "button", "href": '{{ "javascript:x" }}'}, "not a link"),
        ({"kind": "button", "href": "contoso.edu/a?b"}, "Enter https://contoso.edu/a.b"),
        ({"kind": "button", "href": "news@contoso.edu"}, "Enter mailto:news@contoso.edu"),
        ({"kind": "picture", "src": "file:///c/a.png"}, "Block 1 .Picture.: .*on the web"),
        ({"kind": "heading", "text": "a\nb"}, "one line"),
        ({"kind": "heading", "level": 7}, "between 1 and 3"),
        ({"kind": "text", "text": "x" * 20_001}, "over 20,000"),
        ({"kind": "button", "colour": "red"}, "not a color"),
        ({"kind": "columns", "columns": [[]]}, "two or three"),
        ({"kind": "columns", "columns": [[{"kind": "columns", "id": "b2"}], []]}, "Invalid value"),
        ({"kind": "carousel"}, "blocks.0..kind: Invalid value"),
    ],
)
def test_a_block_that_cannot_be_used_is_named(block: dict[str, object], why: str) -> None:
    with pytest.raises(BadBlock, match=why):
        document_of({"blocks": [{"id": "b1", **block}]})


def test_a_field_that_is_never_closed_names_its_block() -> None:
    document = BlockDocument(blocks=[HeadingBlock(id="b1", text="Dear {{ name")])
    with pytest.raises(BadBlock, match=r"Block 1 .Heading.: .*never closed"):
        html_from_blocks(document)


def test_documents_have_limits() -> None:
    many = [{"kind": "space", "id": f"b{number}"} for number in range(61)]
    with pytest.raises(BadBlock, match="more than 60"):
        document_of({"blocks": many})
    with pytest.raises(BadBlock, match="different"):
        document_of({"blocks": [{"kind": "space", "id": "b1"}] * 2})
    with pytest.raises(BadBlock, match="KiB"):
        parse_document(b" " * 600_000)


@pytest.mark.parametrize("name", READY_MADE)
def test_a_ready_made_template_is_small_and_loads_nothing_from_elsewhere(name: str) -> None:
    made = html_from_blocks(ready_made(name))
    assert len(made.encode()) <= 60_000
    assert "fonts.googleapis" not in made
    assert "<img" not in made
    assert "[if mso" in made
    assert "prefers-color-scheme: dark" in made
    assert max(map(len, made.split("\n"))) < 400  # sent as they are, without encoding
    assert mjml_from_blocks(ready_made(name)).startswith("<mjml>")


def test_markdown_becomes_blocks_that_say_the_same() -> None:
    text = "# One #\n\nText\n---\n\n```\n# code\n```\n\n---\n## Two\nmore\n\n* * *"
    found = blocks_from(BodyKind.MARKDOWN, text).blocks
    assert [kind_of(block) for block in found] == ["heading", "text", "divider", "heading", "text"]
    assert [getattr(block, "text", "") for block in found] == [
        "One",
        "Text\n---\n\n```\n# code\n```",
        "",
        "Two",
        "more\n\n* * *",
    ]


def test_a_footer_with_its_own_unsubscribe_link_is_the_only_one() -> None:
    def made(footer: str) -> str:
        theme = Theme(footer=footer)
        return html_from_blocks(
            BlockDocument(blocks=[HeadingBlock(id="b1", text="x")], theme=theme)
        )

    plain = made("Our footer")
    assert "You are receiving this" in plain
    own = made("[Abmelden]({{ unsubscribe_url }})")
    assert "You are receiving this" not in own
    assert own.count("{{ unsubscribe_url }}") == 1
    assert "{{ postal_address }}" in own
    both = made("[Abmelden]({{ unsubscribe_url }}), {{ postal_address }}")
    assert both.count("{{ postal_address }}") == 1
    assert "You are receiving this" in made("{{ unsubscribe_url }}")  # no link, only its address


def test_styles_that_every_tag_would_get_are_refused_before_they_fill_the_memory() -> None:
    body = '<style>br{color:"' + "x" * 60_000 + '"}</style>' + "<br>" * 9000  # 540 MB
    with pytest.raises(BadTemplate, match="too many styles"):
        with_inline_styles(body)


@pytest.mark.parametrize("end", ["</style>", "</STYLE >", ""])
def test_styles_are_measured_however_they_end(end: str) -> None:
    body = "<br>" * 5000 + "<style>br{--a:" + "x" * 10_000 + "}" + end
    with pytest.raises(BadTemplate, match="too many styles"):
        with_inline_styles(body)


def test_many_styles_of_an_ordinary_email_are_still_inlined() -> None:
    rules = "".join(
        f".c{n}{{color:red;padding:{n}px;font-family:Arial,sans-serif}}" for n in range(400)
    )
    body = f"<style>{rules}</style>" + '<p class="c7">x</p>' * 800
    assert 'style="color: red;padding: 7px' in with_inline_styles(body)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ('<mj-attributes><mj-all font-family="{long}"/></mj-attributes>', "<mj-text>a</mj-text>"),
        (
            "",
            '<mj-social align=">" font-family="{long}">'
            '<mj-social-element name="facebook">a</mj-social-element></mj-social>',
        ),
    ],
)
def test_attributes_that_many_tags_share_are_short(head: str, body: str) -> None:
    content = f"<mjml><mj-head>{head}</mj-head>{MJML.format(body)[6:]}"
    html_from_mjml(content.replace("{long}", "x" * 100))
    with pytest.raises(BadTemplate, match="shared by many tags"):
        html_from_mjml(content.replace("{long}", "x" * 9000))


def test_a_field_that_every_tag_gets_does_not_fill_the_memory() -> None:
    field = '{{ a | default("' + "x" * 250 + '") }}'
    shared = f'<mj-attributes><mj-all font-family="{field * 100}"/></mj-attributes>'
    body = MJML.format("<mj-button>a</mj-button>" * 700)[6:]
    with pytest.raises(BadTemplate, match="larger than 2 MB"):
        html_from_mjml(f"<mjml><mj-head>{shared}</mj-head>{body}")
