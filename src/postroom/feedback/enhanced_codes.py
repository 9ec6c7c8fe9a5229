"""What enhanced status codes mean (RFC 3463, RFC 5248, RFC 7505, Gmail and Exchange Online)."""

from __future__ import annotations

import re

import msgspec

from postroom.domain.feedback import BounceClass, BounceReason

DEAD = BounceClass.DEAD
TEMPORARY = BounceClass.TEMPORARY
OURS = BounceClass.OURS


class CodeMeaning(msgspec.Struct, frozen=True):
    """What a code means for a refusal, and whether that is more than a guess."""

    reason: BounceReason
    bounce_class: BounceClass
    precise: bool = True  # otherwise the server's words count for more


def _guess(reason: BounceReason, bounce_class: BounceClass) -> CodeMeaning:
    return CodeMeaning(reason, bounce_class, precise=False)


_SENDER = CodeMeaning(BounceReason.BAD_SENDER, OURS)
_SYSTEM = _guess(BounceReason.SYSTEM, TEMPORARY)
_NETWORK = _guess(BounceReason.NETWORK, TEMPORARY)
_EXPIRED = _guess(BounceReason.EXPIRED, TEMPORARY)
_MALFORMED = _guess(BounceReason.BAD_MESSAGE, OURS)
_UNAUTHENTICATED = CodeMeaning(BounceReason.AUTHENTICATION, OURS)
_BLOCKED = CodeMeaning(BounceReason.BLOCKED, OURS)
_POLICY = _guess(BounceReason.POLICY, OURS)
_LIMITED = CodeMeaning(BounceReason.BUSY, OURS)
_GREYLISTED = _guess(BounceReason.BUSY, TEMPORARY)

# Subject and detail of the code; the subject alone for all other details.
# Missing on purpose, because they say nothing: 0.0, 1.0, 2.0, 5.0.
PERMANENT: dict[str, CodeMeaning] = {
    "1.1": CodeMeaning(BounceReason.NO_SUCH_USER, DEAD),
    "1.2": CodeMeaning(BounceReason.NO_SUCH_HOST, DEAD),
    "1.3": CodeMeaning(BounceReason.NO_SUCH_USER, DEAD),
    "1.6": CodeMeaning(BounceReason.MOVED, DEAD),
    "1.7": _SENDER,
    "1.8": _SENDER,
    "1.9": _SENDER,
    "1.10": CodeMeaning(BounceReason.NO_MAIL_ACCEPTED, DEAD),  # null MX; Exchange: no such user
    "2.1": _guess(BounceReason.SUSPENDED, TEMPORARY),  # many servers use it for anything
    "2.2": CodeMeaning(BounceReason.MAILBOX_FULL, TEMPORARY),
    "2.3": CodeMeaning(BounceReason.TOO_LARGE, TEMPORARY),  # for this mailbox
    "2.4": _SYSTEM,
    "3": _SYSTEM,
    "3.4": CodeMeaning(BounceReason.TOO_LARGE, OURS),
    "4": _NETWORK,
    "4.4": _guess(BounceReason.NO_SUCH_HOST, DEAD),
    "4.5": _GREYLISTED,
    "4.7": _EXPIRED,
    "4.300": _EXPIRED,
    "4.310": CodeMeaning(BounceReason.NO_SUCH_HOST, DEAD),
    "5.1": _MALFORMED,
    "5.2": _MALFORMED,
    "5.3": _LIMITED,
    "5.4": _MALFORMED,
    "5.5": _MALFORMED,
    "5.6": _MALFORMED,
    "6": _MALFORMED,
    "7": _POLICY,
    "7.4": _guess(BounceReason.AUTHENTICATION, OURS),  # no encryption, or a weak one
    "7.5": _guess(BounceReason.AUTHENTICATION, OURS),
    "7.13": CodeMeaning(BounceReason.SUSPENDED, TEMPORARY),
    "7.20": _UNAUTHENTICATED,
    "7.21": _UNAUTHENTICATED,
    "7.22": _UNAUTHENTICATED,
    "7.23": _UNAUTHENTICATED,
    "7.24": _UNAUTHENTICATED,
    "7.25": _UNAUTHENTICATED,
    "7.26": _UNAUTHENTICATED,
    "7.28": _LIMITED,
    "7.29": _UNAUTHENTICATED,
    "7.30": _UNAUTHENTICATED,
    "7.32": _UNAUTHENTICATED,
    "7.40": _UNAUTHENTICATED,
    "7.501": _BLOCKED,
    "7.502": _BLOCKED,
    "7.503": _BLOCKED,
    "7.506": _BLOCKED,
    "7.508": _BLOCKED,
    "7.509": _UNAUTHENTICATED,
    "7.511": _BLOCKED,
    "7.512": CodeMeaning(BounceReason.BAD_MESSAGE, OURS),
    "7.513": _BLOCKED,
    "7.515": _UNAUTHENTICATED,
    "7.520": _POLICY,
    "7.708": _BLOCKED,
    "7.750": _BLOCKED,
}
TEMPORARY_CODES: dict[str, CodeMeaning] = {
    **{code: meaning for code, meaning in PERMANENT.items() if meaning.bounce_class is not DEAD},
    "1": _guess(BounceReason.UNKNOWN, TEMPORARY),
    "2.1": _GREYLISTED,
    "4.4": _NETWORK,
    "4.310": _NETWORK,
    "5.3": _GREYLISTED,
    "7": _GREYLISTED,
    "7.650": _BLOCKED,
}

_ENHANCED = re.compile(r"(?<![\w.])([245])\.([0-7])\.(\d{1,3})(?![\d.]*\d)")
# Microsoft bans networks with codes between these (Access denied, banned sending IP).
_BANNED = range(606, 650)


def meaning_of(status: str) -> CodeMeaning | None:
    """Look up what a code means; None for success, no code, and codes without a clear meaning."""
    digits = status.split(".")
    if len(digits) != 3 or digits[0] not in "45":
        return None
    table = PERMANENT if digits[0] == "5" else TEMPORARY_CODES
    if digits[1] == "7" and int(digits[2]) in _BANNED:
        return _BLOCKED
    return table.get(f"{digits[1]}.{digits[2]}") or table.get(digits[1])


def enhanced_codes(words: str) -> list[str]:
    """All enhanced codes in a text, in order."""
    return [f"{found[1]}.{found[2]}.{int(found[3])}" for found in _ENHANCED.finditer(words[:4_000])]


def most_specific(codes: list[str]) -> str:
    """Choose the most specific code: a precise one, else a guess, else any."""
    failures = [code for code in codes if code[0] != "2"]
    for code in failures:
        meaning = meaning_of(code)
        if meaning and meaning.precise:
            return code
    for code in failures:
        if meaning_of(code):
            return code
    return (failures or codes or [""])[0]
