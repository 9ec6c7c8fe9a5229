"""A slow server has more mails on the wire, a quick one no more than it needs."""

from __future__ import annotations

import pytest

from postroom.domain.tls import Tls
from postroom.transport.smtp.config import SmtpConfig
from postroom.transport.smtp.window import SLICES, SLOW_S, Window

QUICK, SLOW = SLOW_S / 10, SLOW_S * 4
WAITING, BUSY = 0.1, 0.95


@pytest.fixture
def window() -> Window:
    return Window(SmtpConfig("127.0.0.1", 25, Tls.NONE, window=8, window_max=32))


def learn_often(window: Window, quickest_s: float, busy: float) -> int:
    """The size after as many slices as it takes to grow once."""
    for _ in range(SLICES):
        window.learn(quickest_s, busy)
    return window.mails


def test_it_grows_while_the_server_lets_us_wait_and_has_an_end(window: Window) -> None:
    assert [learn_often(window, SLOW, WAITING) for _ in range(3)] == [16, 32, 32]


def test_a_moment_in_which_the_machine_stood_still_is_no_slow_server(window: Window) -> None:
    for _ in range(SLICES):
        for _ in range(SLICES - 1):
            window.learn(SLOW, WAITING)
        window.learn(SLOW_S * 0.9, WAITING)
    assert window.mails == 8


def test_it_does_not_grow_while_we_are_the_slow_ones(window: Window) -> None:
    assert learn_often(window, SLOW, BUSY) == 8


def test_it_shrinks_when_the_server_is_quick_again(window: Window) -> None:
    learn_often(window, SLOW, WAITING)
    window.learn(SLOW_S * 0.9, WAITING)  # neither slow nor quick: as it is
    assert window.mails == 16
    window.learn(QUICK, WAITING)
    window.learn(QUICK, WAITING)
    assert window.mails == 8


def test_without_leave_to_grow_it_stays() -> None:
    window = Window(SmtpConfig("127.0.0.1", 25, Tls.NONE, window=8))
    assert learn_often(window, SLOW, WAITING) == 8
