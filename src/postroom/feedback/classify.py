"""What a refusal means: whose problem it is, and why.

The evidence is weighed in this order: a precise enhanced code, the server's words, an imprecise
enhanced code, the basic code. Words overrule a code that calls an address dead, a server that says
"temporary" is believed, and no address is called dead without evidence. Known phrases come before
statements (statements.py), which are only looked for in what a server replied.
"""

from __future__ import annotations

import re

import msgspec

from postroom.domain.feedback import BounceClass, BounceReason, Classification
from postroom.domain.outcome import clip
from postroom.feedback.enhanced_codes import (
    CodeMeaning,
    enhanced_codes,
    meaning_of,
    most_specific,
)
from postroom.feedback.phrases import GROUPS, NO_DNS_ENTRIES
from postroom.feedback.statements import (
    Statement,
    contradiction,
    first_statement,
    foreign_statement,
)
from postroom.feedback.wording import PhraseGroup, first_match, plain

DEAD = BounceClass.DEAD
TEMPORARY = BounceClass.TEMPORARY
OURS = BounceClass.OURS

# A refusal without an explanation counts like a full mailbox: five of them are too many.
NO_EVIDENCE = (BounceReason.UNKNOWN, TEMPORARY)

WORDS_OF_A_CODE_MAX = 4  # "#5.4.4 smtp;550 5.4.4": a code without an explanation

BASIC_CODES: dict[int, tuple[BounceReason, BounceClass]] = {
    421: (BounceReason.BUSY, TEMPORARY),
    450: (BounceReason.BUSY, TEMPORARY),
    451: (BounceReason.SYSTEM, TEMPORARY),
    452: (BounceReason.SYSTEM, TEMPORARY),
    454: (BounceReason.AUTHENTICATION, OURS),
    500: (BounceReason.BAD_MESSAGE, OURS),
    501: (BounceReason.BAD_MESSAGE, OURS),
    502: (BounceReason.BAD_MESSAGE, OURS),
    503: (BounceReason.BAD_MESSAGE, OURS),
    504: (BounceReason.BAD_MESSAGE, OURS),
    521: (BounceReason.BLOCKED, OURS),  # RFC 7504: takes no mail; in practice: none from us
    523: (BounceReason.AUTHENTICATION, OURS),
    525: (BounceReason.SUSPENDED, TEMPORARY),
    530: (BounceReason.AUTHENTICATION, OURS),
    535: (BounceReason.AUTHENTICATION, OURS),
    538: (BounceReason.AUTHENTICATION, OURS),
    541: (BounceReason.SPAM, OURS),
    551: (BounceReason.MOVED, TEMPORARY),  # often "not our user", often "we do not relay"
    552: (BounceReason.MAILBOX_FULL, TEMPORARY),  # RFC 5321 4.5.3.1.10
    556: (BounceReason.NO_MAIL_ACCEPTED, DEAD),  # RFC 7504
    571: (BounceReason.BLOCKED, OURS),
}
LOGIN_REFUSALS = (534, 535, 538)  # RFC 4954: a user of this kind is us

_BASIC = re.compile(r"(?<![\w.\-/@#])([45][0-57]\d)(?=[ :,\-)\]]|$)")
_BEFORE_RECIPIENT = re.compile(
    r"(?:\bin reply to|\bafter|\bour|\bfollowing|sent <<<|>>>)\s+(?:the\s+)?"
    r"(?:mail from\b|mail command\b|ehlo\b|helo\b|initial)"
    r"|refused to talk to me|(?:sender|my name) was rejected|\[mail_from\]|smtp:mail\b"
    r"|while talking to \S{1,250}: <<<"
)
_AFTER_CONTENT = re.compile(
    r"\b(?:in reply to|after|our|following)\s+(?:the\s+)?(?:final data|end of data|data\b)"
    r"|smtp command data\b|smtp:data\b|after i sent the message"
)


class Judgement(msgspec.Struct, frozen=True):
    """A classification, and how sure it is."""

    reason: BounceReason
    bounce_class: BounceClass
    status: str = ""
    certain: bool = False  # by words or by a precise code; otherwise a guess


def classify_words(status: str, words: str, code: int | None = None) -> Classification:
    """Classify a server's reply, as reported by SMTP or a webhook.

    `status` is the enhanced code if it is known apart from the words, `code` the basic one.
    """
    judgement = judge(words, status=status, code=code, is_reply=True)
    return Classification(
        bounce_class=judgement.bounce_class,
        reason=judgement.reason,
        status=judgement.status,
        words=clip(words),
    )


def judge(
    words: str,
    *,
    status: str = "",
    code: int | None = None,
    context: str = "",
    is_reply: bool = False,
) -> Judgement:
    """Weigh codes and words; `context` is text that may name the refused SMTP command."""
    text = plain(words)
    specific = _best_code(words, status)
    basic = code or basic_code(words)
    meaning = meaning_of(specific)
    found = first_match(GROUPS, text)
    evidence: PhraseGroup | Statement | None = found if found and not found.is_weak else None
    evidence = evidence or foreign_statement(text)
    calls_dead = meaning is not None and meaning.precise and meaning.bounce_class is DEAD
    if evidence is None and is_reply:
        evidence = first_statement(text)
        if evidence and calls_dead and evidence.bounce_class is DEAD:
            evidence = None  # the code is more precise
    certain = True
    if meaning and meaning.precise and not (evidence and calls_dead):
        reason, bounce_class = meaning.reason, meaning.bounce_class
    elif evidence:
        reason, bounce_class = evidence.reason, evidence.bounce_class
    else:
        certain = False
        reason, bounce_class = _guess(found, meaning, basic)
        if bounce_class is DEAD and len(text.split()) > WORDS_OF_A_CODE_MAX:
            reason, bounce_class = NO_EVIDENCE  # it explained itself, and said nothing of the kind
    if bounce_class is DEAD and found is not NO_DNS_ENTRIES:
        doubt = contradiction(text)
        reason, bounce_class = (doubt.reason, doubt.bounce_class) if doubt else (reason, DEAD)
    session = f"{text} {' '.join(context.lower().split())}"
    if bounce_class is DEAD and basic in LOGIN_REFUSALS:
        reason, bounce_class = BounceReason.AUTHENTICATION, OURS
    is_temporary = specific.startswith("4") or (basic is not None and 400 <= basic < 500)
    reason, bounce_class = _by_command(reason, bounce_class, session, specific, is_temporary)
    return Judgement(reason, bounce_class, specific, certain)


def _best_code(words: str, status: str) -> str:
    """Choose the code to go by.

    A code inside the words is the remote server's own; `status` may be a relay's translation, and
    is only used if the words have none with a meaning.
    """
    own = most_specific(enhanced_codes(words))
    return (
        own if meaning_of(own) else most_specific([*enhanced_codes(words), *enhanced_codes(status)])
    )


def basic_code(words: str) -> int | None:
    """Return the first basic code (RFC 5321) in a reply."""
    found = _BASIC.search(words[:2_000])
    return int(found[1]) if found else None


def _guess(
    group: PhraseGroup | None, meaning: CodeMeaning | None, basic: int | None
) -> tuple[BounceReason, BounceClass]:
    """Fall back on weak words, an imprecise code, or nothing."""
    found = group or meaning
    if found:
        return found.reason, found.bounce_class
    return BASIC_CODES.get(basic or 0, NO_EVIDENCE)


def _by_command(
    reason: BounceReason, bounce_class: BounceClass, session: str, status: str, is_temporary: bool
) -> tuple[BounceReason, BounceClass]:
    """Correct the guess by the command that was refused.

    A refusal before the recipient was named, or after the content, is about us. An address that
    would be called dead may turn out not to be.
    """
    is_open = reason in (BounceReason.UNKNOWN, BounceReason.EXPIRED)
    if reason is BounceReason.FILTERED and _AFTER_CONTENT.search(session):
        return reason, OURS  # the content was filtered
    if bounce_class is not DEAD and not is_open:
        return reason, bounce_class
    if _BEFORE_RECIPIENT.search(session) and (bounce_class is DEAD or not is_temporary):
        return (BounceReason.POLICY if is_open else BounceReason.BAD_SENDER), OURS
    if is_temporary:
        return reason, TEMPORARY
    if _AFTER_CONTENT.search(session) and not status.startswith("5.1."):
        if reason is BounceReason.NO_SUCH_USER:
            return BounceReason.FILTERED, OURS  # it had accepted the recipient before
        if reason is BounceReason.UNKNOWN:
            return BounceReason.POLICY, OURS
    return reason, bounce_class
