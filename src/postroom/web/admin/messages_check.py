"""A message looked at before it goes out: as one person would get it, and what is wrong with it.

The mail is made by the same steps as a sender makes it, and read back: what is shown is what is
sent.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec
from selectolax.lexbor import LexborHTMLParser

from postroom.domain.address import Address, BadAddress, parse_address
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message
from postroom.flow.render import NOBODYS_GUID, Site, message_parts
from postroom.mail.mime import compile_mail, format_date, message_id
from postroom.records import subscribers
from postroom.storage.port import Tables
from postroom.web.letter import Letter, read_letter
from postroom.web.texts import gettext as _

GMAIL_CLIPS_BYTES = 102 * 1024
PEOPLE_SAMPLED = 200  # whose attributes are looked at: a page reads no list
WORDS_MIN = 20  # beside pictures: filters distrust a mail that is nothing but a picture
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
    warnings: list[str] = []
    mistake: str = ""


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
        return made_up(), _("%s is not on this list.") % address.typed
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
    except ValueError as error:  # a template or a header that cannot be sent
        return Looked(person, mistake=str(error))
    warnings = [
        *_about_size(letter),
        *_about_subject(written.message.subject),
        *_about_parts(written),
        *_about_links(written.html or ""),
        *_about_pictures(written.html or ""),
        *_about_fields(fields, people),
    ]
    return Looked(person, letter, warnings)


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


def _about_size(letter: Letter) -> list[str]:
    size = len((letter.html or "").encode())
    if size <= GMAIL_CLIPS_BYTES:
        return []
    return [
        _("The HTML has %s kB: Gmail cuts off what is over 102 kB, and hides the link to leave.")
        % (size // 1024)
    ]


def _about_subject(subject: str) -> list[str]:
    letters = [each for each in subject if each.isalpha()]
    if len(letters) > 5 and all(each.isupper() for each in letters):
        return [_("The subject is all capitals, which filters take for shouting.")]
    return [_("The subject has more than one “!”: filters count them.")] * (subject.count("!") > 1)


def _about_parts(written: Written) -> list[str]:
    if written.html is None:
        return [_("There is no HTML: everybody gets the text.")]
    if written.text is None:
        return []  # made from the HTML
    return [] if written.text.strip() else [_("The text part is empty: leave it out, or write it.")]


def _about_links(html: str) -> list[str]:
    hrefs = [
        (node.attributes.get("href") or "").strip()
        for node in LexborHTMLParser(html).css("a, area")
        if "href" in node.attributes
    ]
    literal = [href for href in hrefs if not href.startswith("{{")]
    empty = sum(href in ("", "#") for href in literal)
    plain = [href for href in literal if href.lower().startswith("http://")]
    relative = [href for href in literal if href not in ("", "#") and ":" not in href]
    found: list[str] = []
    if empty:
        found.append(_("Links that lead nowhere: %s.") % empty)
    if plain:
        found.append(_("Links without https: %s.") % _some(plain))
    if relative:
        found.append(
            _("Links that are relative, and work in no mail: %s. Begin them with https://.")
            % _some(relative)
        )
    return found


def _about_pictures(html: str) -> list[str]:
    page = LexborHTMLParser(html)
    pictures = page.css("img")
    nameless = sum("alt" not in node.attributes for node in pictures)
    found: list[str] = []
    if nameless:
        found.append(
            _("Pictures without a description (alt), which many people see instead: %s.") % nameless
        )
    if pictures and len((page.body.text() if page.body else "").split()) < WORDS_MIN:
        found.append(_("There is little text beside the pictures: filters distrust that."))
    return found


def _about_fields(fields: frozenset[str], people: Sample) -> list[str]:
    unknown = sorted(fields - set(people.fields) - set(ALWAYS_KNOWN))
    if not unknown or not people.size:
        return []
    names = ", ".join(f"{{{{ {name} }}}}" for name in unknown)
    if people.is_all:
        return [_("Nobody on the list has %s: the place stays empty, or says its default.") % names]
    return [
        _("None of the first %(size)s people of the list has %(names)s: misspelt, perhaps?")
        % {"size": people.size, "names": names}
    ]


def _some(links: list[str]) -> str:
    unique = list(dict.fromkeys(links))
    more = ", …" if len(unique) > LINKS_SHOWN else ""
    return ", ".join(unique[:LINKS_SHOWN]) + more
