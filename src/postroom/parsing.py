"""Threads for parsing bodies and pictures, so that the event loop stays responsive.

A body of two megabytes takes up to two seconds. The parsers are linear in its size, and none of
their calls into C takes longer than a tenth of a second, so the event loop keeps running. Bodies
are parsed one at a time, because Python runs one thread at a time anyway, and with two the loop
would wait twice as long. The others wait, and are dropped if their request is cancelled.
Pictures have a separate thread, because one may take seconds. They are also processed one at a
time, because each may need some hundred megabytes.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

THREADS_MAX = 1
P = ParamSpec("P")
T = TypeVar("T")
_thread = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="parsing")
_picture_thread = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="pictures")


async def in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run `work` in the thread for bodies, with the language of the caller; return its result."""
    return await _run(_thread, partial(work, *args, **named))


async def in_picture_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """The same in the thread for pictures."""
    return await _run(_picture_thread, partial(work, *args, **named))


async def _run(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    call = partial(contextvars.copy_context().run, work)
    return await asyncio.get_running_loop().run_in_executor(thread, call)
