"""The command line: `postroom …`. Commands parse their arguments and call use cases and roles."""

from __future__ import annotations

from postroom.cli.app import main, run

__all__ = ["main", "run"]
