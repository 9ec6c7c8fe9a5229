"""Random documents of blocks: each renders, parses again, and escapes every field for its place."""

from __future__ import annotations

import html as html_module
import re
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from postroom.domain.address import parse_address, parse_mailbox
from postroom.domain.block import (
    Align,
    Article,
    ArticlesBlock,
    Block,
    BlockDocument,
    ButtonBlock,
    ColumnsBlock,
    DividerBlock,
    HeadingBlock,
    HtmlBlock,
    PictureBlock,
    SocialBlock,
    SocialLink,
    SpaceBlock,
    Split,
    TextBlock,
    all_blocks,
    encode_document,
    parse_document,
)
from postroom.domain.message_template import renumbered
from postroom.domain.theme import COLOUR_FIELDS, Font, Logo, Theme
from postroom.mail import control_flow, escape_context, merge
from postroom.mail.body import text_from_html
from postroom.mail.escape_context import EscapeContext
from postroom.mail.finishing import MessageFields, finished_bodies
from postroom.mail.merge import fill
from postroom.mail.mime import MailParts, compile_mail
from postroom.mail.pictures import unseen_pictures
from postroom.writing.block_checks import check_blocks, fixed
from postroom.writing.layout import html_from_blocks

DOCUMENTS = 1000
HOSTILE = "\" onclick=x ' onclick=y \"><script>alert(1)</script>'&{{ x }}{% if x %}"
SENDER = parse_mailbox("news@contoso.edu")
OWN = MessageFields(list_title='History "news" <b>', postal_address="1 Street & Co")

words = st.text(st.sampled_from("abc XYZ äß漢字🎉 <>&\"'*_[]()`#-+!.\\|~\u00a0:/?=%"), max_size=40)
names = st.sampled_from(["name", "city", "first name", "email"])
fields = st.builds(
    lambda name, fallback: (
        f'{{{{ {name} | default("{fallback}") }}}}' if fallback else f"{{{{ {name} }}}}"
    ),
    names,
    st.sampled_from(["", "friend", "a > b"]),
)
conditions = st.sampled_from(
    [
        '{% if city == "Oslo" %}yes {{ name }}{% else %}no{% endif %}',
        "{% for one in city | split(',') %}{{ one }} {% endfor %}",
    ]
)
lines = (
    st.lists(st.one_of(words, fields), max_size=4)
    .map("".join)
    .map(lambda text: text.replace("{%", "").strip())
)
texts = st.lists(
    st.one_of(words, words, fields, conditions, st.just("\n\n"), st.just("\n- ")), max_size=6
).map("".join)
urls = st.one_of(
    st.just(""),
    st.sampled_from(["https://contoso.edu/a?b=1&c=2", "mailto:a@contoso.edu", "tel:+4712"]),
    st.sampled_from(["https://contoso.edu/{{ name }}?q={{ city | default('x') }}", "{{ url }}"]),
    st.just("mailto:{{ email }}?subject={{ name }}"),
)
sources = st.sampled_from(["", "https://contoso.edu/a.png", "/media/abc.png", "{{ picture }}"])
aligns = st.sampled_from(list(Align))
colours = st.integers(0, 0xFFFFFF).map(lambda value: f"#{value:06x}")
maybe_colours = st.one_of(st.just(""), colours)
html_pieces = st.sampled_from(
    ["<p>Hi {{ name }}</p>", '<table><tr><td title="{{ name }}">x</td></tr></table>', "plain", ""]
)
articles = st.builds(Article, title=lines, text=texts, href=urls, src=sources, alt=lines)
plain_blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(HeadingBlock, text=lines, level=st.integers(1, 3), align=aligns),
    st.builds(TextBlock, text=texts, align=aligns),
    st.builds(
        PictureBlock,
        src=sources,
        alt=lines,
        href=urls,
        width=st.sampled_from([0, 120, 700]),
        align=aligns,
        is_decorative=st.booleans(),
    ),
    st.builds(
        ButtonBlock,
        text=lines,
        href=urls,
        colour=maybe_colours,
        align=aligns,
        is_wide=st.booleans(),
    ),
    st.builds(DividerBlock, colour=maybe_colours),
    st.builds(SpaceBlock, height=st.integers(4, 120)),
    st.builds(ArticlesBlock, articles=st.lists(articles, max_size=3), more=lines),
    st.builds(
        SocialBlock,
        align=aligns,
        links=st.lists(st.builds(SocialLink, name=lines, href=urls), max_size=3),
    ),
    st.builds(HtmlBlock, html=html_pieces),
)
columns = st.builds(
    ColumnsBlock,
    columns=st.lists(st.lists(plain_blocks, max_size=2), min_size=2, max_size=3),
    split=st.sampled_from(list(Split)),
)
themes = st.builds(
    lambda shades, **others: Theme(**dict(zip(COLOUR_FIELDS, shades, strict=True)), **others),
    st.lists(colours, min_size=7, max_size=7),
    font=st.sampled_from(list(Font)),
    logo=st.builds(Logo, src=sources, alt=words.map(lambda text: " ".join(text.split()))),
    footer=texts,
    has_view_link=st.booleans(),
    follows_dark_mode=st.booleans(),
)
documents = st.builds(
    BlockDocument, blocks=st.lists(st.one_of(plain_blocks, columns), max_size=6), theme=themes
).map(renumbered)


@pytest.mark.slow
@settings(
    max_examples=DOCUMENTS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
@given(documents, st.sampled_from(["en", "ar"]))
def test_every_document_is_rendered_parsed_and_escaped(
    document: BlockDocument, language: str
) -> None:
    check_rendering(document, language)


def check_rendering(document: BlockDocument, language: str) -> None:
    assert parse_document(encode_document(document)) == document
    html, _text = finished_bodies(
        html_from_blocks(document, language), None, OWN, "Look, {{ name }}"
    )
    assert html is not None
    compiled = compile_mail(MailParts(sender=SENDER, subject="x", html=html))
    hostile = dict.fromkeys(("name", "city", "first name", "url", "picture"), HOSTILE)
    spliced = compiled.splice(
        parse_address("a@contoso.edu"),
        hostile,
        message_id="<a@contoso.edu>",
        date="Mon",
        unsubscribe_url="https://contoso.edu/u",
        eight_bit=True,
    )
    assert spliced.is_ascii or b"8bit" in spliced.source
    _check_page(document, compiled_html(compiled, hostile))
    assert "https://contoso.edu/u" in text_from_html(compiled_html(compiled, {}))


def compiled_html(compiled: object, values: dict[str, str]) -> str:
    from postroom.mail.mime import CompiledMail

    assert isinstance(compiled, CompiledMail)
    assert compiled.html is not None
    given_values = {**values, "email": "a@contoso.edu", "unsubscribe_url": "https://contoso.edu/u"}
    return fill(compiled.html, compiled.regions.with_values(given_values))


def _check_page(document: BlockDocument, page: str) -> None:
    parsed = LexborHTMLParser(page)
    assert parsed.css("script") == []
    for node in parsed.css("*"):
        assert not any(name.startswith("on") for name in node.attributes)
    for link in parsed.css("a[href]"):
        href = link.attributes["href"] or "#"
        assert re.fullmatch(r"(?:(?:https?|mailto|tel):|#)[^\s\"'<>]*", href), href
    assert parsed.body is not None
    for block in all_blocks(document):
        if isinstance(block, ButtonBlock) and "{" not in block.text:
            squeezed = " ".join(parsed.body.text().split())
            assert " ".join(block.text.split()) in squeezed
    unseen = {
        each for sources in unseen_pictures(parsed).values() for each in sources if each != "#"
    }
    assert unseen == set(), unseen


@pytest.mark.parametrize(
    ("context", "mutant"),
    [
        (EscapeContext.HTML, str),  # raw text
        (EscapeContext.HTML, partial(html_module.escape, quote=False)),  # not for attributes
        (EscapeContext.URL, html_module.escape),  # any scheme
        (EscapeContext.URL_PART, html_module.escape),  # as if it were text
        (EscapeContext.MAILTO, html_module.escape),
    ],
)
def test_a_mistake_in_the_escaping_is_noticed(
    monkeypatch: pytest.MonkeyPatch, context: EscapeContext, mutant: Callable[[str], str]
) -> None:
    monkeypatch.setitem(merge._ESCAPES, context, mutant)
    with pytest.raises(AssertionError):
        noticing()


def test_a_place_that_is_mistaken_for_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link whose fields are escaped as text, which lets any scheme through."""
    monkeypatch.setattr(escape_context, "_URL_ATTRIBUTES", frozenset())
    with pytest.raises(AssertionError):
        noticing()


def test_a_condition_that_escapes_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flow, "escape", lambda value, _context: value)
    with pytest.raises(AssertionError):
        noticing()


@pytest.mark.slow
def test_without_a_mistake_the_same_documents_pass() -> None:
    """So what notices the mistakes is not what refuses everything."""
    noticing()


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
@given(documents, st.just("en"))
def noticing(document: BlockDocument, language: str) -> None:
    """The test above, with fewer documents and without a search for the smallest."""
    check_rendering(document, language)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(documents)
def test_what_the_checks_offer_to_fix_is_fixed(document: BlockDocument) -> None:
    for _round in range(100):
        fixes = [finding.fix for finding in check_blocks(document) if finding.fix]
        if not fixes:
            break
        document = fixed(document, fixes[0])
        assert fixes[0] not in [finding.fix for finding in check_blocks(document)]
    assert not [finding for finding in check_blocks(document) if finding.fix]
    assert parse_document(encode_document(document)) == document
    assert msgspec.to_builtins(document.theme) is not None
