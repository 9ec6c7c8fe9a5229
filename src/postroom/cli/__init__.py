"""The command line: `postroom …`. Commands only read what was typed and call flow and roles."""

from __future__ import annotations

from postroom.cli.app import main, run

__all__ = ["main", "run"]
