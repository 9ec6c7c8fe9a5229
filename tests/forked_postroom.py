"""`postroom` for documents with many commands: imported once, and forked for each command.

A command runs in a process, folder and environment of its own, as if it were typed; only the
half second of imports is saved. tests/process/test_cli.py starts the real program.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
READY = "ready"
CALL_BYTES_MAX = 100_000
# Hands its arguments, folder, environment and files over, and ends as the fork did.
# A shell begins it, for the path of Python may have a blank.
PROGRAM = """#!/bin/sh
'''exec' "{python}" -IS "$0" "$@"
' '''
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
    line.connect({address!r})
    call = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(line, [call], [0, 1, 2])
    sys.exit(int(line.recv(16)))
"""


@contextmanager
def forked_postroom() -> Iterator[Path]:
    """A folder for PATH whose `postroom` is a fork of a process that waits for calls."""
    with TemporaryDirectory(prefix="postroom-") as folder:
        address, program = str(Path(folder, "calls")), Path(folder, "postroom")
        program.write_text(PROGRAM.format(python=sys.executable, address=address), encoding="utf-8")
        program.chmod(0o755)
        words = [sys.executable, "-m", __name__, address]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout
                assert server.stdout.readline().strip() == READY
                yield Path(folder)
            finally:
                server.kill()


def serve(address: str) -> None:
    from postroom import wiring  # noqa: F401 - for the forks, which need not import it
    from postroom.cli import main

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        print(READY, flush=True)
        while True:
            line, _ = listener.accept()
            if not os.fork():
                listener.close()
                os._exit(answer(line, main))
            line.close()
            reap()


def reap() -> None:
    """Wait for the forks that have ended, so that their CPU time counts as ours."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def answer(line: socket.socket, main: Callable[[], None]) -> int:
    """Become what the caller is, run its command and tell it the exit code."""
    call, files, _, _ = socket.recv_fds(line, CALL_BYTES_MAX, 3)
    arguments, folder, environment = json.loads(call)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["postroom", *arguments]
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    sys.stdout.flush()
    sys.stderr.flush()
    line.send(str(code).encode())
    return code


if __name__ == "__main__":
    serve(sys.argv[1])
