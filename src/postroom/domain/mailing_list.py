"""A mailing list: a name that stands in URLs and keys, a description, a From address."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from postroom.domain.errors import BadInput

NAME_CHARS_MAX = 50  # stands in keys and in List-Id (a DNS label allows 63)
DESCRIPTION_CHARS_MAX = 200
_NAME = re.compile(rf"[A-Za-z0-9_]{{1,{NAME_CHARS_MAX}}}")


class MailingList(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    sender: str  # a mailbox, "Name <address>" or an address alone
    created_at: datetime
    postal_address: str = ""


def check_list_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"“{name}” cannot be a list name: use 1 to {NAME_CHARS_MAX} letters, digits or "
            "underscores, for example contoso1."
        )
    return name


def check_description(text: str) -> str:
    text = text.strip()
    if len(text) > DESCRIPTION_CHARS_MAX:
        raise BadInput(f"The description is longer than {DESCRIPTION_CHARS_MAX} characters.")
    if not text.isprintable():
        raise BadInput("The description must be one line without control characters.")
    return text
