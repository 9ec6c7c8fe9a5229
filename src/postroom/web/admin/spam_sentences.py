"""What each sign of spam means for the author of a message, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from postroom.domain.texts import Text, _
from postroom.mail.spam_finding import Finding, Sign, Weight, Where


class Advice(NamedTuple):
    """A finding for a page."""

    where: Text
    sentence: Text
    found: tuple[str, ...]
    has_more: bool


class Advices(NamedTuple):
    """Those of one weight."""

    title: Text
    advices: list[Advice]


def advise(findings: Iterable[Finding]) -> list[Advices]:
    """In the order of the findings, which is that of their weight."""
    return [
        Advices(TITLES[weight], [_advice(each) for each in equals])
        for weight, equals in groupby(findings, key=lambda each: each.weight)
    ]


def _advice(found: Finding) -> Advice:
    return Advice(PLACES[found.where], SENTENCES[found.sign], found.found, found.has_more)


TITLES = {
    Weight.HEAVY: _("May be refused for this alone"),
    Weight.MIDDLING: _("Counts against it"),
    Weight.LIGHT: _("Small, but adds up"),
}

PLACES = {
    Where.SENDER: _("Sender"),
    Where.SUBJECT: _("Subject"),
    Where.HTML: _("HTML"),
    Where.TEXT: _("Text part"),
    Where.LIST: _("List"),
}

SENTENCES = {
    Sign.FREE_MAIL_SENDER: _(
        "The address is at a free mail provider; most of them tell other servers to refuse mail in "
        "their name that they did not send (DMARC). Give the list a sender at your own domain."
    ),
    Sign.LINK_SHOWS_OTHER_HOST: _(
        "A link shows one address and leads to another, as in phishing. Show where it leads, or "
        "words that are no address."
    ),
    Sign.LINK_TO_IP: _("A link leads to a bare IP address. Use the name of the site."),
    Sign.LINK_WITH_USER: _(
        "A link has something before an “@” in front of its host, which hides where it leads. "
        "Leave that out."
    ),
    Sign.LINK_LOOKS_ALIKE: _(
        "The host of a link has letters of another alphabet that look like plain ones. Type it "
        "again."
    ),
    Sign.SCRIPT: _(
        "There is code to be run. Mail programs remove it, and servers refuse mails for it. Take "
        "it out."
    ),
    Sign.FORM: _("There is a form, which few mail programs send. Link to a page that has it."),
    Sign.EMBEDDED: _(
        "Another page or object is embedded; mail programs leave it out. Link to it instead."
    ),
    Sign.HIDDEN_TEXT: _(
        "There is text that nobody sees: not displayed, too small, or in the colour of its "
        "background. Show it, or delete it."
    ),
    Sign.LINK_SHORTENED: _(
        "A link goes through a URL shortener, which hides where it leads. Link to the page itself."
    ),
    Sign.DATA_URI: _(
        "A picture or file is written into the HTML itself (data:), which Gmail and Outlook do not "
        "show. Put it on a web site, and use its https address."
    ),
    Sign.FEW_WORDS: _(
        "There is little text beside the pictures: filters distrust that. Say in words what they "
        "show."
    ),
    Sign.FAKED_REPLY: _("It begins like an answer, and answers nothing. Leave the beginning out."),
    Sign.SUBJECT_CAPITALS: _(
        "It is all capitals, which filters take for shouting. Write small letters."
    ),
    Sign.CAPITALS: _(
        "More than half of the letters are capitals, which filters take for shouting. Write small "
        "letters."
    ),
    Sign.GAPPY: _("Letters stand apart, as if to hide a word from filters. Close the gaps."),
    Sign.FOREIGN_FIELD: _(
        "This looks like a merge field of another program, and goes out as it stands. Write it as "
        "{{ name }}."
    ),
    Sign.TEXT_DIFFERS: _(
        "It says something else than the HTML. Leave it empty, and it is made from the HTML."
    ),
    Sign.EXCLAMATIONS: _("It has more than one “!”: filters count them. One is enough."),
    Sign.PHRASES: _(
        "Several phrases that unwanted advertising is known for, here or in the subject. Say some "
        "of it in other words."
    ),
    Sign.LINK_WITHOUT_TLS: _("There are links without https. Begin them with https://."),
    Sign.LIST_WITHOUT_ADDRESS: _(
        "It has no postal address, which many laws ask for. Fill it in on the list's page, and "
        "every message carries it."
    ),
    Sign.FOOT_WITHOUT_ADDRESS: _(
        "The list's postal address is missing, because a message that places {{ unsubscribe_url }} "
        "itself gets no foot. Write the address there, too."
    ),
}
