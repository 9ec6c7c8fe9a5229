"""What a run of `postroom bench` is asked for."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

import msgspec

from postroom.domain.errors import BadInput

MAIL_BYTES_MIN = 1500  # the heading and the foot of a mail alone have 1,200
TEMPFAIL_SHARE_MAX = 0.5
SMALL_PEOPLE = 100


class Way(StrEnum):
    """Where mails go."""

    SMTP = "smtp"  # to the sink
    OUTBOX = "outbox"  # into storage


class WrittenAs(StrEnum):
    """What the body of the message is."""

    HTML = "html"  # paragraphs, as large as was asked for
    BLOCKS = "blocks"  # a newsletter with a picture
    CONDITIONS = "conditions"  # the same with a condition for each recipient


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    recipients: int = 20_000
    lists: int = 1  # among which they are divided, a message each, all due at once
    archived: int = 0  # messages that were sent before
    suppressed: int = 0  # other addresses on the suppression list
    attributes: int = 1  # of each recipient; the first is the name, which every mail contains
    beside: bool = False  # a small message becomes due while the others go out
    fan_out_first: bool = False  # senders start when it is done
    senders: int = 1
    lanes: int = 4
    window: int = 8
    chunking: bool = True
    pipelining: bool = True
    delay_ms: float = 0.0
    storage: str = ""  # as POSTROOM_STORAGE; empty: a new SQLite file
    transport: Way = Way.SMTP
    tempfail_share: float = 0.0  # of the recipients, whom the sink refuses at first
    tls: bool = False
    mail_bytes: int = 4096
    written_as: WrittenAs = WrittenAs.HTML
    attachment_bytes: int = 0  # of one file attached to the message; 0: none
    limit: float = 0.0  # mails a second, of the transport
    domain_limit: float = 0.0  # mails a second, of the domain that everybody is at
    traces: str = "info"  # as POSTROOM_TRACE_LEVEL
    baselines: bool = True  # also measure what others do with the same sink

    @property
    def connections(self) -> int:
        return self.senders * self.lanes

    @property
    def mails(self) -> int:
        return self.recipients + (SMALL_PEOPLE if self.beside else 0)

    def list_sizes(self) -> list[int]:
        """How many people each list has: evenly, and together all of them."""
        shares = [self.recipients * number // self.lists for number in range(self.lists + 1)]
        return [end - start for start, end in pairwise(shares)]

    def check(self) -> None:
        """BadInput if what is asked for does not go together."""
        if self.fan_out_first and self.archived:
            raise BadInput("Nobody fills the archive with --fan-out-first: leave --archived out.")
        if self.lists > self.recipients:
            raise BadInput("There are more lists than recipients: every list needs one.")
        if self.lists > 1 and self.tempfail_share:
            raise BadInput("--tempfail-share is for one list: leave --lists out.")
        if self.attachment_bytes and self.tls and self.baselines:
            raise BadInput("Sockets without TLS are no measure: add --no-baselines.")
        if self.attachment_bytes and not self.chunking and self.baselines:
            raise BadInput("The raw sockets use BDAT: add --no-baselines, or leave --chunking.")
        needs_sink = self.tls or self.tempfail_share or self.delay_ms or self.beside
        if self.transport is Way.OUTBOX and needs_sink:
            raise BadInput(
                "The outbox has no line: leave --tls, --tempfail-share, --delay-ms "
                "and --beside out."
            )
