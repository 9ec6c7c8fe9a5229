"""Bodies are parsed in one thread while the event loop keeps running."""

from __future__ import annotations

import asyncio
import threading

from postroom.domain.texts import ENGLISH, Language, language, speaking
from postroom.parsing import in_thread


async def test_the_event_loop_continues_while_a_body_is_parsed() -> None:
    is_parsed = threading.Event()
    parsing = asyncio.create_task(in_thread(is_parsed.wait))
    await asyncio.sleep(0)
    assert not parsing.done()
    is_parsed.set()
    assert await parsing


async def test_one_body_is_parsed_at_a_time() -> None:
    """Two would make the event loop wait twice as long."""
    at_once, most = 0, 0
    lock = threading.Lock()

    def parse() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        with lock:
            at_once -= 1

    await asyncio.gather(*(in_thread(parse) for _ in range(50)))
    assert most == 1


async def test_an_error_is_in_the_language_of_its_caller() -> None:
    other = Language("en-XA", ENGLISH.catalogue)
    with speaking(other):
        assert await in_thread(language) is other
    assert await in_thread(language) is ENGLISH
