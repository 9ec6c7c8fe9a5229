"""What is wrong with the bodies of a message, each in a sentence for its author."""

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
    """The first people of a list, for what they have in common."""

    size: int
    having: dict[str, int]  # how many of them have an attribute that is not blank
    is_all: bool  # there is nobody else

    @property
    def fields(self) -> list[str]:
        """Attributes that at least one of them has."""
        return sorted(self.having)


def warnings_about(html: str | None, text: str | None, html_bytes: int) -> list[Text]:
    """`html_bytes` are those of the mail, which has a foot."""
    document = LexborHTMLParser(html or "")
    return [
        *_about_format(html or ""),
        *_about_size(html_bytes),
        *_about_parts(html, text),
        *_about_links(document),
        *_about_pictures(document),
    ]


def fitting_kind(html: str) -> str:
    """The format a body seems to be written in, if that is not the one it has."""
    unfit = format_mismatch(html)
    return _FITTING[unfit] if unfit else ""


def _about_format(html: str) -> Iterator[Text]:
    match format_mismatch(html):
        case FormatMismatch.TEXT_AS_HTML:
            yield _(
                "This is plain text, but its format is HTML: its lines will run together. "
                "In Markdown, line breaks and paragraphs stay."
            )
        case FormatMismatch.HTML_AS_MARKDOWN:
            yield _(
                "This is a whole HTML document, but its format is Markdown, which changes how it "
                "looks."
            )


def _about_size(html_bytes: int) -> Iterator[Text]:
    if html_bytes > GMAIL_CLIPS_BYTES:
        yield _(
            "The HTML has {size} kB: Gmail cuts off what is over 102 kB, and hides the link to "
            "leave.",
            size=html_bytes // 1024,
        )


def _about_parts(html: str | None, text: str | None) -> Iterator[Text]:
    if html is None:
        yield _("There is no HTML: everybody gets the text.")
    elif text is not None and not text.strip():
        yield _("The text part is empty: leave it out, or write it.")


def _about_links(document: LexborHTMLParser) -> Iterator[Text]:
    """Those that lead nowhere; where the others lead is a matter of spam signs."""
    hrefs = [
        (node.attributes.get("href") or "").strip()
        for node in document.css("a, area")
        if "href" in node.attributes
    ]
    literal = [href for href in hrefs if not href.startswith("{{")]
    empty = sum(href in ("", "#") for href in literal)
    relative = [href for href in literal if href not in ("", "#") and ":" not in href]
    if empty:
        yield _("Links that lead nowhere: {count}.", count=empty)
    if relative:
        yield _(
            "Links that are relative, and work in no mail: {links}. Begin them with https://.",
            links=_some(relative),
        )


def _about_pictures(document: LexborHTMLParser) -> Iterator[Text]:
    for why, sources in unseen_pictures(document).items():
        yield _about_unseen(why, _some(sources))
    nameless = sum("alt" not in node.attributes for node in document.css("img"))
    if nameless:
        yield _(
            "Pictures without a description (alt), which many people see instead: {count}.",
            count=nameless,
        )


def _about_unseen(why: UnseenReason, pictures: str) -> Text:
    match why:
        case UnseenReason.NO_ADDRESS:
            return _("There are pictures without an address (src), so nobody can see them.")
        case UnseenReason.RELATIVE:
            return _(
                "Pictures without a web address, which nobody can see: {pictures}. Put them on a "
                "website and use their full address, beginning with https://.",
                pictures=pictures,
            )
        case UnseenReason.OWN_COMPUTER:
            return _(
                "Pictures on your own computer, which nobody else can see: {pictures}. Put them on "
                "a website and use their address, beginning with https://.",
                pictures=pictures,
            )
        case UnseenReason.ATTACHMENT:
            return _(
                "Pictures that would have to be attached (cid:), which nobody can see, because "
                "messages have no attachments: {pictures}. Put them on a website and use their "
                "address, beginning with https://.",
                pictures=pictures,
            )
        case UnseenReason.PRIVATE_HOST:
            return _(
                "Pictures on a private network, which people outside of it cannot see: {pictures}. "
                "Put them on a public website.",
                pictures=pictures,
            )
        case UnseenReason.IN_THE_HTML:
            return _(
                "Pictures written into the HTML itself (data:), which Gmail and Outlook do not "
                "show: {pictures}. Put them on a website and use their address, beginning with "
                "https://.",
                pictures=pictures,
            )
        case UnseenReason.UNKNOWN_SCHEME:
            return _(
                "Pictures with an address that mail programs cannot open: {pictures}. Use one that "
                "begins with https://.",
                pictures=pictures,
            )


def about_fields(fields: frozenset[str], people: AudienceSample) -> Iterator[Text]:
    """Merge fields that nobody has, as far as can be told."""
    unknown = sorted(fields - set(people.having) - set(ALWAYS_KNOWN))
    if not unknown or not people.size:
        return
    names = ", ".join(f"{{{{ {name} }}}}" for name in unknown)
    if people.is_all:
        yield _(
            "Nobody on the list has {names}: the place stays empty, or says its default.",
            names=names,
        )
        return
    yield ngettext(
        "The first person of the list has no {names}: misspelt, perhaps?",
        "None of the first {count} people of the list has {names}: misspelt, perhaps?",
        people.size,
        names=names,
    )


def about_missing(without_default: list[str], people: AudienceSample) -> Iterator[Text]:
    """Fields that leave a gap in the mails of some, but not of all."""
    for name in without_default[:PLACES_SHOWN]:
        missing = people.size - people.having.get(name, people.size)
        if not missing or name in ALWAYS_KNOWN:
            continue
        example = f'{{{{ {name} | default("…") }}}}'
        if people.is_all:
            yield ngettext(
                "{count} of {size} people has no {name}, and reads nothing there. Give it a "
                "default: {example}",
                "{count} of {size} people have no {name}, and read nothing there. Give it a "
                "default: {example}",
                missing,
                size=people.size,
                name=name,
                example=example,
            )
        else:
            yield ngettext(
                "Of the first {size} people, {count} has no {name}, and reads nothing there. Give "
                "it a default: {example}",
                "Of the first {size} people, {count} have no {name}, and read nothing there. Give "
                "it a default: {example}",
                missing,
                size=people.size,
                name=name,
                example=example,
            )


def _some(places: list[str]) -> str:
    unique = list(dict.fromkeys(places))
    more = ", …" if len(unique) > PLACES_SHOWN else ""
    return ", ".join(unique[:PLACES_SHOWN]) + more
