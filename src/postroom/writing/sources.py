"""What a person wrote, and the HTML that is made from it when a message is saved.

A message stores both: the HTML is what is sent, and the source is what is edited again.
"""

from __future__ import annotations

import re

import msgspec

from postroom.domain.block import parse_document
from postroom.domain.message import BodyKind
from postroom.domain.texts import _
from postroom.mail.html_shape import check_shape
from postroom.mail.markdown import html_from_markdown
from postroom.mail.merge import BadTemplate
from postroom.writing.layout import html_from_blocks
from postroom.writing.marks import MarkedText, check_length
from postroom.writing.mjml import direction_of, html_from_mjml

STYLE_CHARS_MAX = 128 * 1024  # each rule is tried on every element
# What style sheets may become if every tag gets all of them; real emails reach half of it.
INLINED_CHARS_MAX = 24 * 1024**2
_TAG_START = re.compile("<[A-Za-z]")
_STYLE = re.compile(r"<style\b", re.IGNORECASE)
_STYLE_CONTENT = re.compile(r"<style\b[^>]*>.*?</style>", re.IGNORECASE | re.DOTALL)
_STYLE_END = re.compile(r"</style", re.IGNORECASE)
_DECLARATIONS = re.compile(r"\{([^{}@]*)\}")  # the body of one rule
_HTML_ENGLISH = '<html lang="en">'


class BodySource(msgspec.Struct, frozen=True):
    """The source of an HTML body; of kind HTML, with styles that are inlined for sending."""

    kind: BodyKind
    text: str


def html_from_source(source: BodySource, language: str = "en") -> str:
    """Make the HTML that is sent; BadTemplate or BadBlock says what to change."""
    match source.kind:
        case BodyKind.BLOCKS:
            return html_from_blocks(parse_document(source.text), language)
        case BodyKind.MJML:
            return html_from_mjml(source.text, language)
        case BodyKind.MARKDOWN:
            page = html_from_markdown(source.text)
            if language == "en":
                return page
            root = f'<html lang="{language}" dir="{direction_of(language)}">'
            return page.replace(_HTML_ENGLISH, root, 1)
        case BodyKind.HTML:
            return with_inline_styles(source.text)


def has_styles(html: str) -> bool:
    return _STYLE.search(html) is not None


def with_inline_styles(html: str) -> str:
    """Copy the rules of <style> into the elements, since some email programs ignore <style>.

    Nothing is loaded from files or the network. Rules that cannot be inlined, such as @media, stay
    and become important, so that they still win over the inlined ones.
    """
    import css_inline

    check_shape(html)
    is_large = _style_chars(html) * len(_TAG_START.findall(html)) > INLINED_CHARS_MAX
    if len(html) > STYLE_CHARS_MAX or is_large:
        raise BadTemplate(
            _(
                "The HTML is over {limit} kB or has too many styles to copy them into the tags. "
                "Shorten it, or choose to leave the styles as they are.",
                limit=STYLE_CHARS_MAX // 1024,
            )
        )
    marked = MarkedText(html, is_markup=True)
    inliner = css_inline.CSSInliner(
        load_remote_stylesheets=False, keep_at_rules=True, keep_link_tags=True
    )
    try:
        inlined = inliner.inline(marked.text)
    except (css_inline.InlineError, ValueError) as error:
        raise BadTemplate(_("The styles cannot be read: {why}", why=error)) from None
    return marked.restored(_STYLE_CONTENT.sub(_stronger, check_length(inlined)))


def _style_chars(html: str) -> int:
    """The length of all style sheets, wherever a parser might see one."""
    chars = 0
    stop = 0
    for start in _STYLE.finditer(html):
        if start.start() >= stop:
            end = _STYLE_END.search(html, start.end())
            stop = end.start() if end else len(html)
            chars += stop - start.start()
    return chars


def _stronger(style: re.Match[str]) -> str:
    """Mark what is left in <style> as important: otherwise the inlined styles would win over it."""
    return _DECLARATIONS.sub(_important, style[0])


def _important(body: re.Match[str]) -> str:
    declarations = [each.strip() for each in body[1].split(";") if each.strip()]
    is_plain = all(":" in each for each in declarations) and "data:" not in body[1]
    if not is_plain:
        return body[0]
    marked = [
        each if "!important" in each.lower() else f"{each} !important" for each in declarations
    ]
    return f"{{ {'; '.join(marked)} }}"
