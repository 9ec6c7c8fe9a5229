"""Render a document of blocks as MJML, then HTML: the same for the preview and for sending.

Merge fields stay in the HTML, where `mail/merge.py` finds out how their values are escaped. What
depends on the list or the installation is a field, too (`mail/message_fields.py`), so that a
message in blocks has the address its list has when it is sent.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import groupby

from postroom.domain.block import (
    Align,
    Article,
    ArticlesBlock,
    BadBlock,
    Block,
    BlockDocument,
    ButtonBlock,
    ColumnsBlock,
    DividerBlock,
    HeadingBlock,
    HtmlBlock,
    PictureBlock,
    PlainBlock,
    SocialBlock,
    SpaceBlock,
    Split,
    TextBlock,
    block_label,
)
from postroom.domain.errors import BadInput
from postroom.domain.texts import ENGLISH, _, speaking
from postroom.domain.theme import Font, Theme, readable_colour
from postroom.mail.control_flow import compile_body, has_tags
from postroom.mail.merge import compile_html, parse
from postroom.writing.mjml import direction_of, html_from_mjml
from postroom.writing.rich_text import html_of_text

FONTS = {
    Font.SANS: "-apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif",
    Font.SERIF: "Georgia, 'Times New Roman', serif",
    Font.ROUND: "'Trebuchet MS', Verdana, Tahoma, sans-serif",
    Font.MONO: "'Courier New', Courier, monospace",
}
# In dark mode: our own surface colors, because few people design a second palette.
DARK_GROUND = "#111513"
DARK_SURFACE = "#1b211e"
DARK_TEXT = "#e6ebe8"
DARK_QUIET = "#a3b0a9"
QUIET = "#5f6b65"
_HEADING_SIZES = {1: "28px", 2: "22px", 3: "18px"}
_OWN_UNSUBSCRIBE = re.compile(r'href="\{\{\s*unsubscribe_url\b')
_OWN_ADDRESS = re.compile(r"\{\{\s*postal_address\b")
_WIDE_PADDING = "0 32px"  # left and right of the content
_NARROW_PADDING = "0 12px"  # within columns
_SPLITS = {
    Split.EVEN: ("50%", "50%"),
    Split.WIDE_FIRST: ("66%", "34%"),
    Split.WIDE_LAST: ("34%", "66%"),
}


def html_from_blocks(document: BlockDocument, language: str = "en") -> str:
    """Make the HTML of a checked document; BadBlock names the block that cannot be rendered."""
    made = html_from_mjml(mjml_from_blocks(document, language), language)
    for block in _html_blocks(document.blocks):
        made = made.replace(f"<!--html {block.id}-->", block.html.strip(), 1)
    return made


def mjml_from_blocks(document: BlockDocument, language: str = "en") -> str:
    """Make the MJML source, in which HTML blocks are only marked."""
    theme = document.theme
    writer = _Writer(document, language)
    sections: list[str] = []
    for is_columns, blocks in groupby(
        document.blocks, lambda block: isinstance(block, ColumnsBlock)
    ):
        if is_columns:
            sections += [
                writer.columns(block) for block in blocks if isinstance(block, ColumnsBlock)
            ]
        else:
            sections.append(writer.section([b for b in blocks if not isinstance(b, ColumnsBlock)]))
    content = "\n".join(sections) or writer.section([])
    return (
        f"<mjml>\n{_head(theme, language)}\n"
        f'<mj-body background-color="{theme.background}" width="{theme.width}px" '
        'css-class="ground">\n'
        f"{writer.top()}\n"
        f'<mj-wrapper background-color="{theme.surface}" border-radius="{theme.corner}px" '
        f'padding="20px 0" css-class="surface">\n{content}\n</mj-wrapper>\n'
        f"{writer.footer()}\n</mj-body>\n</mjml>"
    )


def _html_blocks(blocks: Sequence[Block]) -> list[HtmlBlock]:
    found: list[HtmlBlock] = []
    for block in blocks:
        if isinstance(block, HtmlBlock):
            found.append(block)
        elif isinstance(block, ColumnsBlock):
            found += [each for column in block.columns for each in _html_blocks(column)]
    return found


def _head(theme: Theme, language: str) -> str:
    direction = direction_of(language)
    schemes = "light dark" if theme.follows_dark_mode else "light"
    return (
        "<mj-head>\n<mj-attributes>\n"
        f'<mj-all font-family="{FONTS[theme.font]}" />\n'
        f'<mj-text color="{theme.text}" font-size="16px" line-height="1.55" padding="8px 0" />\n'
        f'<mj-section padding="0" direction="{direction}" />\n'
        f'<mj-column direction="{direction}" />\n'
        '<mj-image padding="8px 0" /><mj-button padding="12px 0" />\n'
        "</mj-attributes>\n"
        f'<mj-raw><meta name="color-scheme" content="{schemes}" />'
        f'<meta name="supported-color-schemes" content="{schemes}" /></mj-raw>\n'
        f"<mj-style>{_style(theme, schemes)}</mj-style>\n</mj-head>"
    )


def _style(theme: Theme, schemes: str) -> str:
    style = f":root {{ color-scheme: {schemes}; supported-color-schemes: {schemes}; }}\n"
    if not theme.follows_dark_mode:
        return style
    link = readable_colour(theme.link, DARK_SURFACE)
    return style + (
        "@media (prefers-color-scheme: dark) {\n"
        f"body, .ground {{ background-color: {DARK_GROUND} !important; }}\n"
        f".surface, .surface > table {{ background: {DARK_SURFACE} !important; "
        f"background-color: {DARK_SURFACE} !important; }}\n"
        f".ink div, .ink h1, .ink h2, .ink h3, .ink p, .ink li "
        f"{{ color: {DARK_TEXT} !important; }}\n"
        f".quiet div, .quiet p {{ color: {DARK_QUIET} !important; }}\n"
        f".ink a, .quiet a {{ color: {link} !important; }}\n"
        ".line p { border-top-color: #3a453f !important; }\n}\n"
    )


class _Writer:
    """Writes the elements of one document."""

    def __init__(self, document: BlockDocument, language: str) -> None:
        self._document = document
        self._theme = document.theme
        is_rtl = direction_of(language) == "rtl"
        self._sides = {
            Align.START: "right" if is_rtl else "left",
            Align.CENTER: "center",
            Align.END: "left" if is_rtl else "right",
        }

    def top(self) -> str:
        """The logo, or empty space."""
        theme = self._theme
        elements = ""
        logo = theme.logo
        if logo.src:
            elements += _element(
                "mj-image",
                src=_address(logo.src),
                alt=logo.alt,
                href=logo.href,
                width=f"{logo.width}px",
                padding="16px 0 20px",
            )
        elements = elements or '<mj-spacer height="24px" />'
        return (
            f'<mj-section padding="{_WIDE_PADDING}"><mj-column>{elements}</mj-column></mj-section>'
        )

    def footer(self) -> str:
        """Why you get this, how to unsubscribe, who sends it: fields that the list fills."""
        colour = self._quiet_colour()
        with speaking(ENGLISH):
            why = _escaped(
                str(_("You are receiving this because you subscribed to {list}.", list="\0"))
            ).replace("\0", "{{ list_title }}")
            unsubscribe = _escaped(str(_("Unsubscribe")))
            view = _escaped(str(_("View in browser")))
        own = ""
        if self._theme.footer.strip():
            own = self._quiet(html_of_text(self._theme.footer, link_colour=colour, gap="8px"))
        links = [_quiet_link("unsubscribe_url", unsubscribe, colour)]
        if self._theme.has_view_link:  # not above the content, where inboxes would show it
            links.append(_quiet_link("view_url", view, colour))
        line = f"{why}<br />{' &nbsp;·&nbsp; '.join(links)}<br />{{{{ postal_address }}}}"
        if _OWN_UNSUBSCRIBE.search(own):  # in the author's own words, in any language
            line = "" if _OWN_ADDRESS.search(own) else "{{ postal_address }}"
        return (
            f'<mj-section padding="16px 32px 32px"><mj-column>{own}'
            f"{self._quiet(line) if line else ''}</mj-column></mj-section>"
        )

    def _quiet_colour(self) -> str:
        return readable_colour(QUIET, self._theme.background)

    def _quiet(self, content: str, padding: str = "4px 0") -> str:
        return (
            f'<mj-text css-class="quiet" align="center" font-size="13px" line-height="1.5" '
            f'color="{self._quiet_colour()}" padding="{padding}">{content}</mj-text>'
        )

    def section(self, blocks: Sequence[PlainBlock]) -> str:
        written = "\n".join(map(self._written, blocks))
        return (
            f'<mj-section padding="{_WIDE_PADDING}"><mj-column>{written}</mj-column></mj-section>'
        )

    def columns(self, block: ColumnsBlock) -> str:
        widths: Sequence[str] = ()
        if len(block.columns) == 2:
            widths = _SPLITS[block.split]
        columns = []
        for at, column in enumerate(block.columns):
            width = f' width="{widths[at]}"' if widths else ""
            written = "\n".join(map(self._written, column))
            columns.append(
                f'<mj-column{width} vertical-align="top" padding="{_NARROW_PADDING}">'
                f"{written}</mj-column>"
            )
        return f'<mj-section padding="0 20px">{"".join(columns)}</mj-section>'

    def _written(self, block: PlainBlock) -> str:
        """One block; BadBlock names it if its text or its fields are not valid."""
        try:
            return self._element(block)
        except BadInput as error:
            label = block_label(self._document, block)
            raise BadBlock(_("{block}: {why}", block=label, why=error), block.id) from None

    def _element(self, block: PlainBlock) -> str:
        match block:
            case HeadingBlock():
                return self._heading(block.text, block.level, self._sides[block.align])
            case TextBlock():
                return self._text(block.text, self._sides[block.align])
            case PictureBlock():
                return self._picture(block)
            case ButtonBlock():
                return self._button(block)
            case DividerBlock():
                colour = block.colour or "#dfe5e1"
                return _element(
                    "mj-divider",
                    border_width="1px",
                    border_color=colour,
                    padding="16px 0",
                    css_class="line",
                )
            case SpaceBlock():
                return f'<mj-spacer height="{block.height}px" />'
            case ArticlesBlock():
                return "\n".join(self._article(each, block.more) for each in block.articles)
            case SocialBlock():
                return self._social(block)
            case HtmlBlock():
                _check_fields(block.html)
                return f'<mj-text css-class="ink"><!--html {block.id}--></mj-text>'

    def _heading(self, text: str, level: int, side: str, href: str = "") -> str:
        size = _HEADING_SIZES[level]
        words = _escaped_field_text(text)
        if href:
            words = f'<a href="{_url(href)}" style="color:{self._theme.link}">{words}</a>'
        style = f"margin:0;font-size:{size};line-height:1.25;font-weight:700"
        style += f";color:{self._theme.heading}"
        return (
            f'<mj-text css-class="ink" align="{side}" padding="12px 0 6px" font-size="{size}" '
            f'line-height="1.25" color="{self._theme.heading}">'
            f'<h{level} style="{style}">{words}</h{level}></mj-text>'
        )

    def _text(self, text: str, side: str) -> str:
        content = html_of_text(text, link_colour=self._theme.link)
        _check_fields(content)
        return f'<mj-text css-class="ink" align="{side}">{content}</mj-text>'

    def _picture(self, block: PictureBlock) -> str:
        if not block.src:
            return ""
        return _element(
            "mj-image",
            src=_address(block.src),
            alt="" if block.is_decorative else block.alt,
            href=block.href,
            width=f"{min(block.width, self._theme.width)}px" if block.width else "",
            align=self._sides[block.align],
            border_radius=f"{min(self._theme.corner, 8)}px",
        )

    def _button(self, block: ButtonBlock) -> str:
        theme = self._theme
        attributes = _attributes(
            href=block.href or "#",
            background_color=block.colour or theme.button,
            color=theme.button_text,
            align=self._sides[block.align],
            border_radius=f"{theme.corner}px",
            inner_padding="13px 26px",
            font_size="16px",
            font_weight="600",
            line_height="1.3",
            width="100%" if block.is_wide else "",
        )
        return f"<mj-button{attributes}>{_escaped_field_text(block.text)}</mj-button>"

    def _article(self, article: Article, more: str) -> str:
        elements = []
        if article.src:
            elements.append(
                _element(
                    "mj-image",
                    src=_address(article.src),
                    alt=article.alt,
                    href=article.href,
                    padding="16px 0 4px",
                    border_radius=f"{min(self._theme.corner, 8)}px",
                )
            )
        start = self._sides[Align.START]
        if article.title:
            elements.append(self._heading(article.title, 3, start, article.href))
        if article.text:
            elements.append(self._text(article.text, start))
        if more and article.href:
            elements.append(
                f'<mj-text css-class="ink" align="{start}" padding="0 0 12px">'
                f'<a href="{_url(article.href)}" style="color:{self._theme.link}">'
                f"{_escaped_field_text(more)}</a></mj-text>"
            )
        return "\n".join(elements)

    def _social(self, block: SocialBlock) -> str:
        """Names instead of icons: no pictures from elsewhere, readable by everybody."""
        links = [
            f'<a href="{_url(link.href)}" style="color:{self._theme.link}">'
            f"{_escaped_field_text(link.name)}</a>"
            for link in block.links
            if link.href
        ]
        content = " &nbsp;·&nbsp; ".join(links)
        return (
            f'<mj-text css-class="ink" align="{self._sides[block.align]}" font-size="14px">'
            f"{content}</mj-text>"
        )


def _quiet_link(field: str, words: str, colour: str) -> str:
    return f'<a href="{{{{ {field} }}}}" style="color:{colour}">{words}</a>'


def _element(name: str, **attributes: str) -> str:
    return f"<{name}{_attributes(**attributes)} />"


def _attributes(**attributes: str) -> str:
    """Attributes in the order given; empty ones are left out, except an alt text."""
    return "".join(
        f' {name.replace("_", "-")}="{_escaped_field_text(value)}"'
        for name, value in attributes.items()
        if value or name == "alt"
    )


def _address(source: str) -> str:
    """A path of this installation becomes a web address when the message is compiled."""
    return "{{ site_url }}" + source if source.startswith("/") else source


def _url(url: str) -> str:
    return _escaped_field_text(url or "#")


def _escaped(text: str) -> str:
    return html.escape(text)


def _escaped_field_text(text: str) -> str:
    """Escape a text with merge fields; BadTemplate if a field is not valid."""
    parse(text)
    return html.escape(text)


def _check_fields(content: str) -> None:
    if has_tags(content):
        compile_body(content, is_html=True)
    elif "{{" in content or "<" in content:
        compile_html(content)
