"""Pages that people bring: decoded, cleaned with a sentence each, their pictures found."""

from __future__ import annotations

import codecs

import pytest
from selectolax.lexbor import LexborHTMLParser

from postroom.domain.errors import BadInput
from postroom.writing.html_import import ImportedHtml, ImportReport, decoded, import_html

FILES = {
    "news/images/a b.png": b"a",
    "news/images/c.png": b"c",
    "news/css/style.css": b"@import url(x.css);h1 { background: url('../images/c.png') } </style>",
    "top.png": b"t",
}


def brought(page: str) -> ImportedHtml:
    folded = {name.casefold(): name for name in FILES}
    return import_html(page, "news", lambda path: folded.get(path.casefold()), FILES.__getitem__)


def shown(page: str) -> str:
    """With the name of each picture as its address."""
    found = brought(page)
    return found.with_addresses(
        {each.name: (f"T:{each.name}", f"S:{each.name}") for each in found.pictures}
    )


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<img src="images/c.png" alt="C">', 'src="T:news/images/c.png"'),
        ("<img src='images/a%20b.png?x=1#y'>", 'src="T:news/images/a b.png"'),
        ("<img src=IMAGES/C.PNG>", 'src="T:news/images/c.png"'),
        ('<img src=".\\images\\c.png">', 'src="T:news/images/c.png"'),
        ('<img src="../top.png">', 'src="T:top.png"'),
        ('<td background="images/c.png">', 'background="T:news/images/c.png"'),
        (
            '<img srcset="images/c.png 1x, images/a%20b.png 2x, https://x.example/y.png 3x">',
            'srcset="T:news/images/c.png 1x, T:news/images/a b.png 2x, https://x.example/y.png 3x"',
        ),
        ("<p style=\"background:url('images/c.png')\">", "url(S:news/images/c.png)"),
        ("<style>p{background:URL( images/c.png )}</style>", "url(S:news/images/c.png)"),
        (
            '<!--[if gte mso 9]><v:fill type="tile" src="images/c.png"/><![endif]-->',
            '<!--[if gte mso 9]><v:fill type="tile" src="T:news/images/c.png"/><![endif]-->',
        ),
        (
            '<link rel="stylesheet" href="css/style.css">',
            r"h1 { background: url(S:news/images/c.png) } <\/style></style>",
        ),
    ],
)
def test_pictures_are_found_wherever_a_page_names_them(page: str, expected: str) -> None:
    assert expected in shown(page)


@pytest.mark.parametrize(
    "page",
    [
        '<img src="https://x.example/a.png">',
        '<img src="{{ picture }}">',
        '<img src="cid:a">',
        '<img src="//x.example/a.png">',
        '<a href="page.html">x</a>',
        "<!-- <img src='images/c.png'> -->",
        '<!--[if !mso]><!--><p>Hello &amp; "you"</p><!--<![endif]-->',
        "<p class=it's>a < b</p>",
        '<link rel="stylesheet" href="https://x.example/a.css">',
        "",
    ],
)
def test_everything_else_stays_as_it_is(page: str) -> None:
    found = brought(page)
    assert (found.html, found.report) == (page, ImportReport())


def test_what_is_missing_is_said() -> None:
    found = brought(
        '<img src="images/x.png"><img src="images/x.png"><link rel=stylesheet href=y.css>'
    )
    assert found.report.missing == ["images/x.png"]
    assert [str(each) for each in found.report.sentences()] == [
        "1 picture is missing and will not be shown: images/x.png",
        "Style sheets that are missing: y.css",
    ]


@pytest.mark.parametrize(
    ("page", "gone", "sentence"),
    [
        ("<p>a</p><script>alert('<p>')</script>b", "alert", "Scripts were removed"),
        ("<SCRIPT src=x.js></SCRIPT>", "x.js", "Scripts were removed"),
        ("<script>never closed", "never", "Scripts were removed"),
        ("<noscript>no</noscript>", "noscript", "Scripts were removed"),
        ("<form action=x><input name=y>in<select><option>o</select></form>", "<form", "Forms were"),
        ("<textarea><p>x</textarea>", "textarea", "Forms were"),
        ("<iframe src=//x.example>inside</iframe>", "inside", "Embedded pages"),
        ("<object data=x><embed src=y></object>", "embed", "Embedded pages"),
        ('<p onclick="go()" title="t">x</p>', "onclick", "Event handlers"),
        ("<img onerror = alert(1) src=https://x.example/a.png>", "alert", "Event handlers"),
        ('<a href="java&#115;cript:alert(1)">x</a>', "alert", "Links that run"),
        ('<base href="https://x.example/">', "base", "base address"),
        ('<meta http-equiv="Refresh" content="0;url=https://x.example">', "x.example", "redirect"),
        ("<style>@import 'x.css'; p{color:red}</style>", "@import", "@import"),
        ("<p>*|FNAME|*, <a href='*|UNSUB|*'>x</a></p>", "*|", "Mailchimp"),
    ],
)
def test_what_no_email_can_have_is_removed_with_a_sentence(
    page: str, gone: str, sentence: str
) -> None:
    found = brought(page)
    assert gone not in found.html
    assert [sentence in str(each) for each in found.report.sentences()] == [True]
    assert brought(found.html).html == found.html


def test_hostile_pages_lose_their_scripts_however_they_are_written() -> None:
    pieces = [
        "<script>x()</script >",
        "<scr<script>ipt>x()</script>",
        "<a/onclick=x()>",
        "<svg/onload=x()>",
        "<img src=x onerror=x()//>",
        "<p onmouseover\n=\n'x()'>",
        "<a href='\tjavascript:x()'>a</a>",
        "<title><script>x()</script></title>",
    ]
    page = LexborHTMLParser(brought("".join(pieces)).html)
    assert page.css("script") == []
    for node in page.css("*"):
        assert not [name for name in node.attributes if name.startswith("on")], node.html
        assert "javascript" not in (node.attributes.get("href") or "")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (codecs.BOM_UTF8 + "<p>é".encode(), "<p>é"),
        ("<p>é".encode("utf-16"), "<p>é"),
        ('<meta charset="iso-8859-2"><p>ł'.encode("iso-8859-2"), '<meta charset="iso-8859-2"><p>ł'),
        (
            b"<meta http-equiv=Content-Type content='text/html; charset=windows-1252'>\x93x\x94",
            "<meta http-equiv=Content-Type content='text/html; charset=windows-1252'>“x”",
        ),
        ("<p>漢字".encode(), "<p>漢字"),
        (b"<p>caf\xe9", "<p>café"),
        ('<meta charset="utf-8">é'.encode("cp1252"), '<meta charset="utf-8">é'),
        (b'<meta charset="rot13"><p>abc', '<meta charset="rot13"><p>abc'),
        (b'<meta charset="undefined"><p>abc', '<meta charset="undefined"><p>abc'),
    ],
)
def test_a_page_is_decoded_by_mark_by_its_own_words_or_by_what_fits(
    content: bytes, text: str
) -> None:
    assert decoded(content) == text


def test_the_page_says_utf_8_as_the_email_does() -> None:
    page = "<meta charset=windows-1252><title> A &amp;\n b </title>"
    found = brought(page)
    assert found.html == page.replace("windows-1252", "utf-8")
    assert found.title == "A & b"


def test_a_page_that_parsers_are_slow_with_is_refused() -> None:
    with pytest.raises(BadInput):
        brought("<p>" * 20_000)
    with pytest.raises(BadInput):
        brought('<a "' * 9_000)


@pytest.mark.parametrize(
    "page",
    [
        "<style>p{background:url(" + " " * 200_000 + "a b)}</style>",
        '<p style="background:url(' + " " * 200_000 + 'a b)">',
        '<meta charset="x" content="charset=' + " " * 200_000 + '!">',
    ],
)
def test_spaces_without_end_take_no_longer_than_other_characters(page: str) -> None:
    # With an expression that reads them again and again: hours.
    assert brought(page).html


def test_a_character_number_without_end_is_an_unknown_sign() -> None:
    title = "&#" + "9" * 5000 + ";"
    assert title in brought(f'<p title="{title}">').html


def test_a_style_sheet_that_is_named_often_is_not_read_without_limit() -> None:
    sheet = b"p{}" + b" " * 400_000
    page = '<link rel="stylesheet" href="a.css">' * 6
    with pytest.raises(BadInput, match="larger than 2 MB"):
        import_html(page, "", lambda path: path, lambda name: sheet)


def test_a_mark_that_stands_for_no_picture_stays() -> None:
    assert "picture-0123456789abcdef-0-t" in shown("<p>picture-0123456789abcdef-0-t</p>")
