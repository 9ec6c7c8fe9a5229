"""The number of mails a lane may have unanswered: more if the server is slow to answer.

Unanswered mails are in doubt when a sender is killed, so there are only as many as it takes to keep
the connection busy: several help if an answer takes 20 ms, but not if it takes 0.2 ms.
"""

from __future__ import annotations

from postroom.transport.smtp.config import SmtpConfig

SLOW_S = 0.005  # if even the fastest answer took longer, the server is slow
SLICES = 3  # in a row must show it: a machine that stalled is not a slow server
IDLE_BELOW = 0.7  # share of time this thread works; if it is busier, a larger window does not help


class Window:
    """Grows and shrinks within the configured limits; restarts at one mail after trouble."""

    def __init__(self, config: SmtpConfig) -> None:
        self.mails = self._least = config.window
        self._most = max(config.window, config.window_max)
        self._slow_slices = 0

    def start_over(self) -> None:
        """After a connection without any answer, risk only one mail until it is answered."""
        self.mails = 1
        self._slow_slices = 0

    def learn(self, quickest_s: float, busy: float) -> None:
        """Learn from a slice: its fastest answer, and the share of its time that we worked."""
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
