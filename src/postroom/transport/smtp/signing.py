"""Signs the mails of a slice before they are sent, in threads: an RSA signature takes 0.3 ms.

A signed mail is sent as 7bit, even to a server with 8BITMIME: a later server without it would
encode the mail again and break the signature (RFC 6376 5.3).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from postroom.mail.rendition import SplicedMail
from postroom.transport.smtp.slice import Slice

THREADS_MAX = 4  # a sender runs on every core anyway, and one thread fills a core
SIGNED_BYTES_MAX = 4 * 1024**2  # of sources kept for one lane; a slice of newsletters has 0.4
MAILS_PER_TASK = 8  # long enough to hide the hop to a thread, short enough to share out a slice


class Sign(Protocol):
    """From the source of a mail, and the tail that follows it, to the header lines in front."""

    def __call__(self, source: bytes, tail: bytes = b"", /) -> bytes: ...


class SliceSigner:
    """The threads in which all lanes of a transport sign."""

    def __init__(self, sign: Sign, bytes_max: int = SIGNED_BYTES_MAX) -> None:
        self._sign = sign
        self._bytes_max = bytes_max
        threads = min(os.cpu_count() or 1, THREADS_MAX)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dkim")

    async def sign_waiting(self, slice_: Slice) -> None:
        """Sign the first waiting mails, as many as may be kept, unless they already are."""
        signed = slice_.signed = {} if slice_.signed is None else slice_.signed
        if slice_.waiting[0] in signed:
            return
        indexes: list[int] = []
        sources: list[tuple[bytes, bytes]] = []  # without and with only the shared tail
        size = sum(each.size - len(each.tail) for each in signed.values())
        for index in slice_.waiting:
            if index in signed:
                continue
            spliced = slice_.mails[index].spliced(eight_bit=False)
            source = b"".join(spliced.parts)
            size += len(source)
            if indexes and size > self._bytes_max:
                break
            indexes.append(index)
            sources.append((source, spliced.tail))
        signed.update(zip(indexes, await self._sign_all(sources), strict=True))

    async def _sign_all(self, sources: Sequence[tuple[bytes, bytes]]) -> list[SplicedMail]:
        loop = asyncio.get_running_loop()
        tasks = [
            loop.run_in_executor(self._pool, self._sign_some, sources[at : at + MAILS_PER_TASK])
            for at in range(0, len(sources), MAILS_PER_TASK)
        ]
        return [mail for task in await asyncio.gather(*tasks) for mail in task]

    def _sign_some(self, sources: Sequence[tuple[bytes, bytes]]) -> list[SplicedMail]:
        return [SplicedMail.of(self._sign(source, tail) + source, tail) for source, tail in sources]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
