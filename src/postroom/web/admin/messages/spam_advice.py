"""What each sign of spam means for the author of a message, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from postroom.domain.texts import Text, _
from postroom.mail.spam.finding import SpamFinding, SpamPlace, SpamSign, SpamWeight


class SpamAdvice(NamedTuple):
    """A finding for a page."""

    where: Text
    sentence: Text
    found: tuple[str, ...]
    has_more: bool


class SpamAdviceGroup(NamedTuple):
    """Those of one weight."""

    title: Text
    advices: list[SpamAdvice]


def advise(findings: Iterable[SpamFinding]) -> list[SpamAdviceGroup]:
    """In the order of the findings, which is that of their weight."""
    return [
        SpamAdviceGroup(TITLES[weight], [_advice(each) for each in equals])
        for weight, equals in groupby(findings, key=lambda each: each.weight)
    ]


def _advice(found: SpamFinding) -> SpamAdvice:
    return SpamAdvice(PLACES[found.where], SENTENCES[found.sign], found.found, found.has_more)


TITLES = {
    SpamWeight.HEAVY: _("May be refused for this alone"),
    SpamWeight.MEDIUM: _("Counts against it"),
    SpamWeight.LIGHT: _("Small, but adds up"),
}

PLACES = {
    SpamPlace.SENDER: _("Sender"),
    SpamPlace.SUBJECT: _("Subject"),
    SpamPlace.HTML: _("HTML"),
    SpamPlace.TEXT: _("Text part"),
    SpamPlace.LIST: _("List"),
}

SENTENCES = {
    SpamSign.FREE_MAIL_SENDER: _(
        "The address is at a free mail provider; most of them tell other servers to refuse mail in "
        "their name that they did not send (DMARC). Give the list a sender at your own domain."
    ),
    SpamSign.LINK_SHOWS_OTHER_HOST: _(
        "A link shows one address and leads to another, as in phishing. Show where it leads, or "
        "words that are no address."
    ),
    SpamSign.LINK_TO_IP: _("A link leads to a bare IP address. Use the name of the site."),
    SpamSign.LINK_WITH_USER: _(
        "A link has something before an “@” in front of its host, which hides where it leads. "
        "Leave that out."
    ),
    SpamSign.LINK_LOOKS_ALIKE: _(
        "The host of a link has letters of another alphabet that look like plain ones. Type it "
        "again."
    ),
    SpamSign.SCRIPT: _(
        "There is code to be run. Mail programs remove it, and servers refuse mails for it. Take "
        "it out."
    ),
    SpamSign.FORM: _("There is a form, which few mail programs send. Link to a page that has it."),
    SpamSign.EMBEDDED: _(
        "Another page or object is embedded; mail programs leave it out. Link to it instead."
    ),
    SpamSign.HIDDEN_TEXT: _(
        "There is text that nobody sees: not displayed, too small, or in the colour of its "
        "background. Show it, or delete it."
    ),
    SpamSign.LINK_SHORTENED: _(
        "A link goes through a URL shortener, which hides where it leads. Link to the page itself."
    ),
    SpamSign.DATA_URI: _(
        "A picture or file is written into the HTML itself (data:), which Gmail and Outlook do not "
        "show. Put it on a web site, and use its https address."
    ),
    SpamSign.FEW_WORDS: _(
        "There is little text beside the pictures: filters distrust that. Say in words what they "
        "show."
    ),
    SpamSign.FAKED_REPLY: _(
        "It begins like an answer, and answers nothing. Leave the beginning out."
    ),
    SpamSign.SUBJECT_CAPITALS: _(
        "It is all capitals, which filters take for shouting. Write small letters."
    ),
    SpamSign.CAPITALS: _(
        "More than half of the letters are capitals, which filters take for shouting. Write small "
        "letters."
    ),
    SpamSign.GAPPY: _("Letters stand apart, as if to hide a word from filters. Close the gaps."),
    SpamSign.FOREIGN_FIELD: _(
        "This looks like a merge field of another program, and goes out as it stands. Write it as "
        "{{ name }}."
    ),
    SpamSign.TEXT_DIFFERS: _(
        "It says something else than the HTML. Leave it empty, and it is made from the HTML."
    ),
    SpamSign.EXCLAMATIONS: _("It has more than one “!”: filters count them. One is enough."),
    SpamSign.PHRASES: _(
        "Several phrases that unwanted advertising is known for, here or in the subject. Say some "
        "of it in other words."
    ),
    SpamSign.LINK_WITHOUT_TLS: _("There are links without https. Begin them with https://."),
    SpamSign.LIST_WITHOUT_ADDRESS: _(
        "It has no postal address, which many laws ask for. Fill it in on the list's page, and "
        "every message carries it."
    ),
    SpamSign.FOOT_WITHOUT_ADDRESS: _(
        "The list's postal address is missing, because a message that places {{ unsubscribe_url }} "
        "itself gets no foot. Write the address there, too."
    ),
}
