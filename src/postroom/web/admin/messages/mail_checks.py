"""A message looked at before it goes out: as one person would get it, and what is wrong with it.

The mail is made by the same steps as a sender makes it, and read back: what is shown is what is
sent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from email.utils import parseaddr

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.domain.address import Address, BadAddress, parse_address, parse_mailbox
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message
from postroom.domain.texts import Text, _
from postroom.flow.render import NOBODYS_GUID, Site, message_parts
from postroom.mail.merge import Field, parse
from postroom.mail.mime import compile_mail, format_date, message_id
from postroom.mail.spam.finding import SpamFinding
from postroom.mail.spam.page import INLINE
from postroom.mail.spam.signs import CheckedMail, spam_signs
from postroom.parsing import in_thread
from postroom.records import subscribers
from postroom.storage.port import Tables
from postroom.web.admin.messages.body_checks import (
    AudienceSample,
    about_fields,
    about_missing,
    fitting_kind,
    warnings_about,
)
from postroom.web.admin.messages.spam_advice import SpamAdviceGroup, advise
from postroom.web.mail_view import MailView, read_mail

PEOPLE_SAMPLED = 200  # whose attributes are looked at: a page reads no list
INBOX_CHARS_SHOWN = 140  # of the text, beside the subject
_BEGINNING_CHARS = 10 * INBOX_CHARS_SHOWN  # with the blanks between words
_UNREAD = frozenset(("head", "title", "script", "style", "template", "noscript"))
_PADDING = re.compile("[\u00ad\u034f\u200b-\u200f\u2060\ufeff]")  # preview texts are padded with it
_MADE_UP = "student1@contoso.edu"


class PreviewPerson(msgspec.Struct, frozen=True):
    """The recipient of the preview."""

    address: Address
    attributes: dict[str, str]
    is_made_up: bool = False


class WrittenMessage(msgspec.Struct, frozen=True):
    """The current content of a message, saved or not."""

    message: Message
    mailing_list: MailingList | None  # gone, perhaps, after the message went out
    html: str | None
    text: str | None


class InboxLine(msgspec.Struct, frozen=True):
    """What an inbox shows of an email before it is opened."""

    sender: str
    subject: str
    beginning: str


class CheckReport(msgspec.Struct, frozen=True):
    """A preview and its warnings; no email if the body is empty or the template invalid."""

    person: PreviewPerson
    mail_view: MailView | None = None
    warnings: list[str | Text] = []
    mistake: str = ""
    signs: list[SpamAdviceGroup] = []  # of spam, the heaviest first
    inbox: InboxLine | None = None
    fitting_kind: str = ""  # the format the body seems to be written in, if it is another one


async def find_person(tables: Tables, list_name: str, text: str) -> tuple[PreviewPerson, str]:
    """The chosen subscriber, or the sample one with an error if there is no such subscriber."""
    if not text.strip():
        return made_up(), ""
    try:
        address = parse_address(text)
    except BadAddress as error:
        return made_up(), str(error)
    found = await subscribers.find(tables, list_name, address.storage_key)
    if found is None or found.value.gone:
        return made_up(), str(_("{address} is not on this list.", address=address.typed))
    return PreviewPerson(address, found.value.attributes), ""


def made_up() -> PreviewPerson:
    return PreviewPerson(parse_address(_MADE_UP), {}, is_made_up=True)


async def sample(tables: Tables, list_name: str) -> AudienceSample:
    shelf = await subscribers.scan_people(tables, list_name, limit=PEOPLE_SAMPLED)
    people = [one for one in shelf.people if not one.gone]
    having = Counter(
        name for one in people for name, value in one.attributes.items() if value.strip()
    )
    return AudienceSample(len(people), dict(having), is_all=shelf.next is None)


async def check(
    written: WrittenMessage,
    person: PreviewPerson,
    people: AudienceSample,
    site: Site,
    now: datetime,
) -> CheckReport:
    """In a thread, because a body of two megabytes takes long."""
    return await in_thread(_look_at, written, person, people, site, now)


def _look_at(
    written: WrittenMessage,
    person: PreviewPerson,
    people: AudienceSample,
    site: Site,
    now: datetime,
) -> CheckReport:
    if written.html is None and written.text is None:
        return CheckReport(person)
    try:
        bare = _fields_without_default(written)  # before the foot: a mistake is in their own words
        mail_view, fields = _letter(written, person, site, now)
        signs = advise(_spam_signs(written))
    except ValueError as error:  # a template or a header that cannot be sent
        return CheckReport(person, mistake=str(error))
    html_bytes = len((mail_view.html or "").encode())
    return CheckReport(
        person,
        mail_view,
        [
            *warnings_about(written.html, written.text, html_bytes),
            *about_fields(fields, people),
            *about_missing(bare, people),
        ],
        signs=signs,
        inbox=_inbox_line(mail_view),
        fitting_kind=fitting_kind(written.html or ""),
    )


def _fields_without_default(written: WrittenMessage) -> list[str]:
    """Fields without a default; BadTemplate if one is not valid."""
    segments = [
        *parse(written.message.subject),
        *parse(written.html or "", is_html=True),
        *parse(written.text or ""),
    ]
    bare = [each.name for each in segments if isinstance(each, Field) and not each.fallback]
    return list(dict.fromkeys(bare))


def _inbox_line(mail_view: MailView) -> InboxLine:
    name, address = parseaddr(mail_view.sender)
    return InboxLine(name or address, mail_view.subject, _beginning(mail_view))


def _beginning(mail_view: MailView) -> str:
    """As much text as inboxes show, including hidden preheaders."""
    if mail_view.html is None:
        return _clipped((mail_view.text or "")[:_BEGINNING_CHARS])
    words = ""
    for text in _texts_of(LexborHTMLParser(mail_view.html)):
        words = (words + text).lstrip()
        if len(words) > _BEGINNING_CHARS:
            break
    return _clipped(words)


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


def _clipped(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= INBOX_CHARS_SHOWN else words[: INBOX_CHARS_SHOWN - 1] + "…"


def _letter(
    written: WrittenMessage, person: PreviewPerson, site: Site, now: datetime
) -> tuple[MailView, frozenset[str]]:
    """The sample subscriber has the field names as values, so that they are visible."""
    message = written.message
    parts = message_parts(message, written.mailing_list, written.html, written.text, site)
    compiled = compile_mail(parts)
    sender = parts.sender.address
    made_up = {name: f"[{name}]" for name in compiled.fields} if person.is_made_up else {}
    source = compiled.splice(
        person.address,
        {**made_up, **person.attributes},
        message_id=message_id(site.secret.encode(), "preview", NOBODYS_GUID, sender.domain),
        date=format_date(now),
        unsubscribe_url=site.unsubscribe_url(message.list_name, NOBODYS_GUID),
        eight_bit=True,
    )
    return read_mail(source), compiled.fields


def _spam_signs(written: WrittenMessage) -> list[SpamFinding]:
    mail = CheckedMail(
        subject=written.message.subject,
        sender_domain=parse_mailbox(written.message.sender).address.domain,
        html=written.html,
        text=written.text,
        postal=written.mailing_list.postal_address if written.mailing_list else None,
    )
    return spam_signs(mail)
