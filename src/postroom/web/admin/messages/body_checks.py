"""Checks of a message's bodies, each result a sentence for its author."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from selectolax.lexbor import LexborHTMLParser

from postroom.domain.texts import Text, _, ngettext
from postroom.mail.markdown import FormatMismatch, format_mismatch
from postroom.mail.pictures import UnseenReason, unseen_pictures

GMAIL_CLIPS_BYTES = 102 * 1024
PLACES_SHOWN = 5  # links, pictures or fields in one sentence
ALWAYS_KNOWN = ("email", "unsubscribe_url")
_FITTING = {FormatMismatch.TEXT_AS_HTML: "markdown", FormatMismatch.HTML_AS_MARKDOWN: "html"}


class AudienceSample(msgspec.Struct, frozen=True):
    """The first subscribers of a list, as a sample of their attributes."""

    size: int
    having: dict[str, int]  # how many of them have an attribute that is not blank
    is_all: bool  # there is nobody else


def warnings_about(html: str | None, text: str | None, html_bytes: int) -> Iterator[Text]:
    """`html_bytes` is the size in the email, with the footer."""
    document = LexborHTMLParser(html or "")
    match format_mismatch(html or ""):
        case FormatMismatch.TEXT_AS_HTML:
            yield _(
                "This is plain text, but the format is HTML, so its lines will run together. "
                "Markdown keeps line breaks and paragraphs."
            )
        case FormatMismatch.HTML_AS_MARKDOWN:
            yield _(
                "This is an HTML document, but the format is Markdown, which changes how it looks."
            )
    if html_bytes > GMAIL_CLIPS_BYTES:
        yield _(
            "The HTML is {size} kB. Gmail clips emails over 102 kB, which hides the unsubscribe "
            "link.",
            size=html_bytes // 1024,
        )
    if html is None:
        yield _("This message has no HTML. Everybody gets the text.")
    elif text is not None and not text.strip():
        yield _("The text part is empty. Leave it out or write it.")
    yield from _about_links(document)
    for reason, sources in unseen_pictures(document).items():
        yield _about_unseen(reason, _first_few(sources))
    nameless = sum("alt" not in node.attributes for node in document.css("img"))
    if nameless:
        yield _("Images without alt text, which many people see instead: {count}.", count=nameless)


def fitting_kind(html: str) -> str:
    """The format that a body seems to be written in, if it is not the chosen one."""
    mismatch = format_mismatch(html)
    return _FITTING[mismatch] if mismatch else ""


def _about_links(document: LexborHTMLParser) -> Iterator[Text]:
    """Links without a target; the targets of the others are checked as spam signs."""
    hrefs = [
        (node.attributes.get("href") or "").strip()
        for node in document.css("a, area")
        if "href" in node.attributes
    ]
    literal = [href for href in hrefs if not href.startswith("{{")]
    empty = sum(href in ("", "#") for href in literal)
    relative = [href for href in literal if href not in ("", "#") and ":" not in href]
    if empty:
        yield _("Links without a target: {count}.", count=empty)
    if relative:
        yield _(
            "Relative links, which do not work in emails: {links}. Start them with https://.",
            links=_first_few(relative),
        )


def _about_unseen(reason: UnseenReason, pictures: str) -> Text:
    match reason:
        case UnseenReason.NO_ADDRESS:
            return _("Some images have no address (src), so nobody can see them.")
        case UnseenReason.RELATIVE:
            return _(
                "Images without a web address, which nobody can see: {pictures}. Put them on a "
                "website and use their full address, starting with https://.",
                pictures=pictures,
            )
        case UnseenReason.OWN_COMPUTER:
            return _(
                "Images on your own computer, which nobody else can see: {pictures}. Put them on "
                "a website and use their address, starting with https://.",
                pictures=pictures,
            )
        case UnseenReason.ATTACHMENT:
            return _(
                "Attached images (cid:), which nobody can see because messages have no "
                "attachments: {pictures}. Put them on a website and use their address, starting "
                "with https://.",
                pictures=pictures,
            )
        case UnseenReason.PRIVATE_HOST:
            return _(
                "Images on a private network, which nobody outside it can see: {pictures}. Put "
                "them on a public website.",
                pictures=pictures,
            )
        case UnseenReason.IN_THE_HTML:
            return _(
                "Images embedded in the HTML (data:), which Gmail and Outlook do not show: "
                "{pictures}. Put them on a website and use their address, starting with https://.",
                pictures=pictures,
            )
        case UnseenReason.UNKNOWN_SCHEME:
            return _(
                "Images with an address that email programs can’t open: {pictures}. Use one that "
                "starts with https://.",
                pictures=pictures,
            )


def about_fields(fields: frozenset[str], people: AudienceSample) -> Iterator[Text]:
    """Merge fields that nobody in the sample has."""
    unknown = sorted(fields - set(people.having) - set(ALWAYS_KNOWN))
    if not unknown or not people.size:
        return
    names = ", ".join(f"{{{{ {name} }}}}" for name in unknown)
    if people.is_all:
        yield _(
            "Nobody on the list has {names}. The field stays empty or shows its default.",
            names=names,
        )
        return
    yield ngettext(
        "The first subscriber of the list has no {names}. Is it misspelled?",
        "None of the first {count} subscribers of the list has {names}. Is it misspelled?",
        people.size,
        names=names,
    )


def about_missing(without_default: list[str], people: AudienceSample) -> Iterator[Text]:
    """Fields that are missing for some subscribers, but not for all."""
    for name in without_default[:PLACES_SHOWN]:
        missing = people.size - people.having.get(name, people.size)
        if not missing or name in ALWAYS_KNOWN:
            continue
        example = f'{{{{ {name} | default("…") }}}}'
        if people.is_all:
            yield ngettext(
                "{count} of {size} subscribers has no {name} and sees nothing there. Add a "
                "default: {example}",
                "{count} of {size} subscribers have no {name} and see nothing there. Add a "
                "default: {example}",
                missing,
                size=people.size,
                name=name,
                example=example,
            )
        else:
            yield ngettext(
                "Of the first {size} subscribers, {count} has no {name} and sees nothing there. "
                "Add a default: {example}",
                "Of the first {size} subscribers, {count} have no {name} and see nothing there. "
                "Add a default: {example}",
                missing,
                size=people.size,
                name=name,
                example=example,
            )


def _first_few(places: list[str]) -> str:
    unique = list(dict.fromkeys(places))
    more = ", …" if len(unique) > PLACES_SHOWN else ""
    return ", ".join(unique[:PLACES_SHOWN]) + more
