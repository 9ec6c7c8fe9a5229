"""What a transport can do, for the table in docs/transports.md."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class DoubtSettling(StrEnum):
    """How a lost reply is settled."""

    NONE = "a person, or sending again"
    EVENT = "the provider’s events"
    STATUS_CALL = "asking for the operation"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    batch_max: int  # mails of one call or transaction
    bytes_max: int | None  # of one mail; None: as the server says
    per_recipient_headers: bool
    own_message_id: bool  # the mail leaves with the Message-ID that we gave it
    signs_dkim: bool
    idempotent_repeat: bool  # a repeated call is not a second mail
    doubt: DoubtSettling
    utf8_local_part: bool
    feedback_by: str


def as_markdown(capabilities: Mapping[str, Capabilities]) -> str:
    """The table, one row per transport."""
    lines = [
        "| address | emails per call | largest email | headers for each recipient | our Message-ID "
        "| signs DKIM | repeat is harmless | a lost reply is settled by | non-ASCII local part "
        "| feedback by |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for form, can in capabilities.items():
        size = f"{can.bytes_max // 1024**2} MiB" if can.bytes_max else "the server’s limit"
        cells = [
            f"`{form}`",
            str(can.batch_max),
            size,
            _word(can.per_recipient_headers),
            _word(can.own_message_id),
            _word(can.signs_dkim),
            _word(can.idempotent_repeat),
            can.doubt.value,
            _word(can.utf8_local_part),
            can.feedback_by,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _word(answer: bool) -> str:
    return "yes" if answer else "no"
