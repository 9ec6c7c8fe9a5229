"""What all tests share: quiet logs, cheap passwords, fixed examples, ports that stay free."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import argon2
import pytest
import structlog
from hypothesis import HealthCheck, settings

from postroom.actions import sign_in
from postroom_bench.ports import held_port

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

# A password costs 0.1 s of a core on purpose, and the tests hash hundreds of them.
PRODUCTION_HASHER = sign_in.hasher
sign_in.hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)

# A busy machine is no mistake of the code, and a run of the same code ends as the last one did.
# `./dev test tests --hypothesis-profile=elsewhere` looks at other examples, every time anew.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("elsewhere", UNHURRIED, derandomize=False)
settings.register_profile("same", UNHURRIED, derandomize=True)
settings.load_profile("same")


@pytest.fixture(scope="session")
def unused_tcp_port_factory() -> Iterator[Callable[[], int]]:
    """In place of that of pytest-asyncio, which lets its ports go before anybody listens."""
    with ExitStack() as held:
        yield lambda: held.enter_context(held_port())
