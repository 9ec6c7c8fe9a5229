"""MJML to HTML, without files, network or includes.

The engine is a parser in Rust that recurses, so the number and the depth of tags are limited before
it sees a source: three thousand nested tags would crash the process.
"""

from __future__ import annotations

import re

from postroom.domain.texts import _
from postroom.mail.html_shape import ATTRIBUTE
from postroom.mail.merge import BadTemplate, line_of
from postroom.writing.marks import MarkedText, check_length

SOURCE_CHARS_MAX = 256 * 1024
TAGS_MAX = 2500
LAYOUT_TAGS_MAX = 800  # elements of MJML, each of which becomes a table or two
SHARED_CHARS_MAX = 8 * 1024  # of attributes that many tags get, each of them several times
_TAG_START = re.compile(r"<[A-Za-z]")
_LAYOUT_TAG = re.compile(r"<mj", re.IGNORECASE)
_INCLUDE = re.compile(r"<mj-include\b", re.IGNORECASE)
_BARE_AMPERSAND = re.compile(
    r"&(?!(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)"
)
# Tags whose attributes those within them get as well.
_SHARING_TAG = re.compile(
    rf"<mj-(?:accordion|carousel|hero|navbar|social)(?![\w-])(?:{ATTRIBUTE})*+"
)
_ROOT = re.compile(r"<mjml\b([^>]*)>", re.IGNORECASE)
_NO_FONTS: dict[str, str] = {}  # otherwise web fonts would be loaded from elsewhere
_POSITION = re.compile(r"at position (\d+)")
_TAG_NAME = re.compile(r"<(td|table|div|a|img) ")
_OUTLOOK = re.compile(r"(<!--\[if [^\]]{1,40}\]>)")
RIGHT_TO_LEFT = frozenset(
    ("ar", "arc", "ckb", "dv", "fa", "he", "ks", "ps", "sd", "ug", "ur", "yi")
)


def direction_of(language: str) -> str:
    """The direction of a language such as “de” or “ar-EG”."""
    return "rtl" if language.lower().partition("-")[0] in RIGHT_TO_LEFT else "ltr"


def html_from_mjml(source: str, language: str = "en") -> str:
    """Make the HTML; BadTemplate says what is wrong. Merge fields and control tags stay."""
    from mjml import mjml2html

    _check_size(source)
    if _INCLUDE.search(source):
        raise BadTemplate(_("mj-include is not supported; paste the included content here."))
    marked = MarkedText(_BARE_AMPERSAND.sub("&amp;", source.strip()), is_markup=True)
    if _shared_chars(marked.text) > SHARED_CHARS_MAX:
        raise BadTemplate(
            _(
                "Attributes shared by many tags (mj-attributes, mj-social and others) are over "
                "{limit:,} characters; shorten them.",
                limit=SHARED_CHARS_MAX,
            )
        )
    root = _in_language(marked.text, language)
    try:
        made = str(mjml2html(root, fonts=_NO_FONTS))
    except ValueError as error:
        raise _mistake(source, str(error)) from None
    return marked.restored(fold(check_length(made)))


def _in_language(source: str, language: str) -> str:
    """Give the root element its language and direction, unless the author did."""
    root = _ROOT.match(source)
    if root is None:
        raise BadTemplate(_("MJML must begin with <mjml> and end with </mjml>."))
    own = root[1].lower()
    added = "" if "lang=" in own else f' lang="{language}"'
    added += "" if "dir=" in own else f' dir="{direction_of(language)}"'
    return f"<mjml{added}{root[1]}>{source[root.end() :]}"


def _check_size(source: str) -> None:
    if len(source) > SOURCE_CHARS_MAX:
        raise BadTemplate(
            _("The MJML is over {limit:,} characters; shorten it.", limit=SOURCE_CHARS_MAX)
        )
    tags = len(_TAG_START.findall(source))
    layout_tags = len(_LAYOUT_TAG.findall(source))
    if tags > TAGS_MAX or layout_tags > LAYOUT_TAGS_MAX:
        raise BadTemplate(
            _(
                "The MJML has over {limit:,} tags, or over {layout:,} MJML tags; shorten it.",
                limit=TAGS_MAX,
                layout=LAYOUT_TAGS_MAX,
            )
        )


def _shared_chars(source: str) -> int:
    """The length of the defaults of all tags, and of the tags that share their attributes."""
    start, end = source.find("<mj-attributes"), source.rfind("</mj-attributes")
    defaults = end - start if 0 <= start < end else 0
    return defaults + sum(len(each[0]) for each in _SHARING_TAG.finditer(source))


def _mistake(source: str, error: str) -> BadTemplate:
    why = error.partition(" in root template")[0]
    position = _POSITION.search(error)
    if position:
        line = line_of(source, int(position[1]))
        return BadTemplate(_("The MJML has a mistake near line {line}: {why}.", line=line, why=why))
    return BadTemplate(
        _(
            "The MJML cannot be read: {why}. Every tag needs an end tag, and “<” in text must be "
            "written as &lt;.",
            why=why,
        )
    )


def fold(page: str) -> str:
    """Break long lines where white space changes nothing: within tags and Outlook's comments.

    An email with long lines must be encoded, which makes it larger and slower to send.
    """
    page = _TAG_NAME.sub(r"<\1\n", page)
    page = _OUTLOOK.sub(r"\1\n", page).replace(' style="', '\nstyle="')
    return page.replace("<style", "\n<style").replace("} .m", "}\n.m")
