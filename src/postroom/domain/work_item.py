"""Work items: only keys, never bodies, so that queues stay small and the rows decide.

The formats of the described system are accepted as well: a mail item without a batch number, and
a subscribe item that is only a GUID.
"""

from __future__ import annotations

import re

import msgspec

from postroom.domain.address import BadAddress, parse_address

# Only characters of storage keys, because a bad item must not break the lookup of its rows.
_NUMBER = re.compile(r"[0-9]{1,18}")
_WORD = re.compile(r"[A-Za-z0-9_]{1,50}")
_KEY = re.compile(r"[!-\"$-+.0->@-\[\]-~-]{1,400}")  # of an address
_GUID = re.compile(r"[0-9a-f]{32}")
_TEST = "test"


class BadItem(ValueError):
    """The body is not a work item of Postroom, so it becomes a dead letter."""


class BatchItem(msgspec.Struct, frozen=True):
    """`date,ref,first address,restart,batch`: send one batch."""

    date: str
    ref: str
    first: str
    restart: bool  # created after a scheduler or a person restarted the message
    batch: int

    def body(self) -> str:
        return f"{self.date},{self.ref},{self.first},{int(self.restart)},{self.batch}"


class RecipientItem(msgspec.Struct, frozen=True):
    """`date,ref,address,restart`, as described: send the batch with this recipient's delivery."""

    date: str
    ref: str
    key: str  # of the address
    restart: bool


class ConfirmItem(msgspec.Struct, frozen=True):
    """`guid,list`: send a confirmation email. As described, `guid` alone means any list."""

    guid: str
    list_name: str  # empty: not known

    def body(self) -> str:
        return f"{self.guid},{self.list_name}"


class TrialItem(msgspec.Struct, frozen=True):
    """`test,ref,nonce,user`: send a message to one user, as a test."""

    ref: str
    nonce: str  # distinguishes one test from the next, and is the same in every copy of an item
    user: str  # the user's key

    def body(self) -> str:
        return f"{_TEST},{self.ref},{self.nonce},{self.user}"


def parse_mail_item(body: str) -> BatchItem | RecipientItem:
    match body.split(","):
        case [date, ref, first, ("0" | "1") as restart, batch] if _NUMBER.fullmatch(
            ref
        ) and _NUMBER.fullmatch(batch):
            return BatchItem(date, ref, first, restart == "1", int(batch))
        case [date, ref, address, ("0" | "1") as restart] if _NUMBER.fullmatch(ref):
            try:
                key = parse_address(address).storage_key
            except BadAddress as error:
                raise BadItem(f"a mail work item names an address: {error}") from error
            return RecipientItem(date, ref, key, restart == "1")
    raise BadItem("a mail work item is date,ref,address,restart and, if it is ours, the batch")


def parse_confirm_item(body: str) -> ConfirmItem:
    match body.split(","):
        case [guid, list_name] if _WORD.fullmatch(guid) and _WORD.fullmatch(list_name):
            return ConfirmItem(guid, list_name)
        case [text] if _GUID.fullmatch(guid := text.replace("-", "").lower()):
            return ConfirmItem(guid, "")
    raise BadItem("a subscribe work item is guid,list or a GUID alone")


def is_trial_item(body: str) -> bool:
    return body.startswith(f"{_TEST},")


def parse_trial_item(body: str) -> TrialItem:
    match body.split(","):
        case ["test", ref, nonce, user] if (
            _NUMBER.fullmatch(ref) and _WORD.fullmatch(nonce) and _KEY.fullmatch(user)
        ):
            return TrialItem(ref, nonce, user)
    raise BadItem("a test work item is test,ref,nonce,user")
