"""Checks of a document of blocks for what is missing or hard to read, and the simple repairs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

import msgspec

from postroom.domain.block import (
    ArticlesBlock,
    Block,
    BlockDocument,
    ButtonBlock,
    ColumnsBlock,
    HeadingBlock,
    PictureBlock,
    SocialBlock,
    TextBlock,
    all_blocks,
)
from postroom.domain.errors import BadInput
from postroom.domain.picture import Picture, id_in_path
from postroom.domain.texts import Text, _, clipped
from postroom.domain.theme import (
    CONTRAST_LARGE_MIN,
    CONTRAST_MIN,
    Theme,
    contrast,
    readable_colour,
)
from postroom.mail.pictures import UnseenReason, why_unseen
from postroom.writing.broken_fields import broken_fields, repaired_field

PICTURE_BYTES_MAX = 1024 * 1024  # slower than this on a phone, people scroll on
PICTURES_BYTES_MAX = 3 * 1024 * 1024  # all pictures of a message together
FIX = "fix"
SAMPLES_SHOWN = 3  # of the links in one sentence
_TEXT_LINK = re.compile(r"https?://[^\s<>()\"']+", re.IGNORECASE)  # in Markdown
_SAMPLE_HOSTS = ("example.org", "example.com", "example.net")  # RFC 2606: nobody’s websites
Pictures = Mapping[str, Picture]  # those of the media library that a document shows, by id

# Which color of the design is read on which, and how large it is.
_PAIRS: list[tuple[str, str, float, Text]] = [
    ("text", "surface", CONTRAST_MIN, _("The text is hard to read on its background")),
    ("heading", "surface", CONTRAST_LARGE_MIN, _("Headings are hard to read on their background")),
    ("link", "surface", CONTRAST_MIN, _("Links are hard to read on their background")),
    ("button_text", "button", CONTRAST_MIN, _("The text on buttons is hard to read")),
]


class BlockFinding(msgspec.Struct, frozen=True):
    """One finding: the block to show, and the operation that fixes it, if there is one."""

    sentence: Text
    block_id: str = ""  # "": it is about the design
    fix: str = ""
    line: int = 0  # of a body that is not in blocks


def check_blocks(document: BlockDocument, pictures: Pictures | None = None) -> list[BlockFinding]:
    """Everything that should be fixed before sending, in the order of the message.

    Without pictures, nothing is said about the media library.
    """
    findings = [*_about_theme(document.theme, pictures), *_about_total(document, pictures)]
    for block in all_blocks(document):
        for sentence, fix in _about_block(block, document.theme, pictures):
            operation = f"{FIX}:{fix}:{block.id}" if fix else ""
            findings.append(BlockFinding(sentence, block.id, operation))
    return findings


def fixed(
    document: BlockDocument, operation: str, pictures: Pictures | None = None
) -> BlockDocument:
    """The document after a repair; BadInput if it is not known."""
    _fix, kind, what = [*operation.split(":"), "", ""][:3]
    theme = document.theme
    for name, ground, ratio, _sentence in _PAIRS:
        if kind == "theme" and what == name:
            shade = readable_colour(getattr(theme, name), getattr(theme, ground), ratio)
            return msgspec.structs.replace(
                document, theme=msgspec.structs.replace(theme, **{name: shade})
            )
    if kind == "theme" and what == "logo":
        logo = msgspec.structs.replace(theme.logo, alt=_known_alt(theme.logo.src, pictures))
        return msgspec.structs.replace(document, theme=msgspec.structs.replace(theme, logo=logo))
    repair = _REPAIRS.get(kind) if kind != "alt" else partial(_described, pictures=pictures)
    if repair is None:
        raise BadInput(_("This can no longer be fixed automatically. Reload the page."))
    blocks = _repaired(document.blocks, what, repair, theme)
    return msgspec.structs.replace(document, blocks=blocks)


def _about_theme(theme: Theme, pictures: Pictures | None) -> Iterator[BlockFinding]:
    for name, ground, ratio, sentence in _PAIRS:
        found = contrast(getattr(theme, name), getattr(theme, ground))
        if found < ratio:
            yield BlockFinding(
                _(
                    "{sentence}: the contrast is {found:.1f}, but should be {ratio}.",
                    sentence=sentence,
                    found=found,
                    ratio=ratio,
                ),
                fix=f"{FIX}:theme:{name}",
            )
    if theme.logo.src and not theme.logo.alt:
        yield BlockFinding(
            _("The logo has no alt text. Enter what it says, under Design."),
            fix=f"{FIX}:theme:logo" if _known_alt(theme.logo.src, pictures) else "",
        )
    if _is_missing(theme.logo.src, pictures):
        yield BlockFinding(_("The logo is no longer in the media library and will not be shown."))


def _about_total(document: BlockDocument, pictures: Pictures | None) -> Iterator[BlockFinding]:
    size = sum(each.size for each in (pictures or {}).values())
    if size > PICTURES_BYTES_MAX:
        yield BlockFinding(
            _(
                "The pictures total {size} MB, which is slow to load on phones. Use fewer or "
                "smaller ones.",
                size=f"{size / 1024**2:.1f}",
            )
        )


def _known_alt(source: str, pictures: Pictures | None) -> str:
    """The alt text that the media library has for the picture at this address."""
    picture = (pictures or {}).get(id_in_path(source))
    return picture.alt if picture else ""


def _is_missing(source: str, pictures: Pictures | None) -> bool:
    picture_id = id_in_path(source)
    return bool(picture_id) and pictures is not None and picture_id not in pictures


def _about_block(
    block: Block, theme: Theme, pictures: Pictures | None
) -> Iterator[tuple[Text, str]]:
    if isinstance(block, HeadingBlock | TextBlock | ButtonBlock):
        for found in broken_fields(block.text):
            yield (
                _(
                    "“{found}” will be shown as is. A merge field has two braces on each side.",
                    found=found[0],
                ),
                "field",
            )
    match block:
        case HeadingBlock() if not block.text.strip():
            yield _("This heading is empty."), "remove"
        case TextBlock() if not block.text.strip():
            yield _("This text is empty."), "remove"
        case PictureBlock():
            yield from _about_picture(block, theme, pictures)
        case ButtonBlock():
            yield from _about_button(block, theme)
        case ArticlesBlock():
            for article in block.articles:
                if not article.title.strip():
                    yield _("An article has no title."), ""
                if article.src and not article.alt.strip():
                    fix = "alt" if _known_alt(article.src, pictures) else ""
                    yield _("The picture of “{title}” has no alt text.", title=article.title), fix
                yield from _about_file(article.src, pictures)
        case SocialBlock() if not block.links:
            yield _("This block has no links. Add one, or remove the block."), "remove"
        case ColumnsBlock() if not any(block.columns):
            yield _("These columns are empty."), "remove"
    yield from _about_links(_links_of(block))


def _about_picture(
    block: PictureBlock, theme: Theme, pictures: Pictures | None
) -> Iterator[tuple[Text, str]]:
    if not block.src:
        yield _("No picture is chosen, so nothing is shown here."), "remove"
        return
    if not block.alt.strip() and not block.is_decorative:
        yield (
            _(
                "This picture has no alt text, which people see if pictures are not shown. "
                "Describe the picture, or mark it as decorative."
            ),
            "alt" if _known_alt(block.src, pictures) else "decorative",
        )
    if block.width > theme.width:
        yield (
            _(
                "This picture is {width} pixels wide, but the message is only {room} wide. Reduce "
                "its width.",
                width=block.width,
                room=theme.width,
            ),
            "width",
        )
    yield from _about_file(block.src, pictures)


def _about_button(block: ButtonBlock, theme: Theme) -> Iterator[tuple[Text, str]]:
    if not block.text.strip():
        yield _("This button has no text."), ""
    if not block.href:
        yield _("This button has no link. Enter one."), ""
    if block.colour and contrast(theme.button_text, block.colour) < CONTRAST_MIN:
        yield _("The text on this button is hard to read in this color."), "contrast"


def _links_of(block: Block) -> list[str]:
    """Where a block leads, each address once; HTML is checked as a whole message."""
    match block:
        case ButtonBlock() | PictureBlock():
            found = [block.href]
        case TextBlock():
            found = _TEXT_LINK.findall(block.text)
        case ArticlesBlock():
            texts = (link for each in block.articles for link in _TEXT_LINK.findall(each.text))
            found = [*(article.href for article in block.articles), *texts]
        case SocialBlock():
            found = [link.href for link in block.links]
        case _:
            found = []
    return list(dict.fromkeys(found))


def _about_links(links: list[str]) -> Iterator[tuple[Text, str]]:
    for href in links:
        if href.lower().startswith("http") and why_unseen(href) is UnseenReason.PRIVATE_HOST:
            yield (
                _("{link} works only on your own computer or network.", link=clipped(href, 60)),
                "",
            )
    if samples := [clipped(href, 60) for href in links if is_sample_link(href)]:
        yield (
            _(
                "This block still has sample links: {links}. Enter your own, or remove it.",
                links=", ".join(samples[:SAMPLES_SHOWN]),
            ),
            "",
        )


def is_sample_link(href: str) -> bool:
    """Whether it leads to a host that stands for the writer’s own website."""
    try:
        host = (urlsplit(href.strip()).hostname or "").lower()
    except ValueError:  # such as a broken IPv6 address
        return False
    return host.removeprefix("www.") in _SAMPLE_HOSTS


def _about_file(source: str, pictures: Pictures | None) -> Iterator[tuple[Text, str]]:
    if _is_missing(source, pictures):
        yield _("This picture is no longer in the media library and will not be shown."), ""
    picture = (pictures or {}).get(id_in_path(source))
    if picture and picture.size > PICTURE_BYTES_MAX:
        megabytes = f"{picture.size / 1024**2:.1f}"
        yield _("This picture is {size} MB, which is slow to load on phones.", size=megabytes), ""


# --- Repairs ----------------------------------------------------------------------------------

Repair = Callable[[Block, Theme], Block | None]


def _removed(_block: Block, _theme: Theme) -> None:
    return None


def _decorative(block: Block, _theme: Theme) -> Block:
    is_picture = isinstance(block, PictureBlock)
    return msgspec.structs.replace(block, is_decorative=True) if is_picture else block


def _described(block: Block, _theme: Theme, pictures: Pictures | None) -> Block:
    """With the alt texts that the media library knows, where there are none."""
    if isinstance(block, PictureBlock):
        return msgspec.structs.replace(block, alt=_known_alt(block.src, pictures))
    if not isinstance(block, ArticlesBlock):
        return block
    articles = [
        msgspec.structs.replace(each, alt=each.alt.strip() or _known_alt(each.src, pictures))
        for each in block.articles
    ]
    return msgspec.structs.replace(block, articles=articles)


def _narrowed(block: Block, _theme: Theme) -> Block:
    return msgspec.structs.replace(block, width=0) if isinstance(block, PictureBlock) else block


def _readable(block: Block, theme: Theme) -> Block:
    if not isinstance(block, ButtonBlock) or not block.colour:
        return block
    colour = readable_colour(block.colour, theme.button_text)
    return msgspec.structs.replace(block, colour=colour)


def _with_fields(block: Block, _theme: Theme) -> Block:
    if not isinstance(block, HeadingBlock | TextBlock | ButtonBlock):
        return block
    text = block.text
    for found in reversed(list(broken_fields(text))):  # from the end, so that positions stay
        text = repaired_field(text, found)
    return msgspec.structs.replace(block, text=text)


_REPAIRS: dict[str, Repair] = {
    "field": _with_fields,
    "remove": _removed,
    "decorative": _decorative,
    "width": _narrowed,
    "contrast": _readable,
}


def _repaired(blocks: Sequence[Block], wanted: str, repair: Repair, theme: Theme) -> list[Block]:
    """The blocks with the wanted one repaired or removed, even if it is in a column."""
    kept: list[Block] = []
    for block in blocks:
        made: Block | None = repair(block, theme) if block.id == wanted else block
        if isinstance(made, ColumnsBlock):
            columns = [_repaired(column, wanted, repair, theme) for column in made.columns]
            made = msgspec.structs.replace(made, columns=columns)
        if made is not None:
            kept.append(made)
    return kept
