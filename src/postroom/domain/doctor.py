"""What `postroom doctor` finds; engines and transports report in the same form."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class DoctorVerdict(StrEnum):
    RIGHT = "right"
    NOTE = "note"  # worth knowing, nothing to fix
    WRONG = "wrong"


class DoctorFinding(msgspec.Struct, frozen=True):
    verdict: DoctorVerdict
    about: str
    words: str
    mend: str = ""  # how to fix it
