"""What a run of `postroom bench` is asked for."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from postroom.domain.errors import BadInput

MAIL_BYTES_MIN = 1500  # the heading and the foot of a mail alone have 1,200
TEMPFAIL_SHARE_MAX = 0.5


class Way(StrEnum):
    """Where mails go."""

    SMTP = "smtp"  # to the sink
    OUTBOX = "outbox"  # into storage


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    recipients: int = 20_000
    senders: int = 1
    lanes: int = 4
    window: int = 8
    chunking: bool = True
    delay_ms: float = 0.0
    storage: str = ""  # as POSTROOM_STORAGE; empty: a new SQLite file
    transport: Way = Way.SMTP
    tempfail_share: float = 0.0  # of the recipients, whom the sink refuses at first
    tls: bool = False
    mail_bytes: int = 4096
    baselines: bool = True  # also measure what others do with the same sink

    @property
    def connections(self) -> int:
        return self.senders * self.lanes

    def check(self) -> None:
        """BadInput if what is asked for does not go together."""
        if self.transport is Way.OUTBOX and (self.tls or self.tempfail_share or self.delay_ms):
            raise BadInput(
                "The outbox has no line: leave --tls, --tempfail-share and --delay-ms out."
            )
