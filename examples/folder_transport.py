"""A transport of your own: every mail becomes a file, NAME.eml, in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from postroom.domain.outcome import Deferred, Outcome, Scope, Sent, Untried
from postroom.transport.port import HandOverWatch, OutgoingMail, new_lane_id


class FolderLane:
    def __init__(self, folder: Path) -> None:
        self.id = new_lane_id()
        self._folder = folder

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        return [self._send(mail, watch) for mail in mails]

    def _send(self, mail: OutgoingMail, watch: HandOverWatch) -> Outcome:
        outcome: Outcome = Untried("stopping")
        if watch.may_hand_over():
            watch.handing_over([mail.position])
            outcome = self._write(mail)
        watch.answered({mail.position: outcome})
        return outcome

    def _write(self, mail: OutgoingMail) -> Outcome:
        try:
            path = self._folder / f"{mail.token}.eml"  # the same file at every attempt
            path.write_bytes(mail.spliced(eight_bit=True).source)
        except OSError as error:
            return Deferred(str(error.strerror), Scope.PROVIDER, reached=False)
        return Sent(f"written to {path.name}")

    async def close(self) -> None:
        return


class FolderTransport:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lane(self) -> FolderLane:
        return FolderLane(self._folder)

    async def close(self) -> None:
        return
