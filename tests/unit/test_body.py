"""The text made from HTML reads like the page, and merge fields come through untouched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.mail.body import WIDTH, links, text_from_html
from postroom.mail.html_shape import ATTRIBUTES_MAX, OPEN_MAX, TAGS_MAX, check_shape
from postroom.mail.merge import BadTemplate, Field, compile_text, parse


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("", ""),
        ("<p>One</p><p>Two</p>", "One\n\nTwo\n"),
        ("<div>One</div><div>Two</div>", "One\nTwo\n"),
        ("<p>a\n  b&nbsp;&amp; <b>c</b>d</p>", "a b & cd\n"),
        ("<p>a<br>b<br><br><br>c</p>", "a\nb\n\nc\n"),
        ("<h1>Title</h1><p>x</p>", "Title\n=====\n\nx\n"),
        ("<p>x</p><h2>Sub</h2>y", "x\n\nSub\n---\n\ny\n"),
        ("<h3>Small</h3>y", "Small\n\ny\n"),
        ("a<hr>b", "a\n\n" + "-" * 40 + "\n\nb\n"),
        ("<ul><li>a</li><li>b</li></ul>c", "* a\n* b\n\nc\n"),
        ("<ol start=9><li>a<li>b</ol>", "9. a\n10. b\n"),
        ("<ol start=x><li>a</ol>", "1. a\n"),
        ("<ul><li>a<ul><li>b</li></ul></li><li></li><li>c</li></ul>", "* a\n  * b\n* c\n"),
        ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n>\n> b\n\nc\n"),
        ("x<blockquote>a</blockquote>", "x\n\n> a\n"),
        ("<pre>a\n  b  c</pre>", "a\n  b  c\n"),
        ("<dl><dt>t</dt><dd>d</dd></dl>", "t\n  d\n"),
        ("<img src=a.png alt='A tree'><img src=b.png>", "A tree\n"),
        ("a<script>b</script><style>c</style><!-- d --><template>e</template>", "a\n"),
        ("<head><title>no</title></head><body>yes</body>", "yes\n"),
        ('<div style="display: none">no</div><p hidden>no</p>yes', "yes\n"),
        ("a\u200b\ufeffb", "ab\n"),
        ("<table><tr><th>a</th><td>b</td><td></td></tr><tr><td>c</td></tr></table>", "a | b\nc\n"),
        ("<table><tr><td><p>a</p></td><td><div>b</div></td></tr></table>", "a\n\nb\n"),
    ],
)
def test_html_reads_as_text(html: str, text: str) -> None:
    assert text_from_html(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<a href="https://x.example/a">Read</a> on', "Read <https://x.example/a> on\n"),
        ('<a href="https://x.example/">x.example</a>', "https://x.example/\n"),
        ('<a href="https://x.example">https://x.example</a>', "https://x.example\n"),
        ('<a href="mailto:a@x.example?subject=b">a@x.example</a>', "a@x.example\n"),
        ('<a href="mailto:a@x.example">Write</a>', "Write <a@x.example>\n"),
        ('<a href="#top">Top</a>', "Top\n"),
        ("<a>None</a>", "None\n"),
        ('<a href="https://x.example/"><img alt="Logo"></a>', "Logo <https://x.example/>\n"),
        ('<a href="https://x.example/"><img></a>', "https://x.example/\n"),
        ('<a href="https://x.example/a b">c</a>', "c <https://x.example/a%20b>\n"),
    ],
)
def test_a_link_shows_where_it_leads(html: str, text: str) -> None:
    assert text_from_html(html) == text


def test_lines_are_wrapped_but_urls_stay_whole() -> None:
    url = "https://x.example/" + "a" * 120
    text = text_from_html(f'<ul><li>{"word " * 40}<a href="{url}">link</a></li></ul>')
    lines = text.splitlines()
    assert f"<{url}>" in text
    assert all(len(line) <= WIDTH or url in line for line in lines)
    assert all(line.startswith(("* ", "  ")) for line in lines)


def test_merge_fields_survive() -> None:
    html = (
        "<h1>Dear {{ name | default(&quot;friend&quot;) }}</h1>"
        '<a href="https://x.example/?e={{ email }}&amp;n={{ name | default("x") }}">Go</a> '
        '<a href="{{ unsubscribe_url }}">Leave</a>'
    )
    text = text_from_html(html)
    assert 'Dear {{ name | default("friend") }}' in text
    assert 'Go <https://x.example/?e={{ email }}&n={{ name | default("x") }}>' in text
    assert "Leave <{{ unsubscribe_url }}>" in text
    assert len([part for part in compile_text(text) if isinstance(part, Field)]) == 4


@pytest.mark.parametrize(
    "html",
    ['{{ "{{" }} name }}', "&#123;&#123; name }}", "{&#123; name }}", "<i>{</i>{ name }}"],
)
def test_plain_braces_stay_plain(html: str) -> None:
    assert parse(text_from_html(html)) == ["{{ name }}\n"]


def test_a_brace_right_before_a_field_does_not_break_the_field() -> None:
    assert parse(text_from_html("a{<b>{{ name }}</b>")) == ["a{", Field("name"), "\n"]


def test_the_marks_of_fields_cannot_be_forged() -> None:
    assert text_from_html("{{ name }} \ufdd00\ufdd1 \ufdd07\ufdd1") == "{{ name }} 0 7\n"


@pytest.mark.parametrize(
    "element", ["div", "b", "ul><li", "blockquote", "table><tr><td", "a href=x"]
)
def test_deep_nesting_does_not_exhaust_the_stack(element: str) -> None:
    assert "deep" in text_from_html(f"<{element}>" * OPEN_MAX + "deep")


def test_deeply_nested_quotations_take_no_more_room_than_their_text() -> None:
    """Indenting every line by two more per level would let one body fill the memory."""
    text = text_from_html("<blockquote>" * 150 + "word " * 1000 + "</blockquote>" * 150)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.startswith("> > > ")


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("a<b> b </b>c", "a b c"),
        ("<p>a\xad\u200bb\ufeff</p>", "ab"),
        ("a \n\t\xa0 b", "a b"),
        ("<b>a</b> <i>b</i>", "a b"),
        ("<b>a</b>\u200b<i>b</i>", "ab"),
    ],
)
def test_runs_of_blanks_become_one_and_fillers_disappear(html: str, text: str) -> None:
    assert text_from_html(html) == f"{text}\n"


def test_links_are_collected_once_and_in_order() -> None:
    html = (
        '<a href="https://x.example/b">1</a><a href=" https://x.example/a ">2</a><a href="#c">3</a>'
        '<a href="https://x.example/b">4</a><a href="{{ unsubscribe_url }}">5</a><a>6</a>'
        '<a href="mailto:a@x.example">7</a><map><area href="https://x.example/d"></map>'
    )
    assert links(html) == [
        "https://x.example/b",
        "https://x.example/a",
        "{{ unsubscribe_url }}",
        "mailto:a@x.example",
        "https://x.example/d",
    ]


_tags = st.sampled_from(["p", "div", "ul", "li", "h1", "table", "tr", "td", "a", "pre", "br", "b"])
_pieces = st.one_of(
    st.text(st.sampled_from("ab {}\\<>&\n\ufdd0"), max_size=8),
    _tags.map(lambda tag: f"<{tag}>"),
    _tags.map(lambda tag: f"</{tag}>"),
    st.just("{{ name }}"),
)


@settings(max_examples=200)
@given(st.lists(_pieces, max_size=12))
def test_a_template_that_can_be_parsed_gives_a_text_that_can(pieces: list[str]) -> None:
    html = "".join(pieces)
    try:
        parse(html, is_html=True)
    except ValueError:
        return
    text = text_from_html(html)
    assert all(part == Field("name") for part in parse(text) if isinstance(part, Field))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("html", "complaint"),
    [
        ("<div>" * (OPEN_MAX + 1), "nested elements"),
        ("<div><!--</div>-->" * (OPEN_MAX + 1), "nested elements"),
        ("<div a='</div>'>" * (OPEN_MAX + 1), "nested elements"),
        ("<div><table></div></table>" * (OPEN_MAX + 1), "nested elements"),
        ("<i></b>" * (OPEN_MAX + 1), "nested elements"),
        ("<p>" * (TAGS_MAX + 1), "tags"),
        ("<a" + " b" * (ATTRIBUTES_MAX + 1) + ">", "attributes"),
        ("<svg><title><a" + " b='>'" * (ATTRIBUTES_MAX + 1) + ">", "attributes"),
        ("<? <a b='><p" + " c" * (ATTRIBUTES_MAX + 1) + ">'", "attributes"),
        ("</a" + " b" * (ATTRIBUTES_MAX + 1) + ">", "attributes"),
        ("<a " * (ATTRIBUTES_MAX - 1) + "z" * 2_000_000, "attributes"),
        ("<a " * (ATTRIBUTES_MAX - 1) + " " * 2_000_000, "attributes"),
        ("-" * (256 * 1024 - 1) + "<p" + " b" * (ATTRIBUTES_MAX + 1) + ">", "attributes"),
    ],
)
def test_html_that_parsers_are_slow_with_is_refused(html: str, complaint: str) -> None:
    for read in (text_from_html, links):
        with pytest.raises(BadTemplate, match=complaint):
            read(html)


@pytest.mark.parametrize(
    "html",
    [
        "<p>one" * 5000,
        "<ul>" + "<li>one" * 5000 + "</ul>",
        "<table>" + "<tr><td>one<td>two" * 2000 + "</table>",
        "<div><b>one</b><br><img src=x></div>" * 2000,
        "<table><tr><td>" * 50 + "one" + "</td></tr></table>" * 50,
        "<!--[if mso]><table><tr><td><![endif]-->one" * 300,
    ],
)
def test_long_html_of_a_good_shape_is_accepted(html: str) -> None:
    check_shape(html)
