"""An SMTP server for tests and measuring that does what the recipient's address says, and counts.

    temp-fail…@      450 4.2.0 to RCPT            drop-at-rcpt…@    drops instead of answering RCPT
    perm-fail…@      550 5.1.1 to RCPT            drop-in-data…@    drops in the middle of content
    full…@           452 4.2.2 to RCPT            drop-after-dot…@  takes it, drops unanswered
    rate…@           451 4.7.1 to RCPT            slow…@            takes it, answers on release
    policy…@         550 5.7.1 to the content     busy…@            421 4.3.2 to the content
    anything else    accepted

With `-once` behind the prefix (temp-fail-once7@…) only the first attempt for that address fails.
In a test: `async with Sink(SinkOptions(chunking=True)) as sink: ... sink.mails`. As a process:
`python -m postroom_bench.sink --port 0 --chunking` prints its port; the commands `XSTAT` (count,
unique, doubled), `XCOUNT` (count and octets, at once), `XDUMP path` (all as JSON, with the time
line) and `XRESET` ask it from outside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from postroom_bench.sink_dialogue import SCRIPTS, SinkConnection, SinkOptions

__all__ = ["Sink", "SinkOptions", "Taken"]

SAMPLE_S = 0.1  # between two points of the time line


class Taken(NamedTuple):
    """One mail the sink took."""

    recipient: str
    message_id: str
    content: bytes  # empty unless contents are kept
    sender: str


class Sink:
    """The server: its record, its options, its open connections."""

    def __init__(self, options: SinkOptions | None = None) -> None:
        self.options = options or SinkOptions()
        self.carriers = 0  # connections that brought a mail and are still open
        self.reset()
        self.commands: list[bytes] = []
        self.connections: set[SinkConnection] = set()
        self.connected = 0
        self.attempts: dict[bytes, int] = {}
        self.is_waiting = asyncio.Event()  # a slow…@ mail was taken and waits for release()
        self.is_empty = asyncio.Event()  # no connection is open
        self.port = 0
        self._server: asyncio.Server | None = None

    def reset(self) -> None:
        """Count from nothing."""
        self.carriers_most = self.carriers
        self.taken: list[tuple[bytes, bytes, bytes, bytes]] = []
        self.taken_bytes = 0
        self.last_at = 0.0  # by the monotonic clock, which all processes of a machine share
        self._timeline: list[tuple[float, int]] = []

    def take(
        self, recipient: bytes, message_id: bytes, content: bytes, sender: bytes, size: int
    ) -> None:
        self.taken.append((recipient, message_id, content, sender))
        self.taken_bytes += size
        self.last_at = time.monotonic()
        if not self._timeline or self.last_at - self._timeline[-1][0] >= SAMPLE_S:
            self._timeline.append((self.last_at, len(self.taken)))

    def count_carriers(self, change: int) -> None:
        self.carriers += change
        self.carriers_most = max(self.carriers_most, self.carriers)

    @property
    def mails(self) -> list[Taken]:
        return [
            Taken(recipient.decode(), message_id.decode(), content, sender.decode())
            for recipient, message_id, content, sender in self.taken
        ]

    async def start(self, port: int = 0) -> None:
        context = self.options.tls if self.options.implicit_tls else None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: SinkConnection(self), "127.0.0.1", port, ssl=context, backlog=1024
        )
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def serve(self) -> None:
        assert self._server is not None
        await self._server.serve_forever()

    def release(self) -> None:
        """Answer the slow…@ mails."""
        self.is_waiting.clear()
        for connection in list(self.connections):
            connection.release()

    async def drop_connections(self) -> None:
        """Close every connection, as a server does that was idle for too long."""
        for connection in list(self.connections):
            connection.abort()
        if self.connections:
            self.is_empty.clear()
            await self.is_empty.wait()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self.drop_connections()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def script(self, recipient: bytes) -> bytes:
        """What the address asks for; empty to accept."""
        if not recipient.startswith(SCRIPTS):
            return b""
        name = next(name for name in SCRIPTS if recipient.startswith(name))
        attempt = self.attempts[recipient] = self.attempts.get(recipient, 0) + 1
        once = recipient.startswith(name + b"-once")
        return b"" if once and attempt > 1 else name

    def offers(self, *, secure: bool) -> bytes:
        options = self.options
        lines = [
            (True, "sink"),
            (options.pipelining, "PIPELINING"),
            (options.chunking, "CHUNKING"),
            (options.eight_bit, "8BITMIME"),
            (options.utf8, "SMTPUTF8"),
            (bool(options.size_max), f"SIZE {options.size_max}"),
            (options.tls is not None and not secure, "STARTTLS"),
            (bool(options.users), f"AUTH {options.mechanisms}"),
            (True, "ENHANCEDSTATUSCODES"),
        ]
        words = [line for offered, line in lines if offered]
        return "".join(
            f"250{' ' if line is words[-1] else '-'}{line}\r\n" for line in words
        ).encode()

    def statistics(self) -> bytes:
        unique = len({mail[:2] for mail in self.taken})
        return b"250 %d %d %d\r\n" % (len(self.taken), unique, len(self.taken) - unique)

    def count(self) -> bytes:
        return b"250 %d %d\r\n" % (len(self.taken), self.taken_bytes)

    def timeline(self) -> list[tuple[float, int]]:
        """How many mails there were when; the first and the last mail have their points."""
        last = [(self.last_at, len(self.taken))] if self.taken else []
        return self._timeline + [point for point in last if point not in self._timeline[-1:]]

    def dump(self, path: str) -> None:
        record = {
            "mails": [[mail.recipient, mail.message_id] for mail in self.mails],
            "bytes": self.taken_bytes,
            "timeline": self.timeline(),
            "carriers": self.carriers_most,
        }
        Path(path).write_text(json.dumps(record), encoding="utf-8")


def parse_arguments() -> tuple[int, SinkOptions]:
    parser = argparse.ArgumentParser(prog="python -m postroom_bench.sink", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chunking", action="store_true")
    parser.add_argument("--no-pipelining", action="store_true")
    parser.add_argument("--no-8bitmime", action="store_true")
    parser.add_argument("--smtputf8", action="store_true")
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="ms before every reply")
    parser.add_argument("--slow", type=float, default=10.0, help="s until slow…@ is answered")
    parser.add_argument("--mails-per-connection", type=int, default=0)
    parser.add_argument("--greeting", default="220 sink ESMTP")
    parser.add_argument("--certificate", metavar="FILE", help="STARTTLS: key and certificate, PEM")
    parser.add_argument("--user", action="append", default=[], metavar="NAME:PASSWORD")
    given = parser.parse_args()
    return given.port, SinkOptions(
        pipelining=not given.no_pipelining,
        chunking=given.chunking,
        eight_bit=not given.no_8bitmime,
        utf8=given.smtputf8,
        size_max=given.size,
        delay_s=given.delay / 1000,
        slow_s=given.slow,
        mails_per_connection_max=given.mails_per_connection,
        greeting=given.greeting,
        users=dict(user.split(":", 1) for user in given.user),
        tls=_server_context(given.certificate) if given.certificate else None,
    )


def _server_context(certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


async def main() -> None:
    port, options = parse_arguments()
    sink = Sink(options)
    await sink.start(port)
    sys.stdout.write(f"{sink.port}\n")
    sys.stdout.flush()
    await sink.serve()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
