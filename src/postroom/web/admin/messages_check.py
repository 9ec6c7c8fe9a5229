"""A message looked at before it goes out: as one person would get it, and what is wrong with it.

The mail is made by the same steps as a sender makes it, and read back: what is shown is what is
sent.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec
from selectolax.lexbor import LexborHTMLParser

from postroom.domain.address import Address, BadAddress, parse_address, parse_mailbox
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message
from postroom.domain.texts import Text, _, ngettext
from postroom.flow.render import NOBODYS_GUID, Site, message_parts
from postroom.mail.mime import compile_mail, format_date, message_id
from postroom.mail.spam_finding import Finding
from postroom.mail.spam_signs import Mail, spam_signs
from postroom.records import subscribers
from postroom.storage.port import Tables
from postroom.web.admin.spam_sentences import Advices, advise
from postroom.web.letter import Letter, read_letter

GMAIL_CLIPS_BYTES = 102 * 1024
PEOPLE_SAMPLED = 200  # whose attributes are looked at: a page reads no list
LINKS_SHOWN = 5
ALWAYS_KNOWN = ("email", "unsubscribe_url")
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


class Looked(msgspec.Struct, frozen=True):
    """A mail and what to mend; there is none of nothing, nor of a template with a mistake."""

    person: Person
    letter: Letter | None = None
    warnings: list[str | Text] = []
    mistake: str = ""
    signs: list[Advices] = []  # of spam, the heaviest first


class Sample(msgspec.Struct, frozen=True):
    """The first people of a list, for what they have in common."""

    size: int
    fields: list[str]  # attributes that at least one of them has
    is_all: bool  # there is nobody else


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
    fields = sorted({name for one in people for name in one.attributes})
    return Sample(len(people), fields, is_all=shelf.next is None)


async def look_at(
    written: Written, person: Person, people: Sample, site: Site, now: datetime
) -> Looked:
    """In a thread: a body of two megabytes takes its time."""
    return await asyncio.to_thread(_look_at, written, person, people, site, now)


def _look_at(written: Written, person: Person, people: Sample, site: Site, now: datetime) -> Looked:
    if written.html is None and written.text is None:
        return Looked(person)
    try:
        letter, fields = _letter(written, person, site, now)
        signs = advise(_spam_signs(written))
    except ValueError as error:  # a template or a header that cannot be sent
        return Looked(person, mistake=str(error))
    warnings: list[str | Text] = [
        *_about_size(letter),
        *_about_parts(written),
        *_about_links(written.html or ""),
        *_about_pictures(written.html or ""),
        *_about_fields(fields, people),
    ]
    return Looked(person, letter, warnings, signs=signs)


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


# --- What is wrong with it --------------------------------------------------------------------


def _spam_signs(written: Written) -> list[Finding]:
    mail = Mail(
        subject=written.message.subject,
        sender_domain=parse_mailbox(written.message.sender).address.domain,
        html=written.html,
        text=written.text,
        postal=written.mailing_list.postal_address if written.mailing_list else None,
    )
    return spam_signs(mail)


def _about_size(letter: Letter) -> list[Text]:
    size = len((letter.html or "").encode())
    if size <= GMAIL_CLIPS_BYTES:
        return []
    return [
        _(
            "The HTML has {size} kB: Gmail cuts off what is over 102 kB, and hides the link to "
            "leave.",
            size=size // 1024,
        )
    ]


def _about_parts(written: Written) -> list[Text]:
    if written.html is None:
        return [_("There is no HTML: everybody gets the text.")]
    if written.text is None:
        return []  # made from the HTML
    return [] if written.text.strip() else [_("The text part is empty: leave it out, or write it.")]


def _about_links(html: str) -> list[Text]:
    """Those that lead nowhere; where the others lead is a matter of spam signs."""
    hrefs = [
        (node.attributes.get("href") or "").strip()
        for node in LexborHTMLParser(html).css("a, area")
        if "href" in node.attributes
    ]
    literal = [href for href in hrefs if not href.startswith("{{")]
    empty = sum(href in ("", "#") for href in literal)
    relative = [href for href in literal if href not in ("", "#") and ":" not in href]
    found: list[Text] = []
    if empty:
        found.append(_("Links that lead nowhere: {count}.", count=empty))
    if relative:
        found.append(
            _(
                "Links that are relative, and work in no mail: {links}. Begin them with https://.",
                links=_some(relative),
            )
        )
    return found


def _about_pictures(html: str) -> list[Text]:
    nameless = sum("alt" not in node.attributes for node in LexborHTMLParser(html).css("img"))
    if not nameless:
        return []
    return [
        _(
            "Pictures without a description (alt), which many people see instead: {count}.",
            count=nameless,
        )
    ]


def _about_fields(fields: frozenset[str], people: Sample) -> list[Text]:
    unknown = sorted(fields - set(people.fields) - set(ALWAYS_KNOWN))
    if not unknown or not people.size:
        return []
    names = ", ".join(f"{{{{ {name} }}}}" for name in unknown)
    if people.is_all:
        return [
            _(
                "Nobody on the list has {names}: the place stays empty, or says its default.",
                names=names,
            )
        ]
    return [
        ngettext(
            "The first person of the list has no {names}: misspelt, perhaps?",
            "None of the first {count} people of the list has {names}: misspelt, perhaps?",
            people.size,
            names=names,
        )
    ]


def _some(links: list[str]) -> str:
    unique = list(dict.fromkeys(links))
    more = ", …" if len(unique) > LINKS_SHOWN else ""
    return ", ".join(unique[:LINKS_SHOWN]) + more
