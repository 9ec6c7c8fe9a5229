"""The mails of one send call, and the outcome of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from postroom.domain.outcome import Deferred, Outcome, Scope, Sent, Unknown, Untried, clip
from postroom.domain.trouble import Fault
from postroom.mail.rendition import SplicedMail
from postroom.transport.port import HandOverWatch, OutgoingMail

TRIES_MAX = 2  # connections that may break on a mail before it is deferred


class Slice:
    """The mails of one send call and their outcomes, over as many connections as needed."""

    def __init__(
        self, mails: Sequence[OutgoingMail], watch: HandOverWatch, *, was_answered: bool = False
    ) -> None:
        self.mails = mails
        self.watch = watch
        self.outcomes: list[Outcome | None] = [None] * len(mails)
        self.waiting = deque(range(len(mails)))
        self.stopped = False
        self.answered = 0  # by the server, which shows that a connection works
        self.was_answered = was_answered  # recently, in an earlier slice
        self._tries: dict[int, int] = {}
        # Signed mails by index, if mails are signed: then only a mail that is here may be sent.
        # None if they are not.
        self.signed: dict[int, SplicedMail] | None = None

    @property
    def has_next(self) -> bool:
        """Whether the first of the waiting mails can be sent now."""
        if not self.waiting or self.stopped:
            return False
        return self.signed is None or self.waiting[0] in self.signed

    def take_next(self) -> tuple[int, SplicedMail | None]:
        """Return the first of the waiting mails, and its signed form if mails are signed."""
        index = self.waiting.popleft()
        return index, None if self.signed is None else self.signed.pop(index)

    def settle(self, index: int, outcome: Outcome) -> None:
        self.outcomes[index] = outcome
        self.watch.answered({self.mails[index].position: outcome})

    def accept(self, accepted: Mapping[int, Sent]) -> None:
        """Settle mails that the server accepted in one read; none of them has an outcome yet."""
        self.answered += len(accepted)
        for index, outcome in accepted.items():
            self.outcomes[index] = outcome
        mails = self.mails
        self.watch.answered({mails[index].position: end for index, end in accepted.items()})

    def may_hand_over(self) -> bool:
        """Return whether one more content may be sent; the first False stops the slice."""
        if not self.stopped and not self.watch.may_hand_over():
            self.stopped = True
        return not self.stopped

    def doubt(self, index: int, words: str) -> None:
        """The connection broke after the hand-over; an earlier refusal stays as it is."""
        if self.outcomes[index] is None:
            self.settle(index, Unknown(clip(f"handed over, then {words}")))

    def contradict(self, index: int, words: str) -> None:
        """The server refused this mail and then accepted its content."""
        self.settle(index, Unknown(clip(f"refused, and then accepted: {words}")))

    def put_back(self, index: int, words: str) -> None:
        """Requeue a mail whose connection ended before the server could accept it.

        It goes last, because a recipient that makes the server close must not delay the others. If
        those are accepted and it happens again, this recipient is the cause: it is an attempt.
        """
        if self.outcomes[index] is not None:
            return
        tries = self._tries[index] = self._tries.get(index, 0) + 1
        if tries < TRIES_MAX:
            self.waiting.append(index)
            self.watch.returned((self.mails[index].position,))
        elif self.was_answered or self.answered:  # the server works
            self.settle(index, Deferred(clip(words), Scope.ADDRESS))
        else:
            self.settle(index, Deferred(clip(words), Scope.PROVIDER, reached=False))

    def return_untried(self, index: int) -> None:
        """Requeue a mail that was pipelined after a 421, because the server did not process it."""
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
        """One outcome per mail; a missing one is a bug, and Unknown is the safe answer."""
        return [outcome or Unknown("no outcome was recorded") for outcome in self.outcomes]
