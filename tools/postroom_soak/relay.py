"""A relay between the senders and the sink: it passes on, answers slowly, or is dead."""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum
from types import TracebackType
from typing import Self

CHUNK_BYTES = 64 * 1024
SLOW_S = 0.2  # before each piece of an answer


class Mood(Enum):
    WELL = "well"
    SLOW = "slow"
    DEAD = "dead"  # connections are refused, and open ones are cut


class Relay:
    """Listens on a port of its own; `behave` changes what it does from now on."""

    def __init__(self, sink_port: int) -> None:
        self._sink_port = sink_port
        self._mood = Mood.WELL
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server:
            self._server.close()
        self._cut()

    def behave(self, mood: Mood) -> None:
        self._mood = mood
        if mood is Mood.DEAD:
            self._cut()

    def _cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mood is Mood.DEAD:
            writer.transport.abort()
            return
        try:
            sink_reader, sink_writer = await asyncio.open_connection("127.0.0.1", self._sink_port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, sink_writer}
        self._open |= pair
        try:
            await asyncio.gather(
                self._pass_on(reader, sink_writer, is_answer=False),
                self._pass_on(sink_reader, writer, is_answer=True),
            )
        finally:
            self._open -= pair
            for each in pair:
                each.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while chunk := await reader.read(CHUNK_BYTES):
                if is_answer and self._mood is Mood.SLOW:
                    await asyncio.sleep(SLOW_S)
                writer.write(chunk)
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()
