"""What the tests of the web service share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.web.program import Program, open_program


@pytest_asyncio.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    """With the lists contoso1 and contoso2."""
    async with open_program(tmp_path, "contoso1", "contoso2") as opened:
        yield opened
