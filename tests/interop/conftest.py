"""One Postfix for all tests of this folder. Run them by `./dev interop`."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator

import pytest
import trustme

from tests.interop.postfix import Postfix, running_postfix


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
async def postfix(ca: trustme.CA) -> AsyncIterator[Postfix]:
    if os.geteuid() != 0 or not shutil.which("postfix"):
        pytest.fail("These tests start a Postfix as root: run them by ./dev interop")
    async with running_postfix(ca) as running:
        yield running
