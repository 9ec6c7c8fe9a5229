"""How many mails a lane has on the wire: more where the server takes long to answer.

What is on the wire is in doubt when a sender is killed, so it is no more than keeps the line busy:
a mail that waits 20 ms for its answer wants company, one that waits 0.2 ms does not.
"""

from __future__ import annotations

from postroom.transport.smtp.config import SmtpConfig

SLOW_S = 0.005  # even the quickest answer took longer: it is the server, not a hiccup
SLICES = 3  # so many in a row must say so: a machine that stood still is no slow server
IDLE_BELOW = 0.7  # of this thread: busier than this, more mails on the wire would not help


class Window:
    """Grows and shrinks between what the settings say; starts from one again after trouble."""

    def __init__(self, config: SmtpConfig) -> None:
        self.mails = self._least = config.window
        self._most = max(config.window, config.window_max)
        self._slow_slices = 0

    def start_over(self) -> None:
        """A connection was of no use: the next one risks a single mail until it has answered."""
        self.mails = 1
        self._slow_slices = 0

    def learn(self, quickest_s: float, busy: float) -> None:
        """From one slice: the quickest answer, and the share of its time that we were at work."""
        if self.mails < self._least:
            self.mails = min(self.mails * 2, self._least)
            return
        is_slow = quickest_s > SLOW_S and busy < IDLE_BELOW
        self._slow_slices = self._slow_slices + 1 if is_slow else 0
        if self._slow_slices == SLICES:
            self._slow_slices = 0
            self.mails = min(self.mails * 2, self._most)
        elif quickest_s < SLOW_S / 2:
            self.mails = max(self.mails // 2, self._least)
