"""What a message in blocks looks like: colours, font, logo, footer; and WCAG contrast."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import partial

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, _, clipped, is_one_line

URL_CHARS_MAX = 2000
FOOTER_CHARS_MAX = 2000
LINE_CHARS_MAX = 300
WIDTHS = (480, 700)  # wider emails are cut off in the reading panes of Outlook
CORNERS = (0, 24)
LOGO_WIDTHS = (16, 600)
CONTRAST_MIN = 4.5  # WCAG 2.2, 1.4.3
CONTRAST_LARGE_MIN = 3.0  # for headings
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_FIELD_FIRST = re.compile(r"\{\{\s*\w")  # not {{ "text" }}, which could be any scheme
_LINK = re.compile(r"(?:https?://|mailto:|tel:)[^\s<>\"]+", re.IGNORECASE)
_HOST = re.compile(r"(?:[\w-]+\.)+[a-z]{2,}(?:[/?#:][^\s<>\"]*)?", re.IGNORECASE)
_MAILBOX = re.compile(r"[^\s@:/]+@(?:[\w-]+\.)+[a-z]{2,}", re.IGNORECASE)
_SOURCE = re.compile(r"(?:https?://[^\s<>\"]+|/[\w./-]+)", re.IGNORECASE)
_SPACES_IN_FIELDS = re.compile(r"\{\{[^{}]*\}\}")


class Font(StrEnum):
    SANS = "sans"
    SERIF = "serif"
    ROUND = "round"
    MONO = "mono"


class Logo(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    src: str = ""  # a web address, or a path of this installation; "": no logo
    alt: str = ""
    href: str = ""
    width: int = 160


class Theme(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The design of a message; colours are #rrggbb."""

    background: str = "#f3f5f4"  # around the content
    surface: str = "#ffffff"  # behind the content
    text: str = "#1c2420"
    heading: str = "#1c2420"
    link: str = "#1f7a5c"
    button: str = "#1f7a5c"
    button_text: str = "#ffffff"
    font: Font = Font.SANS
    width: int = 600
    corner: int = 8  # radius in pixels, of the content and of buttons
    logo: Logo = Logo()
    footer: str = ""  # Markdown, above the reason and the unsubscribe link
    has_view_link: bool = True  # "View in browser" in the footer
    follows_dark_mode: bool = True


COLOUR_FIELDS = ("background", "surface", "text", "heading", "link", "button", "button_text")


class BadDesign(BadInput):
    """A design that cannot be used; `field` is the member that is wrong."""

    def __init__(self, sentence: Text, field: str) -> None:
        self.field = field
        super().__init__(sentence)


def check_theme(theme: Theme) -> Theme:
    logo = theme.logo
    checks: list[tuple[str, Callable[[], object]]] = [
        *((name, partial(_check_theme_colour, getattr(theme, name))) for name in COLOUR_FIELDS),
        ("width", lambda: _check_pixels(theme.width, WIDTHS)),
        ("corner", lambda: _check_pixels(theme.corner, CORNERS)),
        ("logo.width", lambda: _check_pixels(logo.width, LOGO_WIDTHS)),
        ("logo.src", lambda: check_source(logo.src)),
        ("logo.href", lambda: check_link(logo.href)),
        ("logo.alt", lambda: _check_logo_alt(logo.alt)),
        ("footer", lambda: _check_footer(theme.footer)),
    ]
    for field, check in checks:
        try:
            check()
        except BadInput as error:
            raise BadDesign(error.args[0], field) from None
    return theme


def _check_theme_colour(colour: str) -> None:
    if not colour:
        raise BadInput(_("A color of the design is missing. Choose one."))
    check_colour(colour)


def _check_pixels(value: int, allowed: tuple[int, int]) -> None:
    low, high = allowed
    if not low <= value <= high:
        raise BadInput(
            _(
                "{value} pixels is out of range. Use {low} to {high}.",
                value=value,
                low=low,
                high=high,
            )
        )


def _check_logo_alt(alt: str) -> None:
    if len(alt) > LINE_CHARS_MAX or not is_one_line(alt):
        raise BadInput(_("The alt text of the logo must be one short line."))


def _check_footer(footer: str) -> None:
    if len(footer) > FOOTER_CHARS_MAX:
        raise BadInput(_("The footer is over {limit:,} characters.", limit=FOOTER_CHARS_MAX))


def check_colour(colour: str) -> str:
    """Allow an empty one, which means the theme's."""
    if colour and not _COLOUR.fullmatch(colour):
        raise BadInput(_("“{colour}” is not a color such as #1f7a5c.", colour=clipped(colour, 20)))
    return colour


def check_link(url: str) -> str:
    """Allow an empty one, which a check reports before sending."""
    if not url or (_is_short(url) and (_FIELD_FIRST.match(url) or _LINK.fullmatch(_bare(url)))):
        return url
    if _is_short(url) and (whole := _completed(url)):
        raise BadInput(
            _(
                "“{url}” is not a complete link. Enter {whole}.",
                url=clipped(url, 60),
                whole=clipped(whole, 80),
            )
        )
    raise BadInput(
        _(
            "“{url}” is not a link. A link begins with https://, http://, mailto: or tel:, "
            "contains no spaces, and is at most {limit:,} characters long.",
            url=clipped(url, 60),
            limit=URL_CHARS_MAX,
        )
    )


def check_source(url: str) -> str:
    """The address of a picture; empty as long as none is chosen."""
    if not url or (_is_short(url) and (_FIELD_FIRST.match(url) or _SOURCE.fullmatch(_bare(url)))):
        return url
    raise BadInput(
        _(
            "“{url}” is not the address of a picture on the web. It must begin with https://.",
            url=clipped(url, 60),
        )
    )


def _completed(url: str) -> str:
    """What somebody meant who left out how a link begins; empty if that cannot be told."""
    if _HOST.fullmatch(url):
        return f"https://{url}"
    return f"mailto:{url}" if _MAILBOX.fullmatch(url) else ""


def _is_short(url: str) -> bool:
    return len(url) <= URL_CHARS_MAX and url.isprintable()


def _bare(url: str) -> str:
    """The address without the inside of its merge fields, which may have spaces and quotes."""
    return _SPACES_IN_FIELDS.sub("x", url)


# --- Contrast ---------------------------------------------------------------------------------


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2, from 1 to 21."""
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def readable_colour(colour: str, ground: str, ratio: float = CONTRAST_MIN) -> str:
    """The nearest shade of a colour that has this contrast with the ground."""
    target = 255 if _luminance(ground) < 0.18 else 0
    for step in range(21):
        shade = _mixed(colour, target, step / 20)
        if contrast(shade, ground) >= ratio:
            return shade
    return "#ffffff" if target else "#000000"


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(channel / 255) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _channels(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def _mixed(colour: str, target: int, share: float) -> str:
    mixed = (round(channel + (target - channel) * share) for channel in _channels(colour))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)
