"""Checks of a message before it is sent: a preview as one person would get it, and its warnings.

The email is created by the same steps as in a sender and then parsed, so the preview shows exactly
what is sent.
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
from postroom.mail.mime import compile_mail, format_date, message_id_end
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
from postroom.web.context import WebContext
from postroom.web.mail_view import MailView, read_mail

PEOPLE_SAMPLED = 200  # for their attributes; reading a whole list would take too long
INBOX_CHARS_SHOWN = 140  # of the text, beside the subject
_BEGINNING_CHARS = 10 * INBOX_CHARS_SHOWN  # including white space
_UNREAD = frozenset(("head", "title", "script", "style", "template", "noscript"))
_PADDING = re.compile("[\u00ad\u034f\u200b-\u200f\u2060\ufeff]")  # pads preview texts
SAMPLE_ADDRESS = "student1@contoso.edu"


class PreviewPerson(msgspec.Struct, frozen=True):
    """The recipient of the preview."""

    address: Address
    attributes: dict[str, str] = {}
    is_sample: bool = False


class WrittenMessage(msgspec.Struct, frozen=True):
    """The current content of a message, saved or not."""

    message: Message
    mailing_list: MailingList | None  # None if it was deleted after sending
    html: str | None
    text: str | None


class InboxLine(msgspec.Struct, frozen=True):
    """What an inbox shows of an email before it is opened."""

    sender: str
    subject: str
    beginning: str


class CheckReport(msgspec.Struct, frozen=True):
    """A preview and its warnings; no email if the body is empty or the template invalid."""

    mail_view: MailView | None = None
    warnings: list[str | Text] = []
    mistake: str = ""
    signs: list[SpamAdviceGroup] = []  # of spam, the heaviest first
    inbox: InboxLine | None = None
    fitting_kind: str = ""  # the format the body seems to be written in, if it is another one


async def check(context: WebContext, written: WrittenMessage, read_as: str) -> CheckReport:
    """Check a message as the subscriber with this address gets it; without one, a sample person."""
    tables = context.storage.tables
    list_name = written.message.list_name
    person, mistake = await _find_person(tables, list_name, read_as)
    people = await sample(tables, list_name)
    now = context.clock.now()
    # In a thread, because a body of two megabytes takes long.
    report = await in_thread(_run_checks, written, person, people, context.site, now)
    warnings = [mistake, *report.warnings] if mistake else report.warnings
    return msgspec.structs.replace(report, warnings=warnings)


async def _find_person(tables: Tables, list_name: str, text: str) -> tuple[PreviewPerson, str]:
    """The chosen subscriber, or the sample person with an error if there is no such subscriber."""
    sample_person = PreviewPerson(parse_address(SAMPLE_ADDRESS), is_sample=True)
    if not text.strip():
        return sample_person, ""
    try:
        address = parse_address(text)
    except BadAddress as error:
        return sample_person, str(error)
    found = await subscribers.find(tables, list_name, address.storage_key)
    if found is None or found.value.gone:
        return sample_person, str(_("{address} is not on this list.", address=address.typed))
    return PreviewPerson(address, found.value.attributes), ""


async def sample(tables: Tables, list_name: str) -> AudienceSample:
    """The first subscribers of a list, for their attributes."""
    page = await subscribers.scan_people(tables, list_name, limit=PEOPLE_SAMPLED)
    people = [one for one in page.people if not one.gone]
    having = Counter(
        name for one in people for name, value in one.attributes.items() if value.strip()
    )
    return AudienceSample(len(people), dict(having), is_all=page.next is None)


def _run_checks(
    written: WrittenMessage,
    person: PreviewPerson,
    people: AudienceSample,
    site: Site,
    now: datetime,
) -> CheckReport:
    if written.html is None and written.text is None:
        return CheckReport()
    postal = written.mailing_list.postal_address if written.mailing_list else None
    try:
        # Before the footer is added, so that a mistake quotes what the author wrote.
        without_default = _fields_without_default(written)
        mail_view, fields = _render(written, person, site, now)
        mail = CheckedMail(
            subject=written.message.subject,
            sender_domain=parse_mailbox(written.message.sender).address.domain,
            html=written.html,
            text=written.text,
            postal=postal,
        )
        signs = advise(spam_signs(mail))
    except ValueError as error:  # a template or a header that cannot be sent
        return CheckReport(mistake=str(error))
    html_bytes = len((mail_view.html or "").encode())
    name, address = parseaddr(mail_view.sender)
    return CheckReport(
        mail_view,
        [
            *warnings_about(written.html, written.text, html_bytes),
            *about_fields(fields, people),
            *about_missing(without_default, people),
        ],
        signs=signs,
        inbox=InboxLine(name or address, mail_view.subject, _beginning(mail_view)),
        fitting_kind=fitting_kind(written.html or ""),
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
    text = " ".join(text.split())
    return text if len(text) <= INBOX_CHARS_SHOWN else text[: INBOX_CHARS_SHOWN - 1] + "…"


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
) -> tuple[MailView, frozenset[str]]:
    """The sample person has the field names as values, so that they are visible."""
    message = written.message
    parts = message_parts(message, written.mailing_list, written.html, written.text, site)
    compiled = compile_mail(parts)
    field_names = {name: f"[{name}]" for name in compiled.fields} if person.is_sample else {}
    source = compiled.splice(
        person.address,
        {**field_names, **person.attributes},
        message_id=f"<preview{message_id_end(parts.sender.address.domain)}",
        date=format_date(now),
        unsubscribe_url=site.unsubscribe_url(message.list_name, NOBODYS_GUID),
        eight_bit=True,
    )
    return read_mail(source), compiled.fields
