"""What is missing or hard to read in a document of blocks, and the repairs that need no thought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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
from postroom.domain.texts import Text, _, clipped
from postroom.domain.theme import (
    CONTRAST_LARGE_MIN,
    CONTRAST_MIN,
    Theme,
    contrast,
    readable_colour,
)
from postroom.mail.pictures import UnseenReason, why_unseen

PICTURE_BYTES_MAX = 1024 * 1024  # slower than this on a phone, people scroll on
FIX = "fix"
PictureBytes = Callable[[str], int | None]  # the size of a picture; None if it is not known

# Which color of the design is read on which, and how large it is.
_PAIRS: list[tuple[str, str, float, Text]] = [
    ("text", "surface", CONTRAST_MIN, _("The text is hard to read on its background")),
    ("heading", "surface", CONTRAST_LARGE_MIN, _("Headings are hard to read on their background")),
    ("link", "surface", CONTRAST_MIN, _("Links are hard to read on their background")),
    ("button_text", "button", CONTRAST_MIN, _("The text on buttons is hard to read")),
]


class BlockFinding(msgspec.Struct, frozen=True):
    """One thing to look at: the block to show, and the operation that mends it, if one can."""

    sentence: Text
    block_id: str = ""  # "": it is about the design
    fix: str = ""


def check_blocks(
    document: BlockDocument, picture_bytes: PictureBytes = lambda source: None
) -> list[BlockFinding]:
    """Everything that should be looked at before sending, in the order of the message."""
    findings = list(_about_theme(document.theme))
    for block in all_blocks(document):
        for sentence, fix in _about_block(block, document.theme, picture_bytes):
            operation = f"{FIX}:{fix}:{block.id}" if fix else ""
            findings.append(BlockFinding(sentence, block.id, operation))
    return findings


def fixed(document: BlockDocument, operation: str) -> BlockDocument:
    """The document after a repair; BadInput if it is not known."""
    _fix, kind, what = [*operation.split(":"), "", ""][:3]
    theme = document.theme
    for name, ground, ratio, _sentence in _PAIRS:
        if kind == "theme" and what == name:
            shade = readable_colour(getattr(theme, name), getattr(theme, ground), ratio)
            return msgspec.structs.replace(
                document, theme=msgspec.structs.replace(theme, **{name: shade})
            )
    repair = _REPAIRS.get(kind)
    if repair is None:
        raise BadInput(_("This cannot be fixed automatically any more. Reload the page."))
    blocks = _repaired(document.blocks, what, repair, theme)
    return msgspec.structs.replace(document, blocks=blocks)


def _about_theme(theme: Theme) -> Iterator[BlockFinding]:
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
        yield BlockFinding(_("The logo has no alt text. Enter what it says, under Design."))


def _about_block(
    block: Block, theme: Theme, picture_bytes: PictureBytes
) -> Iterator[tuple[Text, str]]:
    match block:
        case HeadingBlock() if not block.text.strip():
            yield _("This heading is empty."), "remove"
        case TextBlock() if not block.text.strip():
            yield _("This text is empty."), "remove"
        case PictureBlock():
            yield from _about_picture(block, theme, picture_bytes)
        case ButtonBlock():
            yield from _about_button(block, theme)
        case ArticlesBlock():
            for article in block.articles:
                if not article.title.strip():
                    yield _("An article has no title."), ""
                if article.src and not article.alt.strip():
                    yield _("The picture of “{title}” has no alt text.", title=article.title), ""
                yield from _about_link(article.href)
                yield from _about_weight(article.src, picture_bytes)
        case SocialBlock():
            if not block.links:
                yield _("There are no links here."), "remove"
            for link in block.links:
                yield from _about_link(link.href)
        case ColumnsBlock() if not any(block.columns):
            yield _("These columns are empty."), "remove"


def _about_picture(
    block: PictureBlock, theme: Theme, picture_bytes: PictureBytes
) -> Iterator[tuple[Text, str]]:
    if not block.src:
        yield _("No picture is chosen, so nothing is shown here."), "remove"
        return
    if not block.alt.strip() and not block.is_decorative:
        yield (
            _(
                "This picture has no alt text, which many people see instead. Write what it shows, "
                "or mark it as decoration."
            ),
            "decorative",
        )
    if block.width > theme.width:
        yield (
            _(
                "This picture is {width} pixels wide, but the message has room for {room}.",
                width=block.width,
                room=theme.width,
            ),
            "width",
        )
    yield from _about_link(block.href)
    yield from _about_weight(block.src, picture_bytes)


def _about_button(block: ButtonBlock, theme: Theme) -> Iterator[tuple[Text, str]]:
    if not block.text.strip():
        yield _("This button has no text."), ""
    if not block.href:
        yield _("This button leads nowhere. Enter a link."), ""
    if block.colour and contrast(theme.button_text, block.colour) < CONTRAST_MIN:
        yield _("The text on this button is hard to read in this color."), "contrast"
    yield from _about_link(block.href)


def _about_link(href: str) -> Iterator[tuple[Text, str]]:
    if href.lower().startswith("http") and why_unseen(href) is UnseenReason.PRIVATE_HOST:
        yield (
            _("{link} works only on your own computer or network.", link=clipped(href, 60)),
            "",
        )


def _about_weight(source: str, picture_bytes: PictureBytes) -> Iterator[tuple[Text, str]]:
    size = picture_bytes(source) if source else None
    if size and size > PICTURE_BYTES_MAX:
        megabytes = f"{size / 1024**2:.1f}"
        yield _("This picture has {size} MB, which is slow on phones.", size=megabytes), ""


# --- Repairs ----------------------------------------------------------------------------------

Repair = Callable[[Block, Theme], Block | None]


def _removed(_block: Block, _theme: Theme) -> None:
    return None


def _decorative(block: Block, _theme: Theme) -> Block:
    is_picture = isinstance(block, PictureBlock)
    return msgspec.structs.replace(block, is_decorative=True) if is_picture else block


def _narrowed(block: Block, _theme: Theme) -> Block:
    return msgspec.structs.replace(block, width=0) if isinstance(block, PictureBlock) else block


def _readable(block: Block, theme: Theme) -> Block:
    if not isinstance(block, ButtonBlock) or not block.colour:
        return block
    colour = readable_colour(block.colour, theme.button_text)
    return msgspec.structs.replace(block, colour=colour)


_REPAIRS: dict[str, Repair] = {
    "remove": _removed,
    "decorative": _decorative,
    "width": _narrowed,
    "contrast": _readable,
}


def _repaired(blocks: Sequence[Block], wanted: str, repair: Repair, theme: Theme) -> list[Block]:
    """The blocks with the wanted one repaired or removed, also if it is in a column."""
    kept: list[Block] = []
    for block in blocks:
        made: Block | None = repair(block, theme) if block.id == wanted else block
        if isinstance(made, ColumnsBlock):
            columns = [_repaired(column, wanted, repair, theme) for column in made.columns]
            made = msgspec.structs.replace(made, columns=columns)
        if made is not None:
            kept.append(made)
    return kept
