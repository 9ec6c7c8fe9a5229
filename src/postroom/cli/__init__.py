"""The command line: `postroom …`. Commands parse their arguments and call use cases and roles."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import cast

if "structlog" not in sys.modules and "rich" not in sys.modules:
    # structlog imports rich if it can, for tracebacks that we do not write: 5 MB.
    sys.modules["rich"] = cast(ModuleType, None)
    import structlog  # noqa: F401

    del sys.modules["rich"]
from postroom.cli.app import main, run

__all__ = ["main", "run"]
