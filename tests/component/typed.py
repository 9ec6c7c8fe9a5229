"""`postroom …` typed within this process: what it printed, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from postroom.cli import run


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)


Postroom = Callable[..., Ran]


def postroom_typed(capsys: pytest.CaptureFixture[str]) -> Postroom:
    def typed(*arguments: str) -> Ran:
        code = run(arguments)
        return Ran(code, *capsys.readouterr())

    return typed
