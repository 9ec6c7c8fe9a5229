"""Work items: keys only, never bodies, so that a queue stays small and a row decides."""

from __future__ import annotations

import re

import msgspec

# Only what can be part of a storage key: a poisoned item must not break whoever looks it up.
_NUMBER = re.compile(r"[0-9]{1,18}")
_WORD = re.compile(r"[A-Za-z0-9_]{1,50}")
_KEY = re.compile(r"[!-\"$-+.0->@-\[\]-~-]{1,400}")  # of an address
_TEST = "test"


class BadItem(ValueError):
    """A body that is none of ours: it goes to the dead letters."""


class BatchItem(msgspec.Struct, frozen=True):
    """`date,ref,first address,restart,batch`: send one batch."""

    date: str
    ref: str
    first: str
    restart: bool
    batch: int

    def body(self) -> str:
        return f"{self.date},{self.ref},{self.first},{int(self.restart)},{self.batch}"


class ConfirmItem(msgspec.Struct, frozen=True):
    """`guid,list`: mail a confirmation link."""

    guid: str
    list_name: str

    def body(self) -> str:
        return f"{self.guid},{self.list_name}"


class TrialItem(msgspec.Struct, frozen=True):
    """`test,ref,nonce,user`: mail a message to one user alone, as a test."""

    ref: str
    nonce: str  # tells one test from the next, and is the same in every copy of it
    user: str  # the user's key

    def body(self) -> str:
        return f"{_TEST},{self.ref},{self.nonce},{self.user}"


def parse_batch_item(body: str) -> BatchItem:
    match body.split(","):
        case [date, ref, first, ("0" | "1") as restart, batch] if _NUMBER.fullmatch(
            ref
        ) and _NUMBER.fullmatch(batch):
            return BatchItem(date, ref, first, restart == "1", int(batch))
    raise BadItem("a mail work item is date,ref,first address,restart,batch")


def parse_confirm_item(body: str) -> ConfirmItem:
    match body.split(","):
        case [guid, list_name] if _WORD.fullmatch(guid) and _WORD.fullmatch(list_name):
            return ConfirmItem(guid, list_name)
    raise BadItem("a subscribe work item is guid,list")


def is_trial_item(body: str) -> bool:
    return body.startswith(f"{_TEST},")


def parse_trial_item(body: str) -> TrialItem:
    match body.split(","):
        case ["test", ref, nonce, user] if (
            _NUMBER.fullmatch(ref) and _WORD.fullmatch(nonce) and _KEY.fullmatch(user)
        ):
            return TrialItem(ref, nonce, user)
    raise BadItem("a test work item is test,ref,nonce,user")
