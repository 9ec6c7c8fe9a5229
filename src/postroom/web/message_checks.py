"""Checks of a message before it is sent: a preview as one person would get it, and its warnings.

The email is created by the same steps as in a sender and then parsed, so the preview shows exactly
what is sent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import parseaddr

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.actions import manage_media
from postroom.domain.address import Address, BadAddress, parse_address, parse_mailbox
from postroom.domain.attachment import HEAVY_BYTES, Attachment, encoded_bytes, total_bytes
from postroom.domain.block import parse_document
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import BodyKind, Message
from postroom.domain.picture import ids_in
from postroom.domain.texts import Text, _, clipped, ngettext
from postroom.flow.render import NOBODYS_GUID, Site, message_parts
from postroom.mail.control_flow import STEPS_MANY, STEPS_MAX, Regions
from postroom.mail.finishing import MessageFields
from postroom.mail.markdown import FormatMismatch, format_mismatch
from postroom.mail.merge import Field, parse
from postroom.mail.mime import CompiledMail, compile_mail, format_date, message_id_end
from postroom.mail.pictures import UnseenReason, unseen_pictures, why_unseen
from postroom.mail.spam.page import INLINE
from postroom.mail.spam.signs import CheckedMail, spam_signs
from postroom.parsing import in_thread
from postroom.records import subscribers
from postroom.records.bodies import MessageBodies
from postroom.storage.port import Tables
from postroom.web import labels
from postroom.web.context import WebContext
from postroom.web.mail_view import MailView, read_mail
from postroom.web.spam_advice import SpamAdvice, advise
from postroom.writing.block_checks import (
    PICTURE_BYTES_MAX,
    PICTURES_BYTES_MAX,
    BlockFinding,
    Pictures,
    check_blocks,
)
from postroom.writing.body_checks import check_fields, check_typed

PEOPLE_SAMPLED = 200  # for their attributes; reading a whole list would take too long
INBOX_CHARS_SHOWN = 140  # of the text, beside the subject
_BEGINNING_CHARS = 10 * INBOX_CHARS_SHOWN  # including white space
_UNREAD = frozenset(("head", "title", "script", "style", "template", "noscript"))
_PADDING = re.compile("[\u00ad\u034f\u200b-\u200f\u2060\ufeff]")  # pads preview texts
SAMPLE_ADDRESS = "student1@contoso.edu"
GMAIL_CLIPS_BYTES = 102 * 1024
PLACES_SHOWN = 5  # links, pictures or fields in one sentence
ALWAYS_KNOWN = ("email", "unsubscribe_url", *MessageFields.__struct_fields__)
_FITTING_KINDS = {
    None: "",
    FormatMismatch.TEXT_AS_HTML: "markdown",
    FormatMismatch.HTML_AS_MARKDOWN: "html",
}


class AudienceSample(msgspec.Struct, frozen=True):
    """The first subscribers of a list, as a sample of their attributes."""

    size: int
    having: dict[str, int]  # how many of them have an attribute that is not blank
    is_all: bool  # there is nobody else
    longest: dict[str, str] = {}  # the attributes of the one with the longest texts


class PreviewPerson(msgspec.Struct, frozen=True):
    """The recipient of the preview."""

    address: Address
    attributes: dict[str, str] | None = None  # None for the sample person


class WrittenMessage(msgspec.Struct, frozen=True):
    """The current content of a message, saved or not."""

    message: Message
    mailing_list: MailingList | None  # None if it was deleted after sending
    content: MessageBodies

    @property
    def html(self) -> str | None:
        return self.content.html

    @property
    def text(self) -> str | None:
        return self.content.text

    @property
    def typed(self) -> tuple[BodyKind, str]:
        """What the author sees in the editor."""
        source = self.content.source
        return (source.kind, source.text) if source else (BodyKind.HTML, self.html or "")


class CheckReport(msgspec.Struct, frozen=True):
    """A preview and its warnings; no email if the body is empty or the template invalid."""

    mail_view: MailView | None = None
    warnings: list[str | Text] = []
    mistake: str = ""
    person_mistake: Text | str = ""  # why the preview is for the sample person instead
    signs: list[tuple[Text, list[SpamAdvice]]] = []  # of spam, the heaviest first
    sender_name: str = ""  # with the subject and the beginning, what an inbox shows
    beginning: str = ""
    findings: list[BlockFinding] = []  # about single blocks or lines
    fitting_kind: str = ""  # the format the body seems to be written in, if it is another one


async def check(context: WebContext, written: WrittenMessage, read_as: str) -> CheckReport:
    """Check a message as the subscriber with this address gets it; without one, a sample person."""
    tables = context.storage.tables
    list_name = written.message.list_name
    person, mistake = await _find_person(tables, list_name, read_as)
    people = await sample(tables, list_name)
    now = context.clock.now()
    # In a thread, because checking a body of two megabytes takes a while.
    pictures = await manage_media.pictures_in(tables, written.html)
    report = await in_thread(_run_checks, written, person, people, pictures, context.site, now)
    return msgspec.structs.replace(report, person_mistake=mistake)


async def _find_person(
    tables: Tables, list_name: str, text: str
) -> tuple[PreviewPerson, Text | str]:
    """The chosen subscriber, or the sample person with an error if there is no such subscriber."""
    sample_person = PreviewPerson(parse_address(SAMPLE_ADDRESS))
    if not text.strip():
        return sample_person, ""
    try:
        address = parse_address(text)
    except BadAddress as error:
        return sample_person, str(error)
    found = await subscribers.find(tables, list_name, address.storage_key)
    if found is None or found.value.inactive_reason:
        return sample_person, _("{address} is not on this list.", address=address.typed)
    return PreviewPerson(address, found.value.attributes), ""


async def sample(tables: Tables, list_name: str) -> AudienceSample:
    """The first subscribers of a list, for their attributes."""
    page = await subscribers.scan_people(tables, list_name, limit=PEOPLE_SAMPLED)
    people = [one for one in page.people if not one.inactive_reason]
    having = Counter(
        name for one in people for name, value in one.attributes.items() if value.strip()
    )
    longest = max((one.attributes for one in people), key=_chars, default={})
    return AudienceSample(len(people), dict(having), page.next is None, longest)


def _chars(attributes: Mapping[str, str]) -> int:
    return sum(map(len, attributes.values()))


def _run_checks(
    written: WrittenMessage,
    person: PreviewPerson,
    people: AudienceSample,
    pictures: Pictures,
    site: Site,
    now: datetime,
) -> CheckReport:
    if written.html is None and written.text is None:
        return CheckReport()
    postal = written.mailing_list.postal_address if written.mailing_list else None
    try:
        # Before the footer is added, so that a mistake quotes what the author wrote.
        without_default = _fields_without_default(written)
        mail_view, compiled = _render(written, person, site, now)
        mail = CheckedMail(
            subject=written.message.subject,
            sender_domain=parse_mailbox(written.message.sender).address.domain,
            html=written.html,
            text=written.text,
            postal=postal,
        )
        signs = advise(spam_signs(mail))
    except ValueError as error:  # a template or a header that cannot be sent
        return CheckReport(mistake=str(error), findings=_broken_fields(written, people))
    html_bytes = len((mail_view.html or "").encode())
    name, address = parseaddr(mail_view.sender)
    return CheckReport(
        mail_view,
        [
            *_about_bodies(written, html_bytes),
            *_about_conditions(compiled.regions, people.longest, person.attributes or {}),
            *_about_fields(compiled.fields, people),
            *_about_missing(without_default, people),
            *_about_attachments(written.message.attachments),
            *_about_library(written, pictures),
        ],
        signs=signs,
        sender_name=name or address,
        beginning=_beginning(mail_view),
        findings=_findings(written, people, pictures),
        fitting_kind=_FITTING_KINDS[format_mismatch(written.html or "")],
    )


def _findings(
    written: WrittenMessage, people: AudienceSample, pictures: Pictures
) -> list[BlockFinding]:
    """What is about one block, or one line of the body."""
    kind, typed = written.typed
    if kind is BodyKind.BLOCKS:
        return check_blocks(parse_document(typed), pictures)
    return check_typed(kind, typed, written.html or "", [*people.having, *ALWAYS_KNOWN])


def _broken_fields(written: WrittenMessage, people: AudienceSample) -> list[BlockFinding]:
    kind, typed = written.typed
    if kind is BodyKind.BLOCKS:  # blocks with a broken field are refused with the block's name
        return []
    return check_fields(typed, [*people.having, *ALWAYS_KNOWN])


def _about_library(written: WrittenMessage, pictures: Pictures) -> Iterator[Text]:
    """Pictures of the media library in other formats; blocks have findings of their own."""
    source = written.content.source
    if source and source.kind is BodyKind.BLOCKS:
        return
    missing = len(ids_in([written.html]) - set(pictures))
    if missing:
        yield _(
            "Pictures that are no longer in the media library and will not be shown: {count}.",
            count=missing,
        )
    size = sum(each.size for each in pictures.values())
    heaviest = max((each.size for each in pictures.values()), default=0)
    if size > PICTURES_BYTES_MAX or heaviest > PICTURE_BYTES_MAX:
        yield _(
            "The pictures of the media library total {size} MB, which is slow to load on phones.",
            size=f"{size / 1024**2:.1f}",
        )


def _fields_without_default(written: WrittenMessage) -> list[str]:
    """Merge fields without a default; BadTemplate if one is not valid."""
    segments = [
        *parse(written.message.subject),
        *parse(written.html or "", is_html=True),
        *parse(written.text or ""),
    ]
    names = [each.name for each in segments if isinstance(each, Field) and not each.fallback]
    return list(dict.fromkeys(names))


def _beginning(mail_view: MailView) -> str:
    """As much text as inboxes show, including hidden preheaders."""
    text = ""
    if mail_view.html is None:
        text = (mail_view.text or "")[:_BEGINNING_CHARS]
    else:
        for piece in _texts_of(LexborHTMLParser(mail_view.html)):
            text = (text + piece).lstrip()
            if len(text) > _BEGINNING_CHARS:
                break
    return clipped(" ".join(text.split()), INBOX_CHARS_SHOWN)


def _texts_of(document: LexborHTMLParser) -> Iterator[str]:
    """In reading order, without recursion, because a document may be nested deeply."""
    waiting: list[LexborNode | str] = [document.body] if document.body else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            yield node
        elif node.is_text_node:
            yield _PADDING.sub("", (node.text_content or "")[:_BEGINNING_CHARS])
        elif node.is_element_node and node.tag not in _UNREAD:
            apart = [] if node.tag in INLINE else [" "]
            waiting += [*apart, *reversed(list(node.iter(include_text=True))), *apart]


def _render(
    written: WrittenMessage, person: PreviewPerson, site: Site, now: datetime
) -> tuple[MailView, CompiledMail]:
    """The sample person has the field names as values, so that they are visible."""
    message = written.message
    parts = message_parts(message, written.mailing_list, written.html, written.text, site)
    compiled = compile_mail(parts)
    values = person.attributes
    if values is None:
        values = {name: f"[{name}]" for name in compiled.fields}
    spliced = compiled.splice(
        person.address,
        values,
        message_id=f"<preview{message_id_end(parts.sender.address.domain)}",
        date=format_date(now),
        unsubscribe_url=site.unsubscribe_url(message.list_name, NOBODYS_GUID),
        eight_bit=True,
    )
    return read_mail(spliced.source), compiled


def _about_bodies(written: WrittenMessage, html_bytes: int) -> Iterator[Text]:
    """`html_bytes` is the size in the email, with the footer."""
    html, text = written.html, written.text
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
        yield _("The plain-text version is empty. Write it or leave it out.")
    has_lines = written.typed[0] in (BodyKind.HTML, BodyKind.MJML)
    yield from _about_links(document, has_lines=has_lines)
    for reason, sources in unseen_pictures(document).items():
        yield _about_unseen(reason, _first_few(sources))


def _about_links(document: LexborHTMLParser, *, has_lines: bool) -> Iterator[Text]:
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
    private = [href for href in literal if why_unseen(href) is UnseenReason.PRIVATE_HOST]
    if private and not has_lines:  # else each is a finding with its line
        yield _(
            "Links that work only on your own computer or network: {links}.",
            links=_first_few(private),
        )
    if relative:
        yield _(
            "Relative links, which do not work in emails: {links}. Start them with https://.",
            links=_first_few(relative),
        )


def _about_unseen(reason: UnseenReason, pictures: str) -> Text:
    match reason:
        case UnseenReason.NO_ADDRESS:
            return _("Some pictures have no address (src), so nobody can see them.")
        case UnseenReason.RELATIVE:
            return _(
                "Pictures without a web address, which nobody can see: {pictures}. Upload them "
                "under Media and use the address shown there, or one that starts with https://.",
                pictures=pictures,
            )
        case UnseenReason.OWN_COMPUTER:
            return _(
                "Pictures on your own computer, which nobody else can see: {pictures}. Upload them "
                "under Media and use the address shown there.",
                pictures=pictures,
            )
        case UnseenReason.ATTACHMENT:
            return _(
                "Pictures that refer to an attachment (cid:), which nobody can see: {pictures}. "
                "Upload them under Media and use the address shown there.",
                pictures=pictures,
            )
        case UnseenReason.PRIVATE_HOST:
            return _(
                "Pictures on a private network, which nobody outside it can see: {pictures}. Put "
                "them on a public website.",
                pictures=pictures,
            )
        case UnseenReason.IN_THE_HTML:
            return _(
                "Pictures embedded in the HTML (data:), which Gmail and Outlook do not show: "
                "{pictures}. Upload them under Media and use the address shown there.",
                pictures=pictures,
            )
        case UnseenReason.UNKNOWN_SCHEME:
            return _(
                "Pictures with an address that email programs can’t open: {pictures}. Use one that "
                "starts with https://.",
                pictures=pictures,
            )


def _about_conditions(regions: Regions, *recipients: Mapping[str, str]) -> Iterator[Text]:
    """Conditions that make every email slow, or exceed the limit, for one of these recipients."""
    if any(regions.takes_over(STEPS_MAX, each) for each in recipients):
        yield _(
            "For some subscribers, the conditions and loops take too long or produce too much "
            "text, so parts of the message will be left out. Use fewer or shorter loops."
        )
    elif any(regions.takes_over(STEPS_MANY, each) for each in recipients):
        yield _(
            "The conditions and loops take so long that sending is slow. Use fewer or shorter "
            "loops."
        )


def _about_fields(fields: frozenset[str], people: AudienceSample) -> Iterator[Text]:
    """Merge fields that nobody in the sample has."""
    unknown = sorted(fields - set(people.having) - set(ALWAYS_KNOWN))
    if not unknown or not people.size:
        return
    names = ", ".join(f"{{{{ {name} }}}}" for name in unknown)
    if people.is_all:
        yield _(
            "No subscriber of the list has {names}. The field stays empty or shows its default.",
            names=names,
        )
        return
    yield ngettext(
        "The first subscriber of the list has no {names}. Check the spelling.",
        "None of the first {count} subscribers of the list has {names}. Check the spelling.",
        people.size,
        names=names,
    )


def _about_missing(without_default: list[str], people: AudienceSample) -> Iterator[Text]:
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


def _about_attachments(attached: Sequence[Attachment]) -> Iterator[Text]:
    if total_bytes(attached) > HEAVY_BYTES:
        yield _(
            "With the attachments, every email is {size}. Some servers refuse emails over 10 MB, "
            "and large ones fill mailboxes. Put the files on a website and link to them instead.",
            size=labels.size(encoded_bytes(attached)),
        )


def _first_few(places: list[str]) -> str:
    unique = list(dict.fromkeys(places))
    more = ", …" if len(unique) > PLACES_SHOWN else ""
    return ", ".join(unique[:PLACES_SHOWN]) + more
