"""What each sign of spam means for the author of a message, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from postroom.domain.texts import Text, _
from postroom.mail.spam.finding import SpamFinding, SpamPlace, SpamSign, SpamWeight


class SpamAdvice(NamedTuple):
    """A finding as the page shows it."""

    where: Text
    sentence: Text
    found: tuple[str, ...]
    has_more: bool


def advise(findings: Iterable[SpamFinding]) -> list[tuple[Text, list[SpamAdvice]]]:
    """A title and its advice for each weight, in the order of the findings, which is by weight."""
    return [
        (
            TITLES[weight],
            [
                SpamAdvice(PLACES[each.where], SENTENCES[each.sign], each.found, each.has_more)
                for each in same_weight
            ],
        )
        for weight, same_weight in groupby(findings, key=lambda each: each.weight)
    ]


TITLES = {
    SpamWeight.HEAVY: _("May be rejected for this alone"),
    SpamWeight.MEDIUM: _("Counts as a spam sign"),
    SpamWeight.LIGHT: _("Minor, but adds up"),
}

PLACES = {
    SpamPlace.SENDER: _("Sender"),
    SpamPlace.SUBJECT: _("Subject"),
    SpamPlace.HTML: _("HTML"),
    SpamPlace.TEXT: _("Plain-text version"),
    SpamPlace.LIST: _("List"),
}

SENTENCES = {
    SpamSign.FREE_MAIL_SENDER: _(
        "The address belongs to a free email provider. Most of them tell other servers to reject "
        "emails from their domain that they did not send (DMARC). Use a sender address at your own "
        "domain."
    ),
    SpamSign.LINK_SHOWS_OTHER_HOST: _(
        "A link shows one address and leads to another, as in phishing. Show where it leads, or "
        "use words instead of an address."
    ),
    SpamSign.LINK_TO_IP: _("A link leads to an IP address. Use the site’s domain name."),
    SpamSign.LINK_WITH_USER: _(
        "A link has a user name before its host (name@host), which hides where it leads. Remove "
        "the name and the @."
    ),
    SpamSign.LINK_LOOKS_ALIKE: _(
        "The host of a link contains letters of another alphabet that look like Latin ones. Type "
        "it again."
    ),
    SpamSign.SCRIPT: _(
        "The HTML contains scripts. Email programs remove them, and servers reject emails that "
        "have them. Remove them."
    ),
    SpamSign.FORM: _(
        "The HTML contains a form, which few email programs support. Link to a page "
        "with the form instead."
    ),
    SpamSign.EMBEDDED: _(
        "Another page or object is embedded, which email programs do not show. Link to it instead."
    ),
    SpamSign.HIDDEN_TEXT: _(
        "Some text is invisible: hidden, too small, or in the color of its background. Show it "
        "or delete it."
    ),
    SpamSign.LINK_SHORTENED: _(
        "A link goes through a URL shortener, which hides where it leads. Link to the page itself."
    ),
    SpamSign.DATA_URI: _(
        "A picture or file is embedded in the HTML (data:), which Gmail and Outlook do not show. "
        "Put it on a website and use its https address."
    ),
    SpamSign.FEW_WORDS: _(
        "Filters distrust emails that are mostly pictures. Add text that says what the pictures "
        "show."
    ),
    SpamSign.FAKED_REPLY: _("It starts like a reply but is not one. Remove the prefix."),
    SpamSign.SUBJECT_CAPITALS: _(
        "It is all in capitals, which filters treat as shouting. Use lower case."
    ),
    SpamSign.CAPITALS: _(
        "More than half of the letters are capitals, which filters treat as shouting. Use lower "
        "case."
    ),
    SpamSign.GAPPY: _(
        "Letters are spaced out, as if to hide a word from filters. Remove the spaces."
    ),
    SpamSign.FOREIGN_FIELD: _(
        "This looks like a merge field of another program and will be sent as is. Write it as {{ "
        "name }}."
    ),
    SpamSign.TEXT_DIFFERS: _(
        "It differs from the HTML. Leave it empty to create it from the HTML."
    ),
    SpamSign.EXCLAMATIONS: _(
        "It has more than one exclamation mark, and filters count them. One is enough."
    ),
    SpamSign.PHRASES: _(
        "Several phrases here or in the subject are typical of spam. Reword some of them."
    ),
    SpamSign.LINK_WITHOUT_TLS: _("Some links do not use https. Start them with https://."),
    SpamSign.LIST_WITHOUT_ADDRESS: _(
        "There is no postal address, which many countries require. Enter it on the list’s page "
        "to add it to every message."
    ),
    SpamSign.FOOT_WITHOUT_ADDRESS: _(
        "The list’s postal address is missing, because a message that contains {{ "
        "unsubscribe_url }} gets no footer. Add the address to the message."
    ),
}
