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
from postroom.mail.spam_finding import Finding
from postroom.mail.spam_page import INLINE
from postroom.mail.spam_signs import Mail, spam_signs
from postroom.parsing import in_thread
from postroom.records import subscribers
from postroom.storage.port import Tables
from postroom.web.admin.body_checks import (
    Sample,
    about_fields,
    about_missing,
    fitting_kind,
    warnings_about,
)
from postroom.web.admin.spam_sentences import Advices, advise
from postroom.web.letter import Letter, read_letter

PEOPLE_SAMPLED = 200  # whose attributes are looked at: a page reads no list
INBOX_CHARS_SHOWN = 140  # of the text, beside the subject
_BEGINNING_CHARS = 10 * INBOX_CHARS_SHOWN  # with the blanks between words
_UNREAD = frozenset(("head", "title", "script", "style", "template", "noscript"))
_PADDING = re.compile("[\u00ad\u034f\u200b-\u200f\u2060\ufeff]")  # preview texts are padded with it
_MADE_UP = "student1@contoso.edu"


class Person(msgspec.Struct, frozen=True):
    """For whom the mail is made."""

    address: Address
    attributes: dict[str, str]
    is_made_up: bool = False


class Written(msgspec.Struct, frozen=True):
    """What a message says at this moment, saved or not."""

    message: Message
    mailing_list: MailingList | None  # gone, perhaps, after the message went out
    html: str | None
    text: str | None


class InboxLine(msgspec.Struct, frozen=True):
    """What an inbox shows of a mail before it is opened."""

    sender: str
    subject: str
    beginning: str


class Looked(msgspec.Struct, frozen=True):
    """A mail and what to mend; there is none of nothing, nor of a template with a mistake."""

    person: Person
    letter: Letter | None = None
    warnings: list[str | Text] = []
    mistake: str = ""
    signs: list[Advices] = []  # of spam, the heaviest first
    inbox: InboxLine | None = None
    fitting_kind: str = ""  # the format the body seems to be written in, if it is another one


async def find_person(tables: Tables, list_name: str, text: str) -> tuple[Person, str]:
    """Whoever was chosen, and a sentence if it is nobody; the made-up one instead."""
    if not text.strip():
        return made_up(), ""
    try:
        address = parse_address(text)
    except BadAddress as error:
        return made_up(), str(error)
    found = await subscribers.find(tables, list_name, address.storage_key)
    if found is None or found[0].gone:
        return made_up(), str(_("{address} is not on this list.", address=address.typed))
    return Person(address, found[0].attributes), ""


def made_up() -> Person:
    return Person(parse_address(_MADE_UP), {}, is_made_up=True)


async def sample(tables: Tables, list_name: str) -> Sample:
    shelf = await subscribers.look_through(tables, list_name, limit=PEOPLE_SAMPLED)
    people = [one for one in shelf.people if not one.gone]
    having = Counter(
        name for one in people for name, value in one.attributes.items() if value.strip()
    )
    return Sample(len(people), dict(having), is_all=shelf.next is None)


async def look_at(
    written: Written, person: Person, people: Sample, site: Site, now: datetime
) -> Looked:
    """In a thread: a body of two megabytes takes its time."""
    return await in_thread(_look_at, written, person, people, site, now)


def _look_at(written: Written, person: Person, people: Sample, site: Site, now: datetime) -> Looked:
    if written.html is None and written.text is None:
        return Looked(person)
    try:
        bare = _fields_without_default(written)  # before the foot: a mistake is in their own words
        letter, fields = _letter(written, person, site, now)
        signs = advise(_spam_signs(written))
    except ValueError as error:  # a template or a header that cannot be sent
        return Looked(person, mistake=str(error))
    html_bytes = len((letter.html or "").encode())
    return Looked(
        person,
        letter,
        [
            *warnings_about(written.html, written.text, html_bytes),
            *about_fields(fields, people),
            *about_missing(bare, people),
        ],
        signs=signs,
        inbox=_inbox_line(letter),
        fitting_kind=fitting_kind(written.html or ""),
    )


def _fields_without_default(written: Written) -> list[str]:
    """Those that leave a gap for whoever has no value; BadTemplate if one is not understood."""
    segments = [
        *parse(written.message.subject),
        *parse(written.html or "", is_html=True),
        *parse(written.text or ""),
    ]
    bare = [each.name for each in segments if isinstance(each, Field) and not each.fallback]
    return list(dict.fromkeys(bare))


def _inbox_line(letter: Letter) -> InboxLine:
    name, address = parseaddr(letter.sender)
    return InboxLine(name or address, letter.subject, _beginning(letter))


def _beginning(letter: Letter) -> str:
    """As much text as inboxes show, also if the mail itself hides it: it is put there for them."""
    if letter.html is None:
        return _clipped((letter.text or "")[:_BEGINNING_CHARS])
    words = ""
    for text in _texts_of(LexborHTMLParser(letter.html)):
        words = (words + text).lstrip()
        if len(words) > _BEGINNING_CHARS:
            break
    return _clipped(words)


def _texts_of(document: LexborHTMLParser) -> Iterator[str]:
    """In reading order, without recursion: the depth of a document is its author's choice."""
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
    written: Written, person: Person, site: Site, now: datetime
) -> tuple[Letter, frozenset[str]]:
    """A made-up person is called as the fields are, so that they are seen."""
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
    return read_letter(source), compiled.fields


def _spam_signs(written: Written) -> list[Finding]:
    mail = Mail(
        subject=written.message.subject,
        sender_domain=parse_mailbox(written.message.sender).address.domain,
        html=written.html,
        text=written.text,
        postal=written.mailing_list.postal_address if written.mailing_list else None,
    )
    return spam_signs(mail)
