"""The mails of one send, and what became of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from postroom.domain.outcome import Deferred, Outcome, Scope, Unknown, Untried, clip
from postroom.domain.trouble import Fault
from postroom.transport.port import HandOverWatch, Mail

TRIES_MAX = 2  # connections that may break on a mail before it steps aside


class Slice:
    """The mails of one send and what became of each, over as many connections as it takes."""

    def __init__(
        self, mails: Sequence[Mail], watch: HandOverWatch, *, was_answered: bool = False
    ) -> None:
        self.mails = mails
        self.watch = watch
        self.outcomes: list[Outcome | None] = [None] * len(mails)
        self.waiting = deque(range(len(mails)))
        self.stopped = False
        self.answered = 0  # by the server: the sign that a connection is of use
        self.was_answered = was_answered  # lately, in slices before this one
        self._tries: dict[int, int] = {}

    @property
    def server_works(self) -> bool:
        return self.was_answered or self.answered > 0

    def settle(self, index: int, outcome: Outcome) -> None:
        self.outcomes[index] = outcome
        self.watch.answered(self.mails[index].position, outcome)

    def may_hand_over(self) -> bool:
        """Whether one more content may go out; the first no stops the slice."""
        if not self.stopped and not self.watch.may_hand_over():
            self.stopped = True
        return not self.stopped

    def doubt(self, index: int, words: str) -> None:
        """The line broke after the hand-over; a refusal known before stays what it was."""
        if self.outcomes[index] is None:
            self.settle(index, Unknown(clip(f"handed over, then {words}")))

    def contradict(self, index: int, words: str) -> None:
        """The server refused this mail, and then took its content all the same."""
        self.settle(index, Unknown(clip(f"refused, and then taken: {words}")))

    def put_back(self, index: int, words: str) -> None:
        """Try a mail again whose connection ended at it, before it could be taken.

        After the others: a recipient that makes the server close must not hold them up. If they
        went through and it happens again, it is about this recipient, and their attempt.
        """
        if self.outcomes[index] is not None:
            return
        tries = self._tries[index] = self._tries.get(index, 0) + 1
        if tries < TRIES_MAX:
            self.waiting.append(index)
            self.watch.returned((self.mails[index].position,))
        elif self.server_works:
            self.settle(index, Deferred(clip(words), Scope.ADDRESS))
        else:
            self.settle(index, Deferred(clip(words), Scope.PROVIDER, reached=False))

    def return_untried(self, index: int) -> None:
        """Try a mail again that was pipelined behind a 421: the server did not process it."""
        if self.outcomes[index] is None:
            self.waiting.appendleft(index)
            self.watch.returned((self.mails[index].position,))

    def defer_waiting(self, words: str, fault: Fault | None = None) -> None:
        outcome = Deferred(clip(words), Scope.PROVIDER, reached=False, fault=fault)
        while self.waiting:
            self.settle(self.waiting.popleft(), outcome)

    def leave_waiting(self) -> None:
        while self.waiting:
            self.settle(self.waiting.popleft(), Untried("stopped before the hand-over"))

    def total(self) -> list[Outcome]:
        """One outcome a mail; a gap is a mistake of ours, told as what is safe."""
        return [outcome or Unknown("no outcome was written down") for outcome in self.outcomes]
