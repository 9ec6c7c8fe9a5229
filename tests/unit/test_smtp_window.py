"""A slow server has more mails on the wire, a quick one no more than it needs."""

from __future__ import annotations

import pytest

from postroom.transport.smtp_config import SmtpConfig, Tls
from postroom.transport.smtp_window import SLOW_S, Window

QUICK, SLOW = SLOW_S / 10, SLOW_S * 4
WAITING, BUSY = 0.1, 0.95


@pytest.fixture
def window() -> Window:
    return Window(SmtpConfig("127.0.0.1", 25, Tls.NONE, window=8, window_max=32))


def test_it_grows_while_the_server_lets_us_wait_and_has_an_end(window: Window) -> None:
    sizes = []
    for _ in range(4):
        window.learn(SLOW, WAITING)
        sizes.append(window.mails)
    assert sizes == [16, 32, 32, 32]


def test_it_does_not_grow_while_we_are_the_slow_ones(window: Window) -> None:
    window.learn(SLOW, BUSY)
    assert window.mails == 8


def test_it_shrinks_when_the_server_is_quick_again(window: Window) -> None:
    window.learn(SLOW, WAITING)
    window.learn(SLOW_S * 0.9, WAITING)  # neither slow nor quick: as it is
    assert window.mails == 16
    window.learn(QUICK, WAITING)
    window.learn(QUICK, WAITING)
    assert window.mails == 8


def test_without_leave_to_grow_it_stays() -> None:
    window = Window(SmtpConfig("127.0.0.1", 25, Tls.NONE, window=8))
    window.learn(SLOW, WAITING)
    assert window.mails == 8
