"""Reads an incoming mail as a report: a bounce, a delay, a complaint, or no report at all.

Pure, and safe for any bytes: work and memory are bounded, and nothing raises.
"""

from __future__ import annotations

import email
import logging
import re
from email import policy

import msgspec
from flufl.bounce import all_failures

from postroom.domain.feedback import BounceClass, BounceReason, Classification, FeedbackKind
from postroom.domain.outcome import clip
from postroom.feedback import prose
from postroom.feedback.classify import NO_EVIDENCE, Judgement, judge
from postroom.feedback.delivery_token import token_in_headers, token_in_original, token_in_text
from postroom.feedback.mail_parts import (
    Headers,
    IncomingMail,
    MailPart,
    decode_words,
    field,
    read_mail,
    split_headers,
)
from postroom.feedback.ses_notification import SesOutcome, read_notification
from postroom.feedback.status_fields import (
    RecipientStatus,
    delivery_status,
    feedback_fields,
    first_address,
    named_statuses,
)

FORWARDS_MAX = 2  # a report that was forwarded, perhaps twice
LAST_RESORT_BYTES_MAX = 20_000  # flufl.bounce parses with the email package
TEXT_CHARS_MAX = 120_000  # of all texts together
SUBJECT_CHARS_MAX = 1_000  # RFC 5322 allows 998 on a line; patterns search it in quadratic time

STATUS_TYPES = ("message/delivery-status", "message/global-delivery-status")
FEEDBACK_TYPES = ("message/feedback-report",)
RECEIPT_TYPES = ("message/disposition-notification", "message/global-disposition-notification")
ORIGINAL_TYPES = (
    "message/rfc822",
    "message/global",
    "text/rfc822-headers",
    "message/rfc822-headers",
)
SUCCESSES = ("delivered", "relayed", "expanded")
# It logs what it then raises: for a hostile mail a traceback of thousands of lines.
logging.getLogger("flufl.bounce").setLevel(logging.CRITICAL)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an incoming mail reports; if it has no kind, the mail is not feedback."""

    kind: FeedbackKind | None
    classification: Classification
    recipient: str = ""
    delivery: str = ""  # the delivery token, not checked
    message_id: str = ""  # of the email that the report is about


class _Contents(msgspec.Struct, frozen=True):
    """The parts of a mail, by what they are for."""

    raw: bytes
    mail: IncomingMail
    statuses: list[RecipientStatus]
    feedback: Headers
    has_receipt: bool
    text: str  # what the server wrote
    original: Headers  # of the returned message
    original_text: str  # the returned message, as far as the text contains it
    attached: bytes  # the returned message, if it is a part

    @property
    def subject(self) -> str:
        return decode_words(field(self.mail.headers, "subject"))[:SUBJECT_CHARS_MAX]


def read_report(raw: bytes) -> Report:
    """Read a mail as a report."""
    outer = _sort_parts(raw)
    contents = outer
    for _forward in range(FORWARDS_MAX):
        if _is_for_machines(contents) or not contents.attached:
            break
        raw = contents.attached
        contents = _sort_parts(raw)
    if not _is_for_machines(contents):
        return _assess(outer)
    # A report inside another mail was forwarded, or refused in its turn.
    report = _assess(contents)
    return msgspec.structs.replace(report, delivery=report.delivery or _delivery(outer))


def _is_for_machines(contents: _Contents) -> bool:
    return bool(contents.statuses or contents.feedback)


def _sort_parts(raw: bytes) -> _Contents:
    mail = read_mail(raw)
    statuses: list[RecipientStatus] = []
    feedback: Headers = {}
    texts: list[str] = []
    originals: list[MailPart] = []
    htmls: list[str] = []
    for part in mail.parts:
        if part.content_type in STATUS_TYPES:
            statuses += delivery_status(part.text)
        elif part.content_type in FEEDBACK_TYPES:
            feedback = feedback or feedback_fields(part.text)
        elif part.content_type in ORIGINAL_TYPES:
            originals.append(part)
        elif part.content_type == "text/html":
            htmls.append(part.text)
        elif part.content_type.startswith(("text/", "multipart/")):
            texts.append(part.text)
        elif part.content_type.startswith("application/"):  # a gateway made it an attachment
            statuses = statuses or named_statuses(part.text[:20_000])
    written = "\n\n".join(texts if any(text.strip() for text in texts) else htmls)
    text, original_text = prose.split_original(written[:TEXT_CHARS_MAX])
    if not statuses and not feedback:  # broken MIME, or fields written for people
        feedback = feedback_fields(f"{text}\n{original_text}") if "eedback-" in written else {}
        statuses = named_statuses(text) or named_statuses(original_text[:20_000])
    original = split_headers(originals[0].content)[0] if originals else {}
    return _Contents(
        raw=raw,
        mail=mail,
        statuses=statuses,
        feedback=feedback,
        has_receipt=any(part.content_type in RECEIPT_TYPES for part in mail.parts),
        text=text,
        original=original or _fields_in(original_text),
        original_text=original_text,
        attached=originals[0].content if originals else b"",
    )


def _assess(contents: _Contents) -> Report:
    if contents.feedback or _is_complaint(contents):
        return _complaint(contents)
    notification = read_notification(contents.text)
    if notification:
        return _notified(contents, notification)
    if _asks_to_unsubscribe(contents):
        report = _report(contents, FeedbackKind.UNSUBSCRIBED, BounceReason.COMPLAINT)
        sender = first_address(field(contents.mail.headers, "from"))
        return msgspec.structs.replace(report, recipient=sender)
    if contents.has_receipt:
        return _report(contents, None, BounceReason.AUTOMATIC_REPLY)
    if contents.statuses:
        return _status_report(contents)
    if prose.DELIVERIES.search(contents.text) and not prose.FAILURES.search(contents.text):
        report = _report(contents, FeedbackKind.DELIVERED, BounceReason.DELIVERED)
        return msgspec.structs.replace(report, recipient=_recipient(contents, RecipientStatus()))
    if _is_bounce(contents):
        return _bounce(contents, RecipientStatus())
    if _is_automatic(contents):
        return _report(contents, None, BounceReason.AUTOMATIC_REPLY)
    return _report(contents, None, BounceReason.NOT_FEEDBACK)


# --- Complaints -------------------------------------------------------------------------------


def _is_complaint(contents: _Contents) -> bool:
    """Whether a mail without the fields is a complaint: Microsoft's and Amazon's are."""
    if contents.mail.report_type == "feedback-report":
        return True
    subject = contents.subject
    return bool(
        (contents.attached or contents.original_text)
        and not contents.statuses
        and prose.COMPLAINT_SUBJECTS.search(subject)
        and not prose.ANSWERS.match(subject)
    )


def _complaint(contents: _Contents) -> Report:
    """A feedback report; its type shows whether the recipient complained."""
    feedback_type = field(contents.feedback, "feedback-type").lower()
    words = f"Feedback-Type: {feedback_type}" if feedback_type else contents.subject
    if feedback_type == "not-spam":
        return _report(contents, None, BounceReason.NOT_FEEDBACK, words=words)
    reason = BounceReason.COMPLAINT
    if feedback_type.startswith(("auth-failure", "dmarc")):
        reason = BounceReason.AUTHENTICATION  # a filter's report (RFC 6591), not the recipient's
    kind = FeedbackKind.COMPLAINED
    if feedback_type.startswith("opt-out"):
        kind = FeedbackKind.UNSUBSCRIBED
    return _report(contents, kind, reason, words=words, bounce_class=BounceClass.COMPLAINT)


def _notified(contents: _Contents, notification: SesOutcome) -> Report:
    if notification.kind is FeedbackKind.BOUNCED:
        return _bounce(contents, notification.status)
    is_complaint = notification.kind is FeedbackKind.COMPLAINED
    report = _report(
        contents,
        notification.kind,
        BounceReason.COMPLAINT if is_complaint else BounceReason.DELIVERED,
        bounce_class=BounceClass.COMPLAINT if is_complaint else BounceClass.IGNORE,
    )
    return msgspec.structs.replace(report, recipient=notification.status.recipient)


def _asks_to_unsubscribe(contents: _Contents) -> bool:
    """Mail programs answer List-Unsubscribe with an almost empty mail."""
    if field(contents.mail.headers, "x-apple-unsubscribe").lower() == "true":
        return True
    subject = contents.subject.strip().lower()
    return subject == "unsubscribe" and len(contents.text) < 400 and not contents.statuses


# --- Bounces ----------------------------------------------------------------------------------


def _status_report(contents: _Contents) -> Report:
    groups = contents.statuses
    failed = [group for group in groups if group.action in ("failed", "failure")]
    delayed = [group for group in groups if group.action.startswith("delay")]
    done = [group for group in groups if group.action in SUCCESSES or group.status[:1] == "2"]
    if failed:
        return _bounce(contents, failed[0])
    if delayed:
        return _bounce(contents, delayed[0], kind=FeedbackKind.DEFERRED)
    if done and len(done) == len(groups):
        report = _report(contents, FeedbackKind.DELIVERED, BounceReason.DELIVERED)
        return msgspec.structs.replace(report, recipient=done[0].recipient or report.recipient)
    return _bounce(contents, groups[0])


def _is_bounce(contents: _Contents) -> bool:
    """Whether enough of sender, subject, text and form is typical of a bounce."""
    headers = contents.mail.headers
    if field(headers, "x-failed-recipients") or contents.mail.report_type == "delivery-status":
        return True
    subject = contents.subject
    sender = decode_words(field(headers, "from"))
    by_sender = bool(prose.BOUNCE_SENDERS.search(sender))
    by_text = bool(prose.BOUNCE_BODIES.search(contents.text[:10_000]))
    if prose.AUTOMATIC_SUBJECTS.search(subject) and not (by_sender and by_text):
        return False
    of_a_machine = [
        by_sender,
        "mailer-daemon" in sender.lower(),  # nobody else writes under this name
        field(headers, "return-path") == "<>",
        prose.forwards_a_bounce(subject, contents.text),
    ]
    signs = [by_text]
    if not prose.ANSWERS.match(subject):
        of_a_machine.append(bool(contents.attached))
        signs.append(bool(prose.BOUNCE_SUBJECTS.search(subject)))
    is_quoting = prose.quotes_a_server(contents.text)
    returns_it = by_text and bool(contents.attached)
    if _is_automatic(contents) and not (by_sender or any(signs[1:]) or is_quoting or returns_it):
        return False
    # "We were unable to deliver your parcel" is not a bounce.
    has_proof = any(of_a_machine) or is_quoting
    return has_proof and sum(of_a_machine) + sum(signs) >= 2


def _is_automatic(contents: _Contents) -> bool:
    headers = contents.mail.headers
    submitted = field(headers, "auto-submitted").lower()
    return (
        submitted.startswith(("auto-replied", "auto-generated", "auto-notified"))
        or any(name in headers for name in ("x-autoreply", "x-autorespond", "x-autoresponder"))
        or field(headers, "precedence").lower() in ("auto_reply", "auto-reply")
        or field(headers, "x-auto-response-suppress") != ""
        or bool(prose.AUTOMATIC_SUBJECTS.search(contents.subject))
    )


def _bounce(
    contents: _Contents,
    group: RecipientStatus,
    kind: FeedbackKind = FeedbackKind.BOUNCED,
) -> Report:
    is_delay = prose.DELAY_SUBJECTS.search(contents.subject) or prose.DELAYS.search(contents.text)
    if is_delay and group.action not in ("failed", "failure"):
        kind = FeedbackKind.DEFERRED
    judgement, words = _judge_report(contents, group)
    recipient = _recipient(contents, group)
    reason = judgement.reason
    bounce_class = judgement.bounce_class
    if reason is BounceReason.NO_SUCH_HOST and _is_about_the_sender(contents, words, recipient):
        reason, bounce_class = BounceReason.BAD_SENDER, BounceClass.OURS
    if kind is FeedbackKind.DEFERRED:
        if bounce_class is BounceClass.DEAD:  # the server itself has not given up
            bounce_class = BounceClass.TEMPORARY
        if not judgement.certain or reason is BounceReason.EXPIRED:
            reason = BounceReason.DELAYED
    report = _report(contents, kind, reason, words=words, bounce_class=bounce_class)
    return msgspec.structs.replace(
        report,
        classification=msgspec.structs.replace(report.classification, status=judgement.status),
        recipient=recipient,
    )


def _is_about_the_sender(contents: _Contents, words: str, recipient: str) -> bool:
    """Whether the words name the sender's domain and not the recipient's."""
    text = words.lower()
    other = recipient.rpartition("@")[2].lower()
    if not other or other in text:
        return False
    own = [
        *(field(contents.mail.headers, name) for name in ("to", "delivered-to")),
        *(field(contents.original, name) for name in ("return-path", "from")),
    ]
    domains = {first_address(value).rpartition("@")[2].lower() for value in own} - {""}
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) for name in domains)


def _judge_report(contents: _Contents, group: RecipientStatus) -> tuple[Judgement, str]:
    """Judge the best evidence for the refusal, and return the judgement with its words."""
    text = prose.without_echo(contents.text)
    context = prose.lines_about(contents.text, group.recipient)
    first = judge(group.diagnostic, status=group.status, context=context, is_reply=True)
    # A code alone may be a relay's guess; a server that gives words has spoken.
    explained = sum(map(str.isalpha, group.diagnostic)) > 3
    if first.certain and (explained or first.bounce_class is not BounceClass.DEAD):
        return first, group.diagnostic or group.status
    replies = prose.replies(contents.text)
    inside = prose.bounced_inside(contents.original_text)
    recipient = group.recipient or first_address(
        field(contents.mail.headers, "x-failed-recipients")
    )
    about = prose.lines_about(text, recipient)
    pieces = list(filter(None, [about, *prose.paragraphs(text), *prose.paragraphs(inside)]))
    attempts = [
        *((reply, True) for reply in replies),
        *((piece, False) for piece in pieces),
        *((reply, True) for reply in map(prose.reply_in, pieces) if reply),
        *((piece, True) for piece in pieces if prose.gives_reason(piece)),
        *((piece, True) for piece in prose.announced(pieces)),
        *((piece, True) for piece in pieces[:1] if about and not prose.hedges(piece)),
    ]
    guesses = [(first, group.diagnostic)]
    for piece, is_reply in attempts:
        judgement = judge(piece, context=piece, is_reply=is_reply)
        if judgement.certain:
            return _with_status(judgement, group.status), piece
        guesses.append((judgement, piece))
    if first.certain:
        return first, group.diagnostic or group.status
    for judgement, words in guesses:
        if judgement.status or (judgement.reason, judgement.bounce_class) != NO_EVIDENCE:
            return judgement, words
    subject = judge(contents.subject)
    if subject.certain and subject.bounce_class is not BounceClass.DEAD:
        return subject, contents.subject
    return Judgement(*NO_EVIDENCE), group.diagnostic or " ".join(pieces)


def _with_status(judgement: Judgement, status: str) -> Judgement:
    """Complete what words say by the status of the report; a temporary one is believed."""
    bounce_class = judgement.bounce_class
    if bounce_class is BounceClass.DEAD and status.startswith("4"):
        bounce_class = BounceClass.TEMPORARY
    return msgspec.structs.replace(
        judgement, bounce_class=bounce_class, status=judgement.status or status
    )


# --- What all reports have --------------------------------------------------------------------


def _report(
    contents: _Contents,
    kind: FeedbackKind | None,
    reason: BounceReason,
    *,
    words: str = "",
    bounce_class: BounceClass = BounceClass.IGNORE,
) -> Report:
    if kind is FeedbackKind.UNSUBSCRIBED:
        bounce_class = BounceClass.COMPLAINT
    message_id = field(contents.original, "message-id")
    return Report(
        kind=kind,
        classification=Classification(
            bounce_class=bounce_class, reason=reason, words=clip(words or contents.subject)
        ),
        recipient=_complainant(contents) if kind else "",
        delivery=_delivery(contents),
        message_id=message_id[:998].strip("<>"),
    )


def _complainant(contents: _Contents) -> str:
    for name in ("original-rcpt-to", "removal-recipient", "original-recipient"):
        address = first_address(field(contents.feedback, name))
        if address:
            return address
    for name in ("x-hmxmroriginalrecipient", "x-rcpt-to", "to"):  # the first is Microsoft's
        address = first_address(field(contents.original, name))
        if address:
            return address
    return ""


def _recipient(contents: _Contents, group: RecipientStatus) -> str:
    headers = contents.mail.headers
    ours = f"{field(headers, 'to')} {field(headers, 'delivered-to')}".lower()
    return (
        group.recipient
        or first_address(field(headers, "x-failed-recipients"))
        or prose.recipient_in(contents.text, ours)
        or first_address(field(contents.original, "to"))
        or _last_resort(contents.raw)
    )


def _last_resort(raw: bytes) -> str:
    """Ask flufl.bounce, which knows many rare formats, for the recipient."""
    try:
        mail = email.message_from_bytes(raw[:LAST_RESORT_BYTES_MAX], policy=policy.compat32)
        temporary, permanent = all_failures(mail)
    except Exception:  # noqa: BLE001 - it was not written for hostile mails
        return ""
    addresses = sorted(
        address.decode("utf-8", "replace") for address in (permanent or temporary) if address
    )
    return addresses[0] if addresses else ""


def _delivery(contents: _Contents) -> str:
    return (
        token_in_headers(contents.mail.headers)
        or token_in_original(contents.feedback)
        or token_in_original(contents.original)
        or token_in_text(contents.original_text)
        or token_in_text(contents.text)
        or token_in_text(contents.attached[:20_000].decode("ascii", "replace"))
    )


def _fields_in(text: str) -> Headers:
    """The headers of a message that was returned as text."""
    if not text:
        return {}
    lines = text.splitlines()[:400]
    begin = next((at for at, line in enumerate(lines) if ":" in line.split(" ")[0]), 0)
    return split_headers("\n".join(lines[begin:]).encode("utf-8", "replace"))[0]
