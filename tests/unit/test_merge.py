"""Merge fields: what templates may contain, and that no value can change what is around it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from postroom.mail.escape_context import EscapeContext
from postroom.mail.merge import (
    FIELDS_MAX,
    VALUE_CHARS_MAX,
    BadTemplate,
    Field,
    compile_header,
    compile_html,
    compile_text,
    escape_braces,
    fill,
    parse,
)


def placed(template: str) -> list[EscapeContext]:
    return [part.context for part in compile_html(template) if isinstance(part, Field)]


@pytest.mark.parametrize(
    ("template", "segments"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("Dear {{ name }},", ["Dear ", Field("name"), ","]),
        ("{{name}}{{ email }}", [Field("name"), Field("email")]),
        ('{{ name | default("friend") }}', [Field("name", "friend")]),
        ("{{ name|default('my friend') }}", [Field("name", "my friend")]),
        ("{{ First  Name }}", [Field("First Name")]),
        ("{{\n name\n}}", [Field("name")]),
        ("{{ prénom }} {{ shoe-size }} {{ a.b }}", None),
        ('{{ "{{" }} name }}', ["{{ name }}"]),
        ("{{ '{' }}{{ name }}", ["{", Field("name")]),
        (r"C:\dir\{{ name }} {x} }}", ["C:\\dir\\", Field("name"), " {x} }}"]),
        ('{{ "" }}', []),
    ],
)
def test_a_template_is_literals_and_fields(
    template: str, segments: list[str | Field] | None
) -> None:
    parsed = parse(template)
    if segments is None:
        assert [part.name for part in parsed if isinstance(part, Field)] == [
            *("prénom", "shoe-size", "a.b")
        ]
    else:
        assert parsed == segments


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("one\ntwo {{ name | upper }}", r"Line 2: “\{\{ name \| upper \}\}” is not a merge field"),
        ("{{ }}", "Line 1"),
        ("{{{ name }}}", "Line 1"),
        ('{{ "a" "b" }}', "Line 1"),
        ("{{ name | default(friend) }}", "Line 1"),
        ("{{ name() }}", "Line 1"),
        ("{{ name.__class__[0] }}", "Line 1"),
        ("one\ntwo\n{{ name", "Line 3: .* never closed"),
        ("{{" + " " * 400 + "}}", "never closed"),
        ("{{ a }}" * (FIELDS_MAX + 1), "merge fields; use fewer"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(template: str, sentence: str) -> None:
    with pytest.raises(BadTemplate, match=sentence):
        parse(template)


def test_a_missing_or_blank_value_falls_back() -> None:
    template = parse('{{ name | default("friend") }}')
    assert fill(template, {"name": "Ada"}) == "Ada"
    assert fill(template, {}) == fill(template, {"name": " "}) == "friend"


@settings(max_examples=200)
@given(st.text(st.sampled_from("{}\"' a"), max_size=12), st.sampled_from(["", "{{ x }}"]))
def test_escaped_braces_say_just_the_literal(literal: str, after: str) -> None:
    parsed = parse(escape_braces(literal) + after)
    assert [str(part) for part in parsed if isinstance(part, str)] == [literal] * bool(literal)
    assert len(parsed) == bool(literal) + bool(after)


def test_a_long_run_of_braces_can_be_escaped() -> None:
    assert parse(escape_braces("{" * 1001)) == ["{" * 1001]


def test_text_in_braces_is_text_in_html_too() -> None:
    assert parse("{{ '<b>' }} {{ &quot;&amp;&quot; }}", is_html=True) == ["&lt;b&gt; &amp;"]


def test_fields_in_html_may_be_written_with_entities() -> None:
    assert parse("{{ name | default(&quot;A &amp; B&quot;) }}", is_html=True) == [
        Field("name", "A & B")
    ]


@pytest.mark.parametrize(
    ("template", "place"),
    [
        ("<p>{{ x }}</p>", EscapeContext.HTML),
        ("a < b {{ x }}", EscapeContext.HTML),
        ("1 <2 {{ x }}", EscapeContext.HTML),
        ("<p title='a {{ x }}'>", EscapeContext.HTML),
        ('<p title = "{{ x }}">', EscapeContext.HTML),
        ("<title>Hi {{ x }}</title>", EscapeContext.HTML),
        ("<textarea><b {{ x }}</textarea>", EscapeContext.HTML),
        ("<script>if (a < b) {}</script><p>{{ x }}", EscapeContext.HTML),
        ("<style>a > b {}</style >{{ x }}", EscapeContext.HTML),
        ("<!-- <b --> {{ x }}", EscapeContext.HTML),
        ("<!--> {{ x }}", EscapeContext.HTML),
        ("<!doctype html>{{ x }}", EscapeContext.HTML),
        ("<br/>{{ x }}", EscapeContext.HTML),
        ("<input disabled value=a>{{ x }}", EscapeContext.HTML),
        ("</p >{{ x }}", EscapeContext.HTML),
        ('<a href="{{ x }}">', EscapeContext.URL),
        ('<A HREF=" {{ x }}">', EscapeContext.URL),
        ('<a href="{{ x }}?a=b">', EscapeContext.URL),
        ('<img src="{{ x }}">', EscapeContext.URL),
        ('<a href="https://x.example/?a={{ x }}">', EscapeContext.URL_PART),
        ('<a href="/u/{{ x }}">', EscapeContext.URL_PART),
        ('<a href="?next=a:{{ x }}">', EscapeContext.URL_PART),
        ('<a href="mailto:{{ x }}">', EscapeContext.MAILTO),
    ],
)
def test_the_place_of_a_field_is_found(template: str, place: EscapeContext) -> None:
    assert placed(template) == [place]


def test_only_the_first_field_of_a_url_is_a_whole_url() -> None:
    assert placed('<a href="{{ x }}{{ y }}:{{ z }}">{{ x }}') == [
        *(EscapeContext.URL, EscapeContext.URL_PART, EscapeContext.URL_PART, EscapeContext.HTML)
    ]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("<script>{{ x }}</script>", "script or style"),
        ("<STYLE>p { color: {{ x }} }</STYLE>", "script or style"),
        ("<style></stylex>{{ x }}", "script or style"),
        ("<!-- {{ x }} -->", "comment"),
        ("<!--[if mso]>{{ x }}<![endif]-->", "comment"),
        ("<![if {{ x }}]>", "comment"),
        ("<?xml {{ x }}?>", "comment"),
        ("<{{ x }}>", "name of a tag"),
        ("</{{ x }}>", "name of a tag"),
        ("<h{{ x }}>", "name of a tag"),
        ("<title></{{ x }}", "name of a tag"),
        ("<p {{ x }}>", "not in an attribute's value"),
        ("<p title{{ x }}>", "not in an attribute's value"),
        ('<p title="a"{{ x }}>', "not in an attribute's value"),
        ("<a href={{ x }}>", "without quotation marks"),
        ("<a href=a{{ x }}>", "without quotation marks"),
        ('<p onclick="f({{ x }})">', "attribute onclick"),
        ('<p style="color: {{ x }}">', "attribute style"),
        ('<a href="javascript:f({{ x }})">', "begins with javascript:"),
        ('<a href=" java&#115;cript:{{ x }}">', "begins with javascript:"),
        ('<img src="data:text/html,{{ x }}">', "begins with data:"),
    ],
)
def test_a_field_where_no_escaping_helps_is_refused(template: str, words: str) -> None:
    with pytest.raises(BadTemplate, match=f"Line 2: the field {{{{ x }}}} is in.*{words}"):
        compile_html("first line\n" + template)


@pytest.mark.parametrize(
    "end", ["<!-- draft", "<style>p {", "<title>", "<p", '<p title="', "</p", "<!DOCTYPE"]
)
def test_html_that_ends_before_it_is_finished_is_refused(end: str) -> None:
    """Whatever follows, above all the footer, would not be visible."""
    with pytest.raises(BadTemplate, match="Line 2: the HTML ends inside"):
        compile_html(f"<p>Hi</p>\n{end}")


def test_values_are_escaped_as_their_place_demands() -> None:
    template = compile_html(
        '<a href="https://x.example/?n={{ v }}" title="{{ v }}">{{ v }}</a><a href="{{ v }}">'
        '<a href="mailto:{{ v }}">'
    )
    assert fill(template, {"v": "\"<a&b'@c"}) == (
        '<a href="https://x.example/?n=%22%3Ca%26b%27%40c" title="&quot;&lt;a&amp;b&#x27;@c">'
        "&quot;&lt;a&amp;b&#x27;@c</a>"
        '<a href="#"><a href="mailto:%22%3Ca%26b%27@c">'
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("https://x.example/u?a=1&b=2", "https://x.example/u?a=1&amp;b=2"),
        ("http://x.example", "http://x.example"),
        ("javascript:alert(1)", "#"),
        ("https://x.example/ onclick", "#"),
        ("//x.example", "#"),
        ("", "#"),
    ],
)
def test_a_value_that_is_a_whole_link_must_lead_to_the_web(value: str, written: str) -> None:
    assert fill(compile_html('<a href="{{ v }}">'), {"v": value}) == f'<a href="{written}">'


@pytest.mark.parametrize("words", [0, 10, 4096, 10_000])
@pytest.mark.parametrize(
    ("before", "place"),
    [
        ("https://x.example/{}", EscapeContext.URL_PART),
        ("https://x.example/ {}", EscapeContext.TEXT),
        ("{}", EscapeContext.TEXT),
        (" {}https://x.example/", EscapeContext.URL_PART),
        ("https://x.example/<{}", EscapeContext.TEXT),
    ],
)
def test_a_url_is_followed_however_long_it_is(
    words: int, before: str, place: EscapeContext
) -> None:
    segments = compile_text(before.format("w" * words) + "{{ v }}")
    assert [each.context for each in segments if isinstance(each, Field)] == [place]


def test_a_field_inside_a_url_in_plain_text_is_percent_encoded() -> None:
    template = compile_text("{{ v }} https://x.example/?a={{ v }}&b={{ v }} {{ v }} <{{ v }}>")
    assert fill(template, {"v": "a b"}) == "a b https://x.example/?a=a%20b&b=a%20b a b <a b>"


def test_controls_in_values_become_spaces_and_long_values_are_clipped() -> None:
    for template in (compile_text("{{ v }}"), compile_html("{{ v }}"), compile_header("{{ v }}")):
        assert fill(template, {"v": "a\r\nb\0c\u2028d\ud800e"}) == "a  b c d e"
        assert len(fill(template, {"v": "x" * 3000})) == VALUE_CHARS_MAX


HOSTILE = compile_html(
    "<p title=\"{{ v }}\">{{ v }}</p><p title='{{ v }}'></p><title>{{ v }}</title>"
    '<a href="{{ v }}">x</a><a href="https://x.example/{{ v }}">y</a>'
)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.text(max_size=30)
    | st.text(st.sampled_from("<>\"'&;/=- ab!"), max_size=30)
    | st.sampled_from(["</title><b>", "'><script>", "&lt;b&gt;", "javascript:x", "-->", "]]>"])
)
def test_no_value_changes_the_structure_of_the_page(value: str) -> None:
    tree = LexborHTMLParser(fill(HOSTILE, {"v": value}))
    assert tree.body is not None
    nodes = [node.tag for node in tree.body.traverse()]
    assert nodes == ["body", "p", "p", "title", "a", "a"]
    assert all(len(node.attributes) <= 1 for node in tree.css("p, a"))
    link, other = tree.css("a")
    assert (link.attributes["href"] or "").startswith(("http://", "https://", "#"))
    assert (other.attributes["href"] or "").startswith("https://x.example/")


def test_a_text_of_nothing_but_beginnings_of_links_is_compiled_in_linear_time() -> None:
    """A single pattern would start again at every URL: 56 kB took four seconds."""
    for hostile in ("http://" * 100_000 + " {{ a }}", "http://" + "{{ a }}" * 900):
        segments = compile_text(hostile)
        assert isinstance(segments[-1], Field)
