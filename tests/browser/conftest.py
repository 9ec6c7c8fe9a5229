"""What journeys start from: one Chromium and one running site a test process, a page each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.browser.chromium import Troubles, running_browser, watched_page
from tests.browser.running_site import RunningSite, running_site


@pytest_asyncio.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest_asyncio.fixture(scope="session")
async def site(
    tmp_path_factory: pytest.TempPathFactory, unused_tcp_port_factory: Callable[[], int]
) -> AsyncIterator[RunningSite]:
    async with running_site(tmp_path_factory.mktemp("site"), unused_tcp_port_factory()) as site:
        yield site


@pytest.fixture
def troubles() -> Troubles:
    """Of this test's pages: `troubles.expect("404")` before a trouble that belongs to it."""
    return Troubles()


@pytest_asyncio.fixture
async def page(browser: Browser, troubles: Troubles) -> AsyncIterator[Page]:
    async with watched_page(browser, troubles) as page:
        yield page


@pytest_asyncio.fixture
async def page_without_script(browser: Browser, troubles: Troubles) -> AsyncIterator[Page]:
    async with watched_page(browser, troubles, script=False) as page:
        yield page


@pytest_asyncio.fixture(params=[True, False], ids=["script", "no-script"])
async def any_page(
    browser: Browser, troubles: Troubles, request: pytest.FixtureRequest
) -> AsyncIterator[Page]:
    """For journeys that must go the same way with and without script."""
    async with watched_page(browser, troubles, script=request.param) as page:
        yield page
