"""A mailing list: a name that is part of URLs and keys, a description, a From address."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import msgspec

from postroom.domain.address import parse_mailbox
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.texts import _, is_one_line

NAME_CHARS_MAX = 50  # part of keys and of List-Id, where a DNS label has at most 63
DESCRIPTION_CHARS_MAX = 200
POSTAL_ADDRESS_CHARS_MAX = 300
# Words that web addresses use, or may use, in the place of a list name.
RESERVED_NAMES = frozenset(
    {"all", "ask", "delete", "edit", "export", "import", "live", "new", "search", "upload"}
)
_NAME = re.compile(rf"[A-Za-z0-9_]{{1,{NAME_CHARS_MAX}}}")


class MailingList(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    sender: str  # a mailbox, "Name <address>" or an address alone
    created_at: datetime
    postal_address: str = ""
    public_form: bool = False  # anybody can sign up on a page of this service
    language: str = "en"  # of its messages, as in <html lang>
    template: str = ""  # with which new messages begin; "": none


class NoSuchList(NotFound):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(_("There is no list {name}.", name=name))


def list_data(found: MailingList) -> dict[str, Any]:
    """A list as JSON, the same on the command line and in the web service."""
    return {
        "name": found.name,
        "from": found.sender,
        "description": found.description,
        "postal_address": found.postal_address,
        "public_form": found.public_form,
        "created_at": found.created_at,
    }


def check_list_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(
            _(
                "“{name}” cannot be a list name. Use 1 to {limit} letters, digits or underscores, "
                "for example contoso1.",
                name=name,
                limit=NAME_CHARS_MAX,
            )
        )
    return name


def check_new_list_name(name: str) -> str:
    """Check the name of a list that is to be created."""
    if folded_name(check_list_name(name)) in RESERVED_NAMES:
        raise BadInput(
            _("“{name}” cannot be a list name, because it is used in web addresses.", name=name)
        )
    return name


def folded_name(name: str) -> str:
    """The same for names that differ only in case: only one of them can exist."""
    return name.lower()


def check_description(text: str) -> str:
    text = text.strip()
    if len(text) > DESCRIPTION_CHARS_MAX:
        raise BadInput(
            _(
                "The description is longer than {limit} characters. Shorten it.",
                limit=DESCRIPTION_CHARS_MAX,
            )
        )
    if not is_one_line(text):
        raise BadInput(_("The description must be one line without control characters."))
    return text


def check_sender(text: str) -> str:
    """Return the mailbox as typed; BadInput if it is not valid, or some servers refuse it."""
    if parse_mailbox(text).address.needs_utf8:
        raise BadInput(
            _(
                "{name} must be an ASCII address: not every server accepts other characters.",
                name="From",
            )
        )
    return text.strip()


def check_postal_address(text: str) -> str:
    text = text.strip()
    if len(text) > POSTAL_ADDRESS_CHARS_MAX or not is_one_line(text):
        raise BadInput(
            _(
                "The postal address must be one line of at most {limit} characters.",
                limit=POSTAL_ADDRESS_CHARS_MAX,
            )
        )
    return text
