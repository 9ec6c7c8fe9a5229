"""A message written in blocks: one column of headings, texts, pictures and buttons, as data.

A document is JSON that Python owns: the browser only sends forms, and `writing/` renders it.
Each block has an id that is unique in its document, so that a form, a check or a link can name it.
A block that still lacks its link or its picture is valid, because drafts are saved while people
write; the checks before sending say what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import ParamSpec, TypeVar

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, _, clipped
from postroom.domain.theme import (
    BadDesign,
    Theme,
    check_colour,
    check_link,
    check_source,
    check_theme,
)

BLOCKS_MAX = 60  # in one message, those in columns included; Gmail clips emails long before
COLUMN_BLOCKS_MAX = 10
COLUMNS = (2, 3)
ARTICLES_MAX = 20
LINKS_MAX = 12
LINE_CHARS_MAX = 300  # headings, buttons, alt texts
TEXT_CHARS_MAX = 20_000
HTML_CHARS_MAX = 100 * 1024  # as much as Gmail shows
PLACE_CHARS_MAX = 40
DOCUMENT_BYTES_MAX = 256 * 1024
PICTURE_WIDTHS = (16, 700)
SPACE_HEIGHTS = (4, 120)
LEVELS = (1, 3)
_ID = re.compile(r"[a-z][a-z0-9]{0,11}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
P = ParamSpec("P")
T = TypeVar("T")
_BAD_ID = _("its id must be up to 12 lower-case letters and digits, different from all others.")


class Align(StrEnum):
    START = "start"  # the left in English, the right in Arabic
    CENTER = "center"
    END = "end"


class Split(StrEnum):
    """How two columns share the width."""

    EVEN = "even"
    WIDE_FIRST = "wide-first"
    WIDE_LAST = "wide-last"


class BlockBase(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """The fields that all blocks have."""

    id: str = ""
    place: str = ""  # names this part of a template, such as "Main article"


class HeadingBlock(BlockBase, frozen=True, tag="heading", forbid_unknown_fields=True):
    text: str = ""
    level: int = 2
    align: Align = Align.START


class TextBlock(BlockBase, frozen=True, tag="text", forbid_unknown_fields=True):
    text: str = ""  # Markdown: bold, italic, links and lists (docs/decisions/0012)
    align: Align = Align.START


class PictureBlock(BlockBase, frozen=True, tag="picture", forbid_unknown_fields=True):
    src: str = ""  # a web address, or a path of this installation
    alt: str = ""
    is_decorative: bool = False  # says nothing, so it needs no alt text
    href: str = ""
    width: int = 0  # 0: the whole column
    align: Align = Align.CENTER


class ButtonBlock(BlockBase, frozen=True, tag="button", forbid_unknown_fields=True):
    text: str = ""
    href: str = ""
    colour: str = ""  # "": the theme's
    align: Align = Align.CENTER
    is_wide: bool = False


class DividerBlock(BlockBase, frozen=True, tag="divider", forbid_unknown_fields=True):
    colour: str = ""


class SpaceBlock(BlockBase, frozen=True, tag="space", forbid_unknown_fields=True):
    height: int = 24


class Article(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One entry of an article list."""

    title: str = ""
    text: str = ""  # Markdown
    href: str = ""
    src: str = ""
    alt: str = ""


class ArticlesBlock(BlockBase, frozen=True, tag="articles", forbid_unknown_fields=True):
    articles: list[Article] = []
    more: str = ""  # the text of the link below each article; "": only titles are links


class SocialLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    href: str


class SocialBlock(BlockBase, frozen=True, tag="social", forbid_unknown_fields=True):
    links: list[SocialLink] = []
    align: Align = Align.CENTER


class HtmlBlock(BlockBase, frozen=True, tag="html", forbid_unknown_fields=True):
    html: str = ""


PlainBlock = (
    HeadingBlock
    | TextBlock
    | PictureBlock
    | ButtonBlock
    | DividerBlock
    | SpaceBlock
    | ArticlesBlock
    | SocialBlock
    | HtmlBlock
)


class ColumnsBlock(BlockBase, frozen=True, tag="columns", forbid_unknown_fields=True):
    columns: list[list[PlainBlock]] = msgspec.field(default_factory=lambda: [[], []])
    split: Split = Split.EVEN


Block = PlainBlock | ColumnsBlock

KIND_TITLES: dict[str, Text] = {
    "heading": _("Heading"),
    "text": _("Text"),
    "picture": _("Picture"),
    "button": _("Button"),
    "divider": _("Divider"),
    "space": _("Space"),
    "columns": _("Columns"),
    "articles": _("Article list"),
    "social": _("Social links"),
    "html": _("HTML"),
}


class BlockDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message in blocks, with everything it looks like: templates are copied into it."""

    blocks: list[Block] = []
    theme: Theme = Theme()


class BadBlock(BadInput):
    """A block that cannot be used; the sentence names it, and `block_id` leads to it.

    `path` leads to the field for programs, as in “blocks[2].articles[0].href”.
    """

    def __init__(self, sentence: Text, block_id: str = "", path: str = "") -> None:
        self.block_id = block_id
        self.path = path
        super().__init__(sentence)


def parse_document(source: str | bytes) -> BlockDocument:
    """Read and check a document; BadBlock with a sentence that names the block."""
    raw = source.encode() if isinstance(source, str) else source
    if len(raw) > DOCUMENT_BYTES_MAX:
        limit = DOCUMENT_BYTES_MAX // 1024
        raise BadBlock(_("The blocks are over {limit} KiB in total; remove some.", limit=limit))
    try:
        return check_document(msgspec.json.decode(raw, type=BlockDocument))
    except msgspec.DecodeError as error:
        why, _at, path = str(error).partition(" - at `$")
        path = path.rstrip("`").lstrip(".")
        sentence = _("These are not the blocks of a message: {why}.", why=error)
        if path:
            sentence = _("{path}: {why}.", path=path, why=why)
        raise BadBlock(sentence, path=path) from None


def document_of(value: object) -> BlockDocument:
    """Check a document that was read from a form or a request."""
    return parse_document(msgspec.json.encode(value))


def encode_document(document: BlockDocument) -> str:
    return msgspec.json.encode(document).decode()


def check_document(document: BlockDocument) -> BlockDocument:
    try:
        check_theme(document.theme)
    except BadDesign as error:
        raise BadBlock(_("Design: {why}", why=error), path=f"theme.{error.field}") from None
    seen: set[str] = set()
    for number, block in enumerate(all_blocks(document), 1):
        path = ""
        try:
            if number > BLOCKS_MAX:
                raise BadInput(
                    _("There are more than {limit} blocks; remove some.", limit=BLOCKS_MAX)
                )
            _check_block(block)
            if not _ID.fullmatch(block.id) or block.id in seen:
                path = "id"
                raise BadInput(_BAD_ID)
        except BadInput as error:
            path = error.path if isinstance(error, BadBlock) else path
            place = path_of(document, block)
            raise BadBlock(
                _("{block}: {why}", block=block_label(document, block), why=error),
                block.id,
                f"{place}.{path}" if path else place,
            ) from None
        seen.add(block.id)
    return document


def path_of(document: BlockDocument, wanted: Block) -> str:
    """How a program names a block: “blocks[2]”, in a column “blocks[2].columns[0][1]”."""
    for at, block in enumerate(document.blocks):
        if block is wanted:
            return f"blocks[{at}]"
        inner = [
            f"blocks[{at}].columns[{column_at}][{inner_at}]"
            for column_at, column in enumerate(getattr(block, "columns", ()))
            for inner_at, each in enumerate(column)
            if each is wanted
        ]
        if inner:
            return inner[0]
    return "blocks"


def all_blocks(document: BlockDocument) -> Iterator[Block]:
    """All blocks in reading order, those in columns included."""
    for block in document.blocks:
        yield block
        if isinstance(block, ColumnsBlock):
            for column in block.columns:
                yield from column


def block_label(document: BlockDocument, wanted: Block) -> str:
    """How a sentence names a block: “Block 3 (Button)”."""
    title = KIND_TITLES[kind_of(wanted)]
    for number, block in enumerate(document.blocks, 1):
        if block is wanted:
            return str(_("Block {number} ({kind})", number=number, kind=title))
        if isinstance(block, ColumnsBlock) and any(
            each is wanted for column in block.columns for each in column
        ):
            return str(_("Block {number}, in a column ({kind})", number=number, kind=title))
    return str(title)


def kind_of(block: Block) -> str:
    return str(block.__struct_config__.tag)


def _check_block(block: Block) -> None:
    _at("place", _check_line, block.place, PLACE_CHARS_MAX)
    match block:
        case HeadingBlock():
            _at("text", _check_line, block.text)
            _at("level", _check_range, block.level, LEVELS, _("level"))
        case TextBlock():
            _at("text", _check_text, block.text)
        case PictureBlock():
            _check_picture(block)
        case ButtonBlock():
            _at("text", _check_line, block.text)
            _at("href", check_link, block.href)
            _at("colour", check_colour, block.colour)
        case DividerBlock():
            _at("colour", check_colour, block.colour)
        case SpaceBlock():
            _at("height", _check_range, block.height, SPACE_HEIGHTS, _("height"))
        case ColumnsBlock():
            _at("columns", _check_columns, block)
        case ArticlesBlock():
            _at("more", _check_line, block.more)
            _at("articles", _check_each, block.articles, ARTICLES_MAX, _check_article)
        case SocialBlock():
            _at("links", _check_each, block.links, LINKS_MAX, _check_social)
        case HtmlBlock():
            _at("html", _check_html, block.html)


def _at(path: str, check: Callable[P, object], *args: P.args, **named: P.kwargs) -> None:
    """Check the value of a field; BadBlock with the path to it within its block."""
    try:
        check(*args, **named)
    except BadInput as error:
        inner = error.path if isinstance(error, BadBlock) else ""
        dot = "." if inner and not inner.startswith("[") else ""
        raise BadBlock(error.args[0], path=f"{path}{dot}{inner}") from None


def _check_columns(block: ColumnsBlock) -> None:
    if len(block.columns) not in COLUMNS:
        raise BadInput(_("there must be two or three columns."))
    if any(len(column) > COLUMN_BLOCKS_MAX for column in block.columns):
        raise BadInput(_("a column has over {limit} blocks.", limit=COLUMN_BLOCKS_MAX))


def _check_picture(block: PictureBlock) -> None:
    _at("src", check_source, block.src)
    _at("alt", _check_line, block.alt)
    _at("href", check_link, block.href)
    if block.width:
        _at("width", _check_range, block.width, PICTURE_WIDTHS, _("width"))


def _check_article(article: Article) -> None:
    _at("title", _check_line, article.title)
    _at("text", _check_text, article.text)
    _at("href", check_link, article.href)
    _at("src", check_source, article.src)
    _at("alt", _check_line, article.alt)


def _check_social(link: SocialLink) -> None:
    _at("name", _check_line, link.name)
    _at("href", check_link, link.href)


def _check_each(items: list[T], limit: int, check: Callable[[T], None]) -> None:
    if len(items) > limit:
        raise BadInput(_("it has over {limit} entries.", limit=limit))
    for at, item in enumerate(items):
        _at(f"[{at}]", check, item)


def _check_html(html: str) -> None:
    if len(html) > HTML_CHARS_MAX:
        raise BadInput(_("the HTML is over {limit:,} characters.", limit=HTML_CHARS_MAX))


def _check_line(text: str, chars_max: int = LINE_CHARS_MAX) -> None:
    if len(text) > chars_max:
        shown = clipped(text, 40)
        raise BadInput(_("“{text}” is over {limit} characters.", text=shown, limit=chars_max))
    if _CONTROL.search(text) or "\n" in text:
        raise BadInput(
            _("“{text}” must be one line without control characters.", text=clipped(text, 40))
        )


def _check_text(text: str) -> None:
    if len(text) > TEXT_CHARS_MAX:
        raise BadInput(_("the text is over {limit:,} characters.", limit=TEXT_CHARS_MAX))
    if _CONTROL.search(text):
        raise BadInput(_("the text has control characters."))


def _check_range(value: int, allowed: tuple[int, int], what: Text) -> None:
    low, high = allowed
    if not low <= value <= high:
        raise BadInput(
            _("the {what} must be between {low} and {high}.", what=what, low=low, high=high)
        )
