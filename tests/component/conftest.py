"""An empty folder with `postroom` in it, and one with a list."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.component.typed import Postroom, postroom_typed


@pytest.fixture
def postroom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Postroom]:
    """`postroom …` within this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTROOM_LOG_LEVEL", "error")
    # A role lowers its priority: with ours, all tests after it would wait for a busy machine.
    monkeypatch.setattr(os, "nice", lambda _increment: 0)
    logs = structlog.get_config()
    yield postroom_typed(capsys)
    structlog.configure(**logs)


@pytest.fixture
def contoso1(postroom: Postroom) -> Postroom:
    assert postroom("list", "create", "contoso1", "--from", "news@contoso.edu").code == 0
    return postroom
