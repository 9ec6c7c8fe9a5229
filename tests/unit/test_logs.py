"""What a terminal shows of a failure: where it was, and no value of anything."""

from __future__ import annotations

import io
import sys

import pytest
import structlog

from postroom import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_traceback_on_a_terminal_shows_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    kept = structlog.get_config()
    logs.configure("info")
    address = "@".join(["ada", "contoso.edu"])  # not in the source as it stands
    try:
        raise KeyError("nothing")
    except KeyError:
        structlog.get_logger("scheduler").exception("message_stuck", ref="1")
    finally:
        structlog.configure(**kept)
    assert "message_stuck" in terminal.getvalue()
    assert "KeyError" in terminal.getvalue()
    assert address not in terminal.getvalue()
