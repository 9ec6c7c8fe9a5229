"""Find what a spam filter would hold against a message before it is sent.

The message is checked as its author wrote it, so that the author can fix everything found. What
Postroom adds is not checked: the text part, Message-ID, Date, List-Unsubscribe, short lines for
SMTP, and the footer with the reason, the unsubscribe link and the list's postal address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from postroom.mail.control_flow import split_tags
from postroom.mail.footer import with_footer
from postroom.mail.spam.finding import SpamFinding, SpamPlace, SpamSign, finding
from postroom.mail.spam.links import links_in_text, signs_of_links
from postroom.mail.spam.page import FIELD, PageFeatures, read_page, without_fields

WORDS_READ_CHARS = 200_000  # of a text; Gmail shows half of that
SUBJECT_LETTERS_MIN = 8  # "NASA" in capitals is a name
CAPITALS_LETTERS_MIN = 200  # in a body; a heading may be in capitals
CAPITALS_SHARE = 0.5
GAPS_MIN = 5  # single letters in a row; "U. S. A." has three
HIDDEN_CHARS_MIN = 20
WORDS_BYTES_MIN = 150  # beside pictures; in UTF-8, so that an ideograph is about half a word
PHRASES_MIN = 3  # different ones; honest emails have one or two
SHARED_WORDS_MIN = 0.2  # of the HTML's, in the text part
COMPARED_WORDS_MIN = 20  # in shorter HTML a single word makes too much of a difference

FREE_MAIL = {
    *("126.com", "163.com", "aol.com", "fastmail.com", "free.fr", "gmail.com", "gmx.at"),
    *("gmx.ch", "gmx.com", "gmx.de", "gmx.net", "googlemail.com", "icloud.com", "laposte.net"),
    *("libero.it", "live.com", "mac.com", "mail.com", "mail.ru", "me.com", "msn.com"),
    *("naver.com", "orange.fr", "outlook.com", "proton.me", "protonmail.com", "qq.com"),
    *("rocketmail.com", "t-online.de", "uol.com.br", "web.de", "yandex.com", "yandex.ru"),
    *("ymail.com", "zohomail.com", "outlook.de", "outlook.fr", "live.co.uk", "live.fr"),
}
_FREE_MAIL_EVERYWHERE = re.compile(r"(?:yahoo|hotmail)\.(?:com|[a-z]{2}|com?\.[a-z]{2})")

# In English, as in the filters' published rules; each of them alone is harmless.
PHRASES = (
    *("act now", "amazing offer", "apply now", "as seen on", "best price", "buy now"),
    *("cash bonus", "cheap meds", "click below", "click here", "congratulations you"),
    *("dear friend", "dear winner", "do not delete", "double your", "earn extra cash"),
    *("earn money", "exclusive deal", "expires today", "extra income", "fast cash"),
    *("final notice", "free gift", "free money", "free trial", "get paid", "get rich"),
    *("guaranteed income", "hurry up", "increase sales", "instant access", "last chance"),
    *("limited time", "lose weight", "lowest price", "make money", "million dollars"),
    *("miracle cure", "money back guarantee", "no catch", "no cost", "no credit check"),
    *("no obligation", "no strings attached", "once in a lifetime"),
    *("only today", "order now", "pure profit", "risk free", "satisfaction guaranteed"),
    *("special promotion", "supplies are limited", "this is not spam", "this won t last"),
    *("urgent response", "while supplies last", "work from home", "you are a winner"),
    *("you have been selected", "you have won", "your account has been suspended"),
)
_REPLY = re.compile(
    r"\s*(?:re|fwd?|aw|wg|antw|sv|rv|res|enc|回复|回覆|转发|轉寄)\s*(?:\[[0-9]{1,3}\])?\s*[:：]",
    re.I,
)
# Merge fields of other programs, and ours mistyped: they are sent as they are.
_FOREIGN = re.compile(
    r"\*\|[\w:]{1,40}\|\*"
    r"|%%[\w .]{1,40}%%|%[A-Z][A-Z_]{2,40}%"
    r"|\$\{[\w.]{1,40}\}|#\{[\w.]{1,40}\}|\[\[[\w .]{1,40}\]\]|<<[\w .]{1,40}>>"
    r"|\{%.{1,100}?%\}|\{\s?(?i:(?:first|last|full)?[_ ]?name|e-?mail)\s?\}|\}\}"
)
_POSTAL_FIELD = re.compile(r"\{\{\s*postal_address\b")  # filled in when the message is compiled
_NOT_WORDS = re.compile(r"[\W_]+")
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_LETTER = rf"[^\W\d_{_IDEOGRAPHS}]"
_SINGLES = re.compile(
    rf"(?<![^\W_])(?:{_LETTER}[ \t\xa0.*_·~-]{{1,2}}){{{GAPS_MIN - 1},}}{_LETTER}(?![^\W_])"
)
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")


class CheckedMail(msgspec.Struct, frozen=True, kw_only=True):
    """A message as its author wrote it; subject, html and text are templates."""

    subject: str
    sender_domain: str
    html: str | None
    text: str | None  # made from the HTML if there is none
    postal: str | None = None  # of the list, "" for none; None if it is not known


def spam_signs(mail: CheckedMail) -> list[SpamFinding]:
    """Find the signs, heaviest first; BadTemplate if the message cannot be sent at all."""
    subject = without_fields(mail.subject)
    page = read_page(mail.html) if mail.html is not None else None
    text = without_fields(mail.text) if mail.text is not None else None
    found = list(_in_subject(subject))
    domain = mail.sender_domain
    if domain in FREE_MAIL or _FREE_MAIL_EVERYWHERE.fullmatch(domain):
        found.insert(0, SpamFinding(SpamSign.FREE_MAIL_SENDER, SpamPlace.SENDER, (domain,)))
    if page is not None:
        found += [*_in_page(page), *signs_of_links(page.links, SpamPlace.HTML)]
        found += _in_words(page.shown, SpamPlace.HTML)
    if text is not None:
        found += _in_text(text, page)
    found += _phrases(f"{subject} {page.shown if page else text}", page)
    found += _postal_address(mail, page.shown if page else text or "")
    return sorted(found, key=lambda each: -each.weight)


def _in_subject(subject: str) -> Iterator[SpamFinding]:
    letters = [letter for letter in subject if letter.isalpha()]
    is_long = len(letters) >= SUBJECT_LETTERS_MIN and len(subject.split()) > 1
    if is_long and all(letter.isupper() for letter in letters):
        yield SpamFinding(SpamSign.SUBJECT_CAPITALS, SpamPlace.SUBJECT)
    if subject.count("!") + subject.count("！") > 1:
        yield SpamFinding(SpamSign.EXCLAMATIONS, SpamPlace.SUBJECT)
    if reply := _REPLY.match(subject):
        yield SpamFinding(SpamSign.FAKED_REPLY, SpamPlace.SUBJECT, (reply[0].strip(),))
    yield from finding(SpamSign.GAPPY, SpamPlace.SUBJECT, _gappy(subject))
    yield from finding(SpamSign.FOREIGN_FIELD, SpamPlace.SUBJECT, _foreign_fields(subject))


def _in_page(page: PageFeatures) -> Iterator[SpamFinding]:
    yield from finding(SpamSign.SCRIPT, SpamPlace.HTML, page.scripts)
    yield from finding(SpamSign.FORM, SpamPlace.HTML, page.forms)
    yield from finding(SpamSign.EMBEDDED, SpamPlace.HTML, page.frames)
    yield from finding(SpamSign.DATA_URI, SpamPlace.HTML, page.data_uris)
    if len(page.hidden) >= HIDDEN_CHARS_MIN:
        yield from finding(SpamSign.HIDDEN_TEXT, SpamPlace.HTML, [page.hidden])
    if page.pictures and len(_squeezed(page.shown).encode(errors="replace")) < WORDS_BYTES_MIN:
        yield SpamFinding(SpamSign.FEW_WORDS, SpamPlace.HTML)
    hrefs = " ".join(link.href for link in page.links)
    yield from finding(
        SpamSign.FOREIGN_FIELD, SpamPlace.HTML, _foreign_in_body(f"{page.shown} {hrefs}")
    )


def _in_text(text: str, page: PageFeatures | None) -> Iterator[SpamFinding]:
    """Find the signs of the text part that are not already found in the HTML."""
    hrefs = {link.href for link in page.links} if page else set()
    links = [link for link in links_in_text(text) if link.href not in hrefs]
    yield from signs_of_links(links, SpamPlace.TEXT)
    if page is None:
        yield from _in_words(text, SpamPlace.TEXT)
    else:
        words = set(_WORD.findall(page.shown[:WORDS_READ_CHARS].casefold()))
        shared = words.intersection(_WORD.findall(text[:WORDS_READ_CHARS].casefold()))
        if len(words) >= COMPARED_WORDS_MIN and len(shared) < SHARED_WORDS_MIN * len(words):
            yield SpamFinding(SpamSign.TEXT_DIFFERS, SpamPlace.TEXT)
    yield from finding(SpamSign.FOREIGN_FIELD, SpamPlace.TEXT, _foreign_in_body(text))


def _in_words(text: str, where: SpamPlace) -> Iterator[SpamFinding]:
    text = text[:WORDS_READ_CHARS]
    letters = sum(map(str.isalpha, text))
    capitals = sum(map(str.isupper, text))
    if letters >= CAPITALS_LETTERS_MIN and capitals > CAPITALS_SHARE * letters:
        yield SpamFinding(SpamSign.CAPITALS, where)
    yield from finding(SpamSign.GAPPY, where, _gappy(text))


def _phrases(text: str, page: PageFeatures | None) -> Iterator[SpamFinding]:
    words = f" {_NOT_WORDS.sub(' ', text[:WORDS_READ_CHARS].casefold())} "
    found = [phrase for phrase in PHRASES if f" {phrase} " in words]
    if len(found) >= PHRASES_MIN:
        yield from finding(SpamSign.PHRASES, SpamPlace.HTML if page else SpamPlace.TEXT, found)


def _gappy(text: str) -> Iterator[str]:
    """Find words with a gap after every letter; letters in alphabetical order are an index."""
    for found in _SINGLES.finditer(text):
        letters = [letter for letter in found[0].casefold() if letter.isalpha()]
        if letters != sorted(letters):
            yield found[0]


def _foreign_fields(text: str) -> Iterator[str]:
    plain = text.replace(FIELD, " ")
    return (found[0] for found in _FOREIGN.finditer(plain[:WORDS_READ_CHARS]))


def _foreign_in_body(text: str) -> Iterator[str]:
    """Conditions and loops are ours: a body with a tag that is not known cannot be sent."""
    return _foreign_fields(" ".join(split_tags(text)[::2]))


def _postal_address(mail: CheckedMail, shown: str) -> Iterator[SpamFinding]:
    """Check for the address that many laws ask for, in the list and in a footer of the author."""
    if mail.postal is None:
        return
    bodies = (mail.html, None) if mail.html is not None else (None, mail.text)
    has_own_footer = with_footer(*bodies, list_title="", postal="") == bodies
    if not mail.postal.strip():
        yield SpamFinding(SpamSign.LIST_WITHOUT_ADDRESS, SpamPlace.LIST)
    elif (
        has_own_footer
        and not any(_POSTAL_FIELD.search(body or "") for body in bodies)
        and _squeezed(mail.postal) not in _squeezed(shown)
    ):
        where = SpamPlace.HTML if mail.html is not None else SpamPlace.TEXT
        yield SpamFinding(SpamSign.FOOT_WITHOUT_ADDRESS, where)


def _squeezed(text: str) -> str:
    """Remove gaps and commas: a postal address is the same on one line or on four."""
    return _NOT_WORDS.sub("", text).casefold()
