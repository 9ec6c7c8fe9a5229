"""The meaning of a server's reply for a mail, by enhanced code, then by basic code."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from postroom.domain.outcome import (
    WORDS_CHARS_MAX,
    Deferred,
    Outcome,
    Rejected,
    Scope,
    Sent,
    Unknown,
    clip,
)
from postroom.domain.trouble import ABOUT_OUR_ACCOUNT

CLOSING = 421  # "Service not available, closing transmission channel": may answer any command


class Stage(StrEnum):
    """Which part of the transaction a reply answers."""

    MAIL = "mail"  # about us: the recipient has not been named yet
    RCPT = "rcpt"  # about the recipient
    CONTENT = "content"  # about the mail: DATA, BDAT or the final dot


DEAD_MAILBOX = Rejected(address_fault=True)
REFUSED = Rejected(address_fault=False)
WAIT_FOR_MAILBOX = Deferred(scope=Scope.ADDRESS)
WAIT_FOR_DOMAIN = Deferred(scope=Scope.DOMAIN)
WAIT_FOR_RELAY = Deferred(scope=Scope.PROVIDER)
NOT_LET_IN = Deferred(scope=Scope.PROVIDER, reached=False)

# Subject, or subject and detail, of an enhanced code (RFC 3463, RFC 5248, RFC 7505).
PERMANENT: dict[str, Outcome] = {
    "1": DEAD_MAILBOX,
    "1.7": REFUSED,  # our sender address has bad syntax
    "1.8": REFUSED,  # our sender domain is bad
    "1.9": REFUSED,
    "2": DEAD_MAILBOX,
    "2.2": WAIT_FOR_MAILBOX,  # full: people come back from holidays
    "2.3": REFUSED,  # the mail is too long for this mailbox
    "2.4": REFUSED,
    "4.4": DEAD_MAILBOX,  # no route: the domain accepts no mail
}
TEMPORARY: dict[str, Outcome] = {
    "1.7": WAIT_FOR_RELAY,
    "1.8": WAIT_FOR_RELAY,
    "3": WAIT_FOR_RELAY,  # the relay is full or busy with itself
    "4": WAIT_FOR_DOMAIN,  # the relay cannot reach that domain
    "4.5": WAIT_FOR_RELAY,  # congestion of the relay
    "5": WAIT_FOR_RELAY,
    "7": WAIT_FOR_DOMAIN,  # rate and reputation: slow down there
}

# Without a usable enhanced code. Basic codes say little, so only clear cases are listed.
BASIC: dict[tuple[int, Stage], Outcome] = {
    (452, Stage.MAIL): WAIT_FOR_RELAY,
    (452, Stage.CONTENT): WAIT_FOR_RELAY,
    (455, Stage.RCPT): WAIT_FOR_RELAY,
    (550, Stage.RCPT): DEAD_MAILBOX,
    (551, Stage.RCPT): DEAD_MAILBOX,
    (552, Stage.RCPT): WAIT_FOR_MAILBOX,  # RFC 5321 4.5.3.1.10: treat 552 here as 452
    (553, Stage.RCPT): DEAD_MAILBOX,
    (556, Stage.RCPT): DEAD_MAILBOX,  # RFC 7504: the domain accepts no mail
}

_ENHANCED = re.compile(r"\d{3}[ -]([245])\.(\d{1,3})\.(\d{1,3})(?!\d)")
_LINE_CODE = re.compile(r"\n\d{3}[ -]?(?:[245]\.\d{1,3}\.\d{1,3} )?")


def outcome_of(code: int, text: bytes | bytearray, stage: Stage) -> Outcome:
    """Return the outcome of the mail that this reply is about, with the server's text."""
    words = words_of(text)
    if 200 <= code < 300 and stage is Stage.CONTENT:
        return Sent(words)
    if not 400 <= code < 600:
        return Unknown(clip(f"the server sent an invalid reply: {words}"))
    ruling = _ruling(code, text, stage)
    if stage is Stage.MAIL:  # the reply cannot be about a recipient
        ruling = NOT_LET_IN if isinstance(ruling, Deferred) else REFUSED
    return msgspec.structs.replace(ruling, words=words)


def words_of(text: bytes | bytearray) -> str:
    """Return a reply of one or more lines as one printable line of limited length."""
    words = text.decode("utf-8", "replace").rstrip()
    if words.isprintable() and len(words) <= WORDS_CHARS_MAX:
        return words  # the common case
    return clip(_LINE_CODE.sub(" ", words.replace("\r", "")))


def _ruling(code: int, text: bytes | bytearray, stage: Stage) -> Outcome:
    if code in ABOUT_OUR_ACCOUNT:
        return NOT_LET_IN  # not about the recipient: a wrong password must not empty a list
    if code == CLOSING:  # at the content, the server may object to this mail
        return WAIT_FOR_RELAY if stage is Stage.CONTENT else NOT_LET_IN
    enhanced = _ENHANCED.match(text.decode("ascii", "replace"))
    if enhanced is None or enhanced[1] == "2":
        usual = WAIT_FOR_MAILBOX if code < 500 else REFUSED
        return BASIC.get((code, stage), usual)
    subject = str(int(enhanced[2]))
    detail = str(int(enhanced[3]))
    # Where the two codes disagree, temporary wins: a retry is cheap, a lost mail is lost.
    if code < 500 or enhanced[1] == "4":
        table, usual = TEMPORARY, WAIT_FOR_MAILBOX
    else:
        table, usual = PERMANENT, REFUSED
    return table.get(f"{subject}.{detail}") or table.get(subject) or usual
