"""What `postroom doctor` finds; engines and transports report in the same form."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class CheckResult(StrEnum):
    RIGHT = "right"
    NOTE = "note"  # worth knowing, nothing to fix
    WRONG = "wrong"


class Check(msgspec.Struct, frozen=True):
    verdict: CheckResult
    about: str
    words: str
    fix: str = ""  # what to do about it
