"""A thread for parsing what people wrote, so that the event loop goes on answering meanwhile.

A body of two megabytes takes up to two seconds. The parsers are linear in its size, and none of
their calls into C takes longer than a tenth of a second, so the event loop gets its turn. One body
at a time: Python runs one thread at a time anyway, and with two the loop waits twice as long. The
others wait, and give up with the request that brought them.
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


async def in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """The result of `work`, done in our thread, in the language of whoever waits for it."""
    context = contextvars.copy_context()
    call = partial(context.run, work, *args, **named)
    return await asyncio.get_running_loop().run_in_executor(_thread, call)
