"""A thread for parsing bodies, so that the event loop stays responsive.

A body of two megabytes takes up to two seconds. The parsers are linear in its size, and none of
their calls into C takes longer than a tenth of a second, so the event loop keeps running. Bodies
are parsed one at a time, because Python runs one thread at a time anyway, and with two the loop
would wait twice as long. The others wait, and are dropped if their request is cancelled.
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
    """Run `work` in the thread, with the language of the caller, and return its result."""
    context = contextvars.copy_context()
    call = partial(context.run, work, *args, **named)
    return await asyncio.get_running_loop().run_in_executor(_thread, call)
