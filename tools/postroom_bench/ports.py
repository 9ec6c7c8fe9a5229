"""Ports of this machine for servers that are yet to start, or to start again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """A port that nobody else is given meanwhile.

    One that was only looked up may be another process's before the server listens, or one end of
    any connection. A socket that is bound and does not listen keeps both away, and still lets in
    a server with SO_REUSEADDR, as ours are and Node's.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
