"""What all tests share: quiet logs, ports that stay free."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import structlog

from tests.ports import held_port

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture(scope="session")
def unused_tcp_port_factory() -> Iterator[Callable[[], int]]:
    """In place of that of pytest-asyncio, which lets its ports go before anybody listens."""
    with ExitStack() as held:
        yield lambda: held.enter_context(held_port())
