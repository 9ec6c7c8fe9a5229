"""Signs of spam in links and HTML: each with an email that has it and one that nearly has it."""

from __future__ import annotations

import pytest

from postroom.mail.spam.finding import SpamFinding, SpamPlace, SpamSign
from postroom.mail.spam.signs import CheckedMail, spam_signs

WORDS = "<p>Dear reader, the library opens on Sundays from ten to four. Bring your card.</p>"
HIDDEN = "cheap watches and pills of every kind"


def signs(html: str | None, text: str | None = None) -> list[SpamFinding]:
    return spam_signs(
        CheckedMail(subject="News", sender_domain="contoso.edu", html=html, text=text)
    )


def only(html: str) -> SpamSign:
    [found] = signs(WORDS + html)
    assert found.where is SpamPlace.HTML
    return found.sign


# --- Links ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "sign"),
    [
        (
            '<a href="https://example.org/x">https://contoso.edu/x</a>',
            SpamSign.LINK_SHOWS_OTHER_HOST,
        ),
        ('<a href="https://example.org/x">www.contoso.edu</a>', SpamSign.LINK_SHOWS_OTHER_HOST),
        ('<a href="https://example.org/x">contoso.com</a>', SpamSign.LINK_SHOWS_OTHER_HOST),
        ('<a href="https://a.co.uk">Go to www.b.co.uk now</a>', SpamSign.LINK_SHOWS_OTHER_HOST),
        ('<a href="https://192.0.2.1/x">x</a>', SpamSign.LINK_TO_IP),
        ('<a href="https://[2001:db8::1]/x">x</a>', SpamSign.LINK_TO_IP),
        ('<a href="https://3221225985/x">x</a>', SpamSign.LINK_TO_IP),
        ('<a href="https://0xC0.0x0.2.1/x">x</a>', SpamSign.LINK_TO_IP),
        ('<a href="https://contoso.edu@example.org/">x</a>', SpamSign.LINK_WITH_USER),
        ('<a href="https://bit.ly/3abc">x</a>', SpamSign.LINK_SHORTENED),
        ('<area href="https://www.tinyurl.com/3abc">', SpamSign.LINK_SHORTENED),
        ('<a href="https://соntoso.edu/">x</a>', SpamSign.LINK_LOOKS_ALIKE),  # Cyrillic с and о
        ('<a href="https://xn--ntoso-iyeu.edu/">x</a>', SpamSign.LINK_LOOKS_ALIKE),
        ('<a href="https://аррӏе.com/">x</a>', SpamSign.LINK_LOOKS_ALIKE),  # Cyrillic throughout
        ('<a href="http://contoso.edu/">x</a>', SpamSign.LINK_WITHOUT_TLS),
    ],
)
def test_a_link_that_filters_distrust_is_found(link: str, sign: SpamSign) -> None:
    assert only(link) is sign


@pytest.mark.parametrize(
    "link",
    [
        '<a href="https://news.contoso.edu/x?a=1">https://www.contoso.edu/x</a>',
        '<a href="https://shop.contoso.co.uk">contoso.co.uk</a>',
        '<a href="https://xn--bcher-kva.example.org">https://bücher.example.org</a>',
        '<a href="https://example.org/report">report.pdf</a>',
        '<a href="https://example.org/">ASP.NET</a>',
        '<a href="https://example.org/">Look at contoso</a>',
        '<a href="mailto:office@contoso.edu">www.contoso.edu</a>',
        '<a href="https://{{ host }}/">www.contoso.edu</a>',
        '<a href="https://contoso.edu/">{{ site }}.example.org</a>',
        '<a href="https://192-0-2-1.contoso.edu/1.2.3.4">x</a>',
        '<a href="https://contoso.edu/?email={{ email }}&amp;to=a@b.c">x</a>',
        '<a href="https://bit.ly.contoso.edu/">x</a>',
        '<a href="https://contoso.edu/bit.ly/x">x</a>',
        '<a href="https://müller.de/">x</a>',
        '<a href="https://почта.рф/">x</a>',
        '<a href="https://новости.com/">x</a>',
        '<a href="{{ unsubscribe_url }}">x</a>',
        '<a href="tel:+15550100">x</a>',
        '<a href="https://[contoso">x</a>',
    ],
)
def test_a_link_that_nearly_is_one_is_not(link: str) -> None:
    assert signs(WORDS + link) == []


def test_a_link_that_shows_another_host_is_shown_with_both() -> None:
    [found] = signs('<a href="https://example.org/x">https://contoso.edu/x</a>')
    assert found.found == ("https://contoso.edu/x → example.org",)


def test_links_of_the_text_part_count_unless_the_html_has_them() -> None:
    text = "See https://192.0.2.1/a), and http://contoso.edu."
    assert [(each.sign, each.where, each.found) for each in signs(None, text)] == [
        (SpamSign.LINK_TO_IP, SpamPlace.TEXT, ("https://192.0.2.1/a",)),
        (SpamSign.LINK_WITHOUT_TLS, SpamPlace.TEXT, ("http://contoso.edu",)),
    ]
    html = '<a href="https://192.0.2.1/a">x</a><a href="http://contoso.edu">x</a>'
    assert {each.where for each in signs(html, text)} == {SpamPlace.HTML}


# --- Code -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "sign"),
    [
        ("<script>x()</script>", SpamSign.SCRIPT),
        ('<p onclick="x()">x</p>', SpamSign.SCRIPT),
        ('<a href=" JavaScript:x()">x</a>', SpamSign.SCRIPT),
        ('<form action="https://contoso.edu"><input name="a"></form>', SpamSign.FORM),
        ('<iframe src="https://contoso.edu"></iframe>', SpamSign.EMBEDDED),
        ('<object data="https://contoso.edu/a.swf"></object>', SpamSign.EMBEDDED),
        ('<embed src="https://contoso.edu/a.swf">', SpamSign.EMBEDDED),
        ('<a href="data:text/html;base64,PGI+">x</a>', SpamSign.DATA_URI),
        ("<p style=\"background:url( 'data:image/png;base64,AAAA')\">x</p>", SpamSign.DATA_URI),
        ("<style>p { background: url(data:image/png;base64,AAAA) }</style>", SpamSign.DATA_URI),
    ],
)
def test_what_mail_programs_do_not_run_or_show_is_found(html: str, sign: SpamSign) -> None:
    assert only(html) is sign


@pytest.mark.parametrize(
    "html",
    [
        '<script type="application/ld+json">{"@type": "Event"}</script>',  # Gmail reads it
        '<p one="1" class="onclick">x</p>',
        "<p>javascript: a history</p>",
        '<a href="https://contoso.edu/javascript:x">x</a>',
        "<fieldset>x</fieldset>",
        "<p>&lt;iframe&gt;</p>",
        '<a href="https://contoso.edu/?u=data:x">data:</a>',
        '<img src="cid:logo" alt="Logo" width="1" height="1">',
    ],
)
def test_what_only_looks_like_code_is_not(html: str) -> None:
    assert signs(WORDS + html) == []


# --- Pictures ---------------------------------------------------------------------------------


def test_pictures_with_few_words_are_found() -> None:
    [found] = signs('<img src="https://contoso.edu/a.png" alt="All of it"><p>Open on Sundays</p>')
    assert found.sign is SpamSign.FEW_WORDS


def test_pictures_with_words_or_words_alone_are_not() -> None:
    picture = '<img src="https://contoso.edu/a.png" alt="">'
    assert signs(picture + 3 * WORDS) == []
    chinese = "图书馆星期日从十点到四点开放，有阅览室和咖啡，请带上您的卡片。" * 2
    assert signs(f"{picture}<p>{chinese}</p>") == []
    assert signs("<p>Open on Sundays</p>") == []
    assert signs('<img src="https://contoso.edu/dot.gif" width="1" height="1"><p>Open</p>') == []


# --- Hidden text ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "html",
    [
        f'<div style="display:none">{HIDDEN}</div>',
        f"<div hidden>{HIDDEN}</div>",
        f'<div style="visibility: HIDDEN">{HIDDEN}</div>',
        f'<div style="opacity:0">{HIDDEN}</div>',
        f'<div style="max-height:0;overflow:hidden">{HIDDEN}</div>',
        f'<div style="font-size:0">{HIDDEN}</div>',
        f'<div style="font-size:1px !important">{HIDDEN}</div>',
        f'<div style="color:#fff">{HIDDEN}</div>',
        f'<font color="white">{HIDDEN}</font>',
        f'<div style="color:transparent">{HIDDEN}</div>',
        f'<div style="color:rgba(0, 0, 0, 0)">{HIDDEN}</div>',
        f'<div style="background:#112233"><b style="color:rgb(17,34,50)">{HIDDEN}</b></div>',
        f'<table bgcolor="#000000"><tr><td>{HIDDEN}</td></tr></table>',
        f'<div style="display:none"><p><b>{HIDDEN}</b></p></div>',
    ],
)
def test_text_that_readers_do_not_see_is_found(html: str) -> None:
    [found] = signs(WORDS + html)
    assert (found.sign, found.found) == (SpamSign.HIDDEN_TEXT, (HIDDEN,))


@pytest.mark.parametrize(
    "html",
    [
        f'<div style="color:#999">{HIDDEN}</div>',
        f'<div style="font-size:0"><p style="font-size:16px">{HIDDEN}</p></div>',  # closes gaps
        f'<div style="font-size:0"><p style="font:16px serif">{HIDDEN}</p></div>',
        f'<div style="font-size:0.9em">{HIDDEN}</div>',
        f'<div style="opacity:0.9">{HIDDEN}</div>',
        f'<div style="height:0">{HIDDEN}</div>',
        f'<div style="mso-hide:all">{HIDDEN}</div>',
        f'<a style="background:#1f7a5c;color:#ffffff" href="https://contoso.edu">{HIDDEN}</a>',
        f'<table bgcolor="#000"><tr><td style="color:#fff">{HIDDEN}</td></tr></table>',
        '<div style="background:url(https://contoso.edu/a.png)">'
        f'<b style="color:#fff">{HIDDEN}</b></div>',
        '<table background="https://contoso.edu/a.png"><tr><td>'
        f'<b style="color:#fff">{HIDDEN}</b></td></tr></table>',
        f"<style>.a {{ background: #000 }}</style><p class=a style='color:#fff'>{HIDDEN}</p>",
        f"<style>@media print {{ .a {{ display: block }} }}</style>"
        f"<p class=a style='display:none'>{HIDDEN}</p>",
        '<div style="display:none">&nbsp;&zwnj;</div>' * 50,
        '<div style="display:none">short</div>',
        f"<!-- {HIDDEN} --><template>{HIDDEN}</template>",
    ],
)
def test_text_that_may_be_seen_is_not(html: str) -> None:
    assert signs(WORDS + html) == []


def test_a_preview_text_at_the_top_is_not_hidden_text() -> None:
    preview = '<div style="display:none">What is new in the library this month</div>'
    assert signs(preview + WORDS) == []
    assert [each.sign for each in signs(WORDS + preview)] == [SpamSign.HIDDEN_TEXT]


def test_a_page_of_preview_text_is_hidden_text() -> None:
    preview = f'<div style="display:none">{HIDDEN * 10}</div>'
    assert [each.sign for each in signs(preview + WORDS)] == [SpamSign.HIDDEN_TEXT]
