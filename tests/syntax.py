"""Reading source for the tests of the rules."""

from __future__ import annotations

import ast
import gc


def parse(text: str) -> ast.Module:
    """Without the collector: Python 3.11 cannot parse while it parses.

    A finalizer that runs in the middle and prints a traceback does, and what we get is a
    SystemError about a recursion depth (fixed in Python 3.12).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if was_on:
            gc.enable()
