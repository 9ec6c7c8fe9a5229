"""One suite for every engine: the next one is one more line in engines.py."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from postroom.storage.port import BLOB_NAMES_MAX, Blobs, Queues, Storage, Tables
from tests.clock import MovableClock
from tests.contract.engines import BLOB_PAGE_NAMES, ENGINES, FILES


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(short_s=math.inf)


@pytest_asyncio.fixture(params=ENGINES)
async def storage(request: pytest.FixtureRequest, clock: MovableClock) -> AsyncIterator[Storage]:
    with TemporaryDirectory(dir=FILES) as folder:
        async with ENGINES[request.param](clock, Path(folder)) as opened:
            yield opened


@pytest.fixture
def tables(storage: Storage) -> Tables:
    return storage.tables


@pytest.fixture
def queues(storage: Storage) -> Queues:
    return storage.queues


@pytest.fixture
def blobs(storage: Storage) -> Blobs:
    return storage.blobs


@pytest.fixture
def blob_page_names(request: pytest.FixtureRequest) -> int:
    """How many names a page of the engine has at most."""
    engine = request.node.callspec.params["storage"]
    return BLOB_PAGE_NAMES.get(engine, BLOB_NAMES_MAX)
