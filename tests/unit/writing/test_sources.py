"""What people bring: MJML, styles, languages; and what is refused before it can do harm."""

from __future__ import annotations

import contextlib

import pytest

from postroom.domain.block import BadBlock, BlockDocument, HeadingBlock, document_of, parse_document
from postroom.domain.message import BodyKind
from postroom.mail.merge import BadTemplate
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
        ("hello", "begins with <mjml>"),
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
        ({"kind": "picture", "src": "file:///c/a.png"}, "Block 1 .Picture.: .*on the web"),
        ({"kind": "heading", "text": "a\nb"}, "one line"),
        ({"kind": "heading", "level": 7}, "between 1 and 3"),
        ({"kind": "text", "text": "x" * 20_001}, "over 20,000"),
        ({"kind": "button", "colour": "red"}, "not a color"),
        ({"kind": "columns", "columns": [[]]}, "two or three"),
        ({"kind": "columns", "columns": [[{"kind": "columns", "id": "b2"}], []]}, "not the blocks"),
        ({"kind": "carousel"}, "not the blocks"),
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
