"""A mail and a watch for tests of transports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from postroom.domain.address import parse_mailbox
from postroom.domain.outcome import Outcome
from postroom.mail.mime import CompiledMail, MailParts, compile_mail
from postroom.mail.rendition import SplicedMail

COMPILED = compile_mail(
    MailParts(
        sender=parse_mailbox("History Department <history@contoso.edu>"),
        subject="Lectures for {{ name | default('students') }}",
        html="<p>Dear {{ name | default('student') }}, the lecture is in room 7.</p>",
        list_id=("History", "history.lists.contoso.edu"),
    )
)
_LETTERS = str.maketrans("0123456789", "abcdefghij")  # tokens have no 0, 1, 8 and 9
BODY = b"Dear student,\r\n\r\nThe lecture is in room 7.\r\n"


@dataclass(frozen=True)
class Letter:
    """The smallest mail: what the port asks for and a Message-ID."""

    position: int
    recipient: str
    sender: str = "bounce@lists.contoso.edu"
    body: bytes = BODY
    body_eight_bit: bytes | None = None

    @property
    def token(self) -> str:
        return str(self.position).translate(_LETTERS).rjust(32, "a")

    @property
    def message_id(self) -> str:
        return f"<{self.position}@lists.contoso.edu>"

    @property
    def compiled(self) -> CompiledMail:
        return COMPILED

    @property
    def merge_values(self) -> Mapping[str, str]:
        return {
            "email": self.recipient,
            "name": f"<{self.recipient.partition('@')[0]}>",
            "unsubscribe_url": f"https://lists.contoso.edu/u/history/{self.position}",
        }

    @property
    def own_headers(self) -> list[tuple[str, str]]:
        unsubscribe = f"<{self.merge_values['unsubscribe_url']}>"
        return [("Message-ID", self.message_id), ("List-Unsubscribe", unsubscribe)]

    def source(self, *, eight_bit: bool) -> bytes:
        body = self.body
        if eight_bit and self.body_eight_bit is not None:
            body = self.body_eight_bit
        return b"Message-ID: %b\r\nSubject: Lectures\r\n\r\n%b" % (self.message_id.encode(), body)

    def spliced(self, *, eight_bit: bool) -> SplicedMail:
        return SplicedMail.of(self.source(eight_bit=eight_bit))


def letters(*recipients: str) -> list[Letter]:
    """One letter each; positions differ from indexes so that mixing them up shows."""
    return [Letter(10 + index, recipient) for index, recipient in enumerate(recipients)]


def many_letters(count: int) -> list[Letter]:
    return letters(*(f"student{number}@contoso.edu" for number in range(count)))


@dataclass
class Witness:
    """Remembers what it was told, and allows `leave` hand-overs."""

    leave: int = 1_000_000
    handed_over: list[int] = field(default_factory=list)
    answers: list[tuple[int, Outcome]] = field(default_factory=list)

    def may_hand_over(self) -> bool:
        self.leave -= 1
        return self.leave >= 0

    def handing_over(self, positions: Sequence[int]) -> None:
        self.handed_over += positions

    def returned(self, positions: Sequence[int]) -> None:
        self.handed_over = [at for at in self.handed_over if at not in positions]

    def answered(self, outcomes: Mapping[int, Outcome]) -> None:
        self.answers += outcomes.items()
