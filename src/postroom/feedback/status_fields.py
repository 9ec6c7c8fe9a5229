"""The machine-readable fields of reports: delivery status (RFC 3464) and feedback (RFC 5965)."""

from __future__ import annotations

import re

import msgspec

from postroom.feedback.mail_parts import Headers, field, parse_fields

ACTIONS = ("failed", "failure", "delayed", "delivered", "relayed", "expanded")
GROUPS_MAX = 100  # recipients of one report; ours have one

_GROUP_FIELDS = re.compile(
    r"(?im)^[ \t>]{0,8}(?:final-recipient|original-recipient|action|status|diagnostic-code)[ \t]*:"
)
_ADDRESS_TYPE = re.compile(r"^(?:rfc ?822|x400|utf-8|unknown|lmtp|smtp|system)\s*;\s*", re.I)
_DIAGNOSTIC_TYPE = re.compile(r"^(?:smtp|x-[\w-]{1,40}|unknown|lmtp|dns|esmtp)\s*;\s*", re.I)
_STATUS = re.compile(r"[245]\.\d{1,3}\.\d{1,3}")
_ADDRESS = re.compile(r"[^\s<>()\[\],;:@\"]{1,64}@[\w.-]{1,250}|\"[^\"\n]{1,64}\"@[\w.-]{1,250}")


class RecipientStatus(msgspec.Struct, frozen=True):
    """What is reported about one recipient."""

    recipient: str = ""
    action: str = ""  # failed, delayed, delivered, relayed, expanded
    status: str = ""
    diagnostic: str = ""


def delivery_status(text: str) -> list[RecipientStatus]:
    """Read the groups of a delivery status, wherever they stand in the text."""
    if not _GROUP_FIELDS.search(text):
        return []
    blocks = re.split(r"\r?\n(?:[ \t]*\r?\n)+", text)[:GROUPS_MAX]
    found = [
        _group(parse_fields(_unquoted(block))) for block in blocks if _GROUP_FIELDS.search(block)
    ]
    named = [group for group in found if group.recipient or group.diagnostic or group.action]
    return named or found


def named_statuses(text: str) -> list[RecipientStatus]:
    """Read groups from a text for people, in which "Status:" alone means nothing."""
    return [
        group
        for group in delivery_status(text)
        if group.recipient and (group.status or group.action in ACTIONS)
    ]


def feedback_fields(text: str) -> Headers:
    """Read a feedback report; empty if the text is not one."""
    fields = parse_fields(text)
    return fields if "feedback-type" in fields else {}


def first_address(value: str) -> str:
    """Return the first email address in a text."""
    found = _ADDRESS.search(value[:4_000])
    return found[0].rstrip(".") if found else ""


def without_type(diagnostic: str) -> str:
    """Take the type ("smtp;") from a diagnostic code."""
    return _DIAGNOSTIC_TYPE.sub("", diagnostic)


def _group(fields: Headers) -> RecipientStatus:
    original = _address(field(fields, "original-recipient"))
    status = _STATUS.search(field(fields, "status"))
    diagnostics = [" ".join(value.split()) for value in fields.get("diagnostic-code", [])]
    return RecipientStatus(
        recipient=original or _address(field(fields, "final-recipient")),
        action=field(fields, "action").lower().partition(" ")[0].strip(";,."),
        status=status[0] if status else "",
        diagnostic=" ".join(map(without_type, diagnostics)),
    )


def _address(value: str) -> str:
    return first_address(_ADDRESS_TYPE.sub("", value))


def _unquoted(block: str) -> str:
    """Remove the indentation or quotation marks that a text may have put before the fields."""
    lines = block.splitlines()
    if _GROUP_FIELDS.match(block) and not re.match(r"[ \t>]", block):
        return block
    return "\n".join(line.lstrip(" \t>") if _GROUP_FIELDS.match(line) else line for line in lines)
