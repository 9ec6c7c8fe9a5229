"""Findings of the spam check: which sign, how serious, and where in the email."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum, StrEnum

import msgspec

from postroom.domain.texts import clipped

FOUND_SHOWN_MAX = 5  # places of one sign; an author who fixes those finds the rest
FOUND_CHARS_MAX = 80


class SpamWeight(IntEnum):
    """How serious a sign is; filters score differently, so only the order of ours counts."""

    LIGHT = 1  # adds up with others
    MEDIUM = 2  # enough for the spam folder at some filters
    HEAVY = 3  # many servers refuse the email, or file it as spam, for this alone


class SpamPlace(StrEnum):
    SENDER = "sender"
    SUBJECT = "subject"
    HTML = "html"
    TEXT = "text"
    LIST = "list"


class SpamSign(StrEnum):
    """What the check looks for, with the corresponding rule of SpamAssassin if there is one."""

    FREE_MAIL_SENDER = "free mail sender"  # FREEMAIL_FROM
    LINK_SHOWS_OTHER_HOST = "link shows other host"
    LINK_TO_IP = "link to ip"  # NORMAL_HTTP_TO_IP, NUMERIC_HTTP_ADDR
    LINK_WITH_USER = "link with user"  # HTTP_USERNAME_USED
    LINK_LOOKS_ALIKE = "link looks alike"
    SCRIPT = "script"  # JAVASCRIPT_URI
    FORM = "form"  # HTML_FORMACTION_MAILTO
    EMBEDDED = "embedded"  # HTML_IFRAME_SRC, HTML_EMBEDS
    HIDDEN_TEXT = "hidden text"  # HTML_FONT_LOW_CONTRAST
    LINK_SHORTENED = "link shortened"  # rules/25_url_shortener.cf
    DATA_URI = "data uri"
    FEW_WORDS = "few words"  # HTML_IMAGE_ONLY_04
    FAKED_REPLY = "faked reply"  # FAKE_REPLY_C
    SUBJECT_CAPITALS = "subject capitals"  # SUBJ_ALL_CAPS
    CAPITALS = "capitals"  # UPPERCASE_50_75
    GAPPY = "gappy"  # GAPPY_SUBJECT
    FOREIGN_FIELD = "foreign field"
    TEXT_DIFFERS = "text differs"  # MPART_ALT_DIFF
    EXCLAMATIONS = "exclamations"  # PLING_QUERY
    PHRASES = "phrases"
    LINK_WITHOUT_TLS = "link without tls"
    LIST_WITHOUT_ADDRESS = "list without address"
    FOOT_WITHOUT_ADDRESS = "foot without address"


_HEAVY = (
    *(SpamSign.FREE_MAIL_SENDER, SpamSign.LINK_SHOWS_OTHER_HOST, SpamSign.LINK_TO_IP),
    *(SpamSign.LINK_WITH_USER, SpamSign.LINK_LOOKS_ALIKE, SpamSign.SCRIPT, SpamSign.FORM),
)
_MEDIUM = (
    *(SpamSign.EMBEDDED, SpamSign.HIDDEN_TEXT, SpamSign.LINK_SHORTENED, SpamSign.DATA_URI),
    *(SpamSign.FEW_WORDS, SpamSign.FAKED_REPLY, SpamSign.SUBJECT_CAPITALS, SpamSign.CAPITALS),
    *(SpamSign.GAPPY, SpamSign.FOREIGN_FIELD, SpamSign.TEXT_DIFFERS),
)
_LIGHT = (
    *(SpamSign.EXCLAMATIONS, SpamSign.PHRASES, SpamSign.LINK_WITHOUT_TLS),
    *(SpamSign.LIST_WITHOUT_ADDRESS, SpamSign.FOOT_WITHOUT_ADDRESS),
)
WEIGHTS = (
    dict.fromkeys(_HEAVY, SpamWeight.HEAVY)
    | dict.fromkeys(_MEDIUM, SpamWeight.MEDIUM)
    | dict.fromkeys(_LIGHT, SpamWeight.LIGHT)
)


class SpamFinding(msgspec.Struct, frozen=True):
    sign: SpamSign
    where: SpamPlace
    found: tuple[str, ...] = ()  # the words, links or tags that gave it away
    has_more: bool = False  # `found` is incomplete

    @property
    def weight(self) -> SpamWeight:
        return WEIGHTS[self.sign]


def finding(sign: SpamSign, where: SpamPlace, found: Iterable[str]) -> Iterator[SpamFinding]:
    """Yield one finding for all these places, or none if there are none."""
    lines = (" ".join(text[: 4 * FOUND_CHARS_MAX].split()) for text in found)
    places = list(dict.fromkeys(clipped(line, FOUND_CHARS_MAX) for line in lines))
    if places:
        shown = tuple(places[:FOUND_SHOWN_MAX])
        yield SpamFinding(sign, where, shown, len(places) > FOUND_SHOWN_MAX)
