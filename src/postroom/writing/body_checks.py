"""Checks of a body in HTML, MJML or Markdown, with line numbers, and the simple repairs.

Findings are about the text as it was typed, so that a page can show the line and a repair changes
nothing else. Only contrast is measured on the finished HTML, where styles are in the tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from postroom.domain.errors import BadInput
from postroom.domain.message import BodyKind
from postroom.domain.texts import Text, _, clipped
from postroom.domain.theme import CONTRAST_LARGE_MIN, CONTRAST_MIN, contrast, readable_colour
from postroom.mail.entities import unescape
from postroom.mail.html_shape import ATTRIBUTE, ATTRIBUTE_PARTS
from postroom.mail.merge import line_of
from postroom.mail.pictures import UnseenReason, why_unseen
from postroom.mail.spam.page import Colour, styled_texts
from postroom.writing.block_checks import BlockFinding
from postroom.writing.broken_fields import broken_fields, repaired_field

FIX = "fix:body"
WIDTH_MAX = 700  # wider emails are cut off in reading panes
WIDTH_FITTING = 600
LARGE_PX = 24.0  # WCAG 2.2, 1.4.3
FINDINGS_MAX = 5  # of one kind; an author who fixes those finds the rest
_PICTURE = re.compile(rf"<(img|mj-image)\b((?:{ATTRIBUTE})*+)", re.IGNORECASE)
_HREF = re.compile(r"\bhref\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>\"']+))", re.IGNORECASE)
_WIDTH = re.compile(
    r"((?<![-\w])(?:min-)?width\s*(?:=\s*[\"']?|:\s*))(\d{3,5})(?=px|[\"'\s;>])", re.IGNORECASE
)


def check_typed(
    kind: BodyKind, typed: str, finished: str, known_fields: Iterable[str]
) -> list[BlockFinding]:
    """All findings, grouped by kind, each with its line."""
    found = check_fields(typed, known_fields)
    if kind in (BodyKind.HTML, BodyKind.MJML):
        found += [*_about_pictures(typed), *_about_widths(typed), *_about_links(typed)]
        found += _about_contrast(typed, finished)
    return found


def repaired(typed: str, operation: str) -> str:
    """The body after a repair; BadInput if it is no longer possible."""
    _fix, _body, kind, what = [*operation.split(":", 3), "", ""][:4]
    repair = _REPAIRS.get(kind)
    changed = repair(typed, what) if repair else typed
    if changed == typed:
        raise BadInput(_("This can no longer be fixed automatically. Reload the page."))
    return changed


def _finding(typed: str, position: int, what: Text, fix: str = "") -> BlockFinding:
    line = line_of(typed, position)
    sentence = _("Line {line}: {what}", line=line, what=what)
    return BlockFinding(sentence, fix=f"{FIX}:{fix}" if fix else "", line=line)


def _first(matches: Iterable[re.Match[str]]) -> list[tuple[int, re.Match[str]]]:
    return list(enumerate(matches))[:FINDINGS_MAX]


# --- Merge fields -----------------------------------------------------------------------------


def check_fields(typed: str, known_fields: Iterable[str]) -> list[BlockFinding]:
    """Merge fields with too few braces, even in a body that cannot be rendered because of them."""
    return list(_about_fields(typed, frozenset(known_fields)))


def _about_fields(typed: str, known: frozenset[str]) -> Iterator[BlockFinding]:
    for _at, found in _first(broken_fields(typed, known)):
        what = _(
            "“{found}” will be shown as is. A merge field has two braces on each side.",
            found=" ".join(found[0].split()),
        )
        yield _finding(typed, found.start(), what, f"field:{found[2]}:{found.start()}")


def _with_braces(typed: str, what: str) -> str:
    name, _colon, position = what.rpartition(":")
    for found in broken_fields(typed, (name,)):
        if str(found.start()) == position:
            return repaired_field(typed, found)
    return typed


# --- Pictures, widths, links ------------------------------------------------------------------


def _nameless(typed: str) -> Iterator[re.Match[str]]:
    for found in _PICTURE.finditer(typed):
        names = [part[1].lower() for part in ATTRIBUTE_PARTS.finditer(found[2])]
        if "alt" not in names:
            yield found


def _about_pictures(typed: str) -> Iterator[BlockFinding]:
    for at, found in _first(_nameless(typed)):
        what = _(
            "This picture has no alt text, which people see if pictures are not shown. Describe "
            'the picture, or write alt="" if it is decorative.'
        )
        yield _finding(typed, found.start(), what, f"alt:{at}")


def _as_decoration(typed: str, what: str) -> str:
    for at, found in enumerate(_nameless(typed)):
        if str(at) == what:
            return f'{typed[: found.end(1)]} alt=""{typed[found.end(1) :]}'
    return typed


def _too_wide(typed: str) -> Iterator[re.Match[str]]:
    return (found for found in _WIDTH.finditer(typed) if int(found[2]) > WIDTH_MAX)


def _about_widths(typed: str) -> Iterator[BlockFinding]:
    for at, found in _first(_too_wide(typed)):
        what = _(
            "This is {widest} pixels wide. Many email programs cut off anything wider than "
            "{limit}.",
            widest=int(found[2]),
            limit=WIDTH_MAX,
        )
        yield _finding(typed, found.start(), what, f"width:{at}")


def _narrowed(typed: str, what: str) -> str:
    for at, found in enumerate(_too_wide(typed)):
        if str(at) == what:
            return f"{typed[: found.start(2)]}{WIDTH_FITTING}{typed[found.end(2) :]}"
    return typed


def _about_links(typed: str) -> Iterator[BlockFinding]:
    private = (
        found
        for found in _HREF.finditer(typed)
        if why_unseen(_address(found)) is UnseenReason.PRIVATE_HOST
    )
    for _at, found in _first(private):
        link = clipped(_address(found), 60)
        what = _("{link} works only on your own computer or network.", link=link)
        yield _finding(typed, found.start(), what)


def _address(found: re.Match[str]) -> str:
    return unescape(found[1] or found[2] or found[3] or "").strip()


# --- Contrast ---------------------------------------------------------------------------------


def _about_contrast(typed: str, finished: str) -> Iterator[BlockFinding]:
    """One finding for each pair of colours that is hard to read."""
    seen: set[tuple[str, str]] = set()
    for text, style in styled_texts(finished):
        colour, ground = _hex(style.colour), _hex(style.background)
        if not text.strip() or style.is_unseen or not colour or not ground:
            continue
        wanted = CONTRAST_LARGE_MIN if (style.size or 0) >= LARGE_PX else CONTRAST_MIN
        ratio = contrast(colour, ground)
        if ratio >= wanted or (colour, ground) in seen or len(seen) >= FINDINGS_MAX:
            continue
        seen.add((colour, ground))
        what = _(
            "“{text}” is hard to read: {colour} on {ground} has a contrast of {ratio:.1f}, but "
            "should have {wanted}.",
            text=clipped(" ".join(text.split()), 30),
            colour=colour,
            ground=ground,
            ratio=ratio,
            wanted=wanted,
        )
        place = _colour_pattern(colour).search(typed)
        fix = f"colour:{colour}:{ground}"
        yield _finding(typed, place.start(), what, fix) if place else BlockFinding(what, line=1)


def _hex(colour: Colour | str | None) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour) if isinstance(colour, tuple) else ""


def _colour_pattern(colour: str) -> re.Pattern[str]:
    """Where a style or an attribute sets this colour for text, with six digits or three."""
    digits = colour[1:]
    is_short = all(digits[at] == digits[at + 1] for at in (0, 2, 4))
    written = f"{digits}|{digits[::2]}" if is_short else digits
    return re.compile(
        rf"((?<![-\w])color\s*+[:=]\s*+[\"']?+\s*+)#(?:{written})(?![0-9a-f])", re.IGNORECASE
    )


def _readable(typed: str, what: str) -> str:
    colour, _colon, ground = what.partition(":")
    if not re.fullmatch(r"#[0-9a-f]{6}:#[0-9a-f]{6}", what):
        return typed
    shade = readable_colour(colour, ground)
    return _colour_pattern(colour).sub(lambda found: found[1] + shade, typed)


_REPAIRS: dict[str, Callable[[str, str], str]] = {
    "field": _with_braces,
    "alt": _as_decoration,
    "width": _narrowed,
    "colour": _readable,
}
