"""The nursery of `serve`: roles are forked from a process that has imported everything.

Modules take 40 to 60 MB in every process. Processes that are forked after the imports share those
memory pages until one writes to them: an idle `serve` needs 120 MB instead of 200 (PSS), and a
role starts in a tenth of the time.

`serve` forks the nursery before it opens anything, because no thread, event loop or SQLite file
survives a fork. The nursery only forks roles when the supervisor asks, and reports how they ended.
    the supervisor dies    the nursery reads end-of-file and exits; roles stop on their own
    the nursery dies       its roles keep running, watched by pidfds; new ones are started by exec
Needs pidfds (Linux). Elsewhere roles are started by exec.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

MESSAGE_BYTES_MAX = 64 * 1024
CODE_UNKNOWN = -1  # of a role whose nursery died first

Run = Callable[[str], int]  # runs a role until it ends; its exit code


class _StartRequest(msgspec.Struct, frozen=True):
    role: str
    environ: dict[str, str]


class _Started(msgspec.Struct, frozen=True, tag="started"):
    pid: int


class _Ended(msgspec.Struct, frozen=True, tag="ended"):
    pid: int
    code: int


_request = msgspec.json.Decoder(_StartRequest).decode
_report: msgspec.json.Decoder[_Started | _Ended] = msgspec.json.Decoder(_Started | _Ended)


class RoleProcess(Protocol):
    """What the supervisor needs of a process, however it was started."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, number: int, /) -> None: ...


def environ_with(overrides: Mapping[str, str]) -> dict[str, str]:
    """Our environment with these settings. Leaves out NAME_FILE, because a file would win."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name.removesuffix("_FILE") not in overrides
    }
    return inherited | dict(overrides)


def fork_nursery(run: Run) -> Nursery | None:
    """Fork the nursery; None where there are no pidfds. Call it before anything is opened."""
    if not hasattr(os, "pidfd_open"):
        return None
    gc.collect()
    gc.freeze()  # the collector would write to every object, and so copy every page
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() == 0:
        ours.close()
        _fork_on_request(theirs, run)
    theirs.close()
    return Nursery(ours)


# --- In the nursery ---------------------------------------------------------------------------


def _fork_on_request(supervisor: socket.socket, run: Run) -> None:
    """Fork roles until the supervisor is gone; never returns."""
    _rename("nursery")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the supervisor stops the roles
    ended, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    while True:
        readable = select.select([supervisor.fileno(), ended], [], [])[0]
        if ended in readable:
            os.read(ended, 4096)
            _report_ended(supervisor)
        if supervisor.fileno() in readable:
            _fork_one(supervisor, (supervisor.fileno(), ended, woken), run)


def _fork_one(supervisor: socket.socket, ours: Sequence[int], run: Run) -> None:
    """Fork the role that is asked for; it must not keep the files that are `ours`."""
    content, files, _flags, _address = socket.recv_fds(supervisor, MESSAGE_BYTES_MAX, 1)
    if not content:
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for file in ours:
            os.close(file)
        _become_role(_request(content), files[0], run)
    os.close(files[0])
    pidfd = os.pidfd_open(pid)  # it is ours to reap, so the number is still its own
    _send(supervisor, _Started(pid), [pidfd])
    os.close(pidfd)


def _report_ended(supervisor: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _send(supervisor, _Ended(pid, os.waitstatus_to_exitcode(status)), [])


def _send(supervisor: socket.socket, report: msgspec.Struct, files: list[int]) -> None:
    with contextlib.suppress(OSError):  # it is gone: we read that next
        socket.send_fds(supervisor, [msgspec.json.encode(report)], files)


def _become_role(request: _StartRequest, stdin: int, run: Run) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()  # Ctrl-C reaches only the supervisor
    os.dup2(stdin, 0)
    os.close(stdin)
    environ = environ_with(request.environ)
    os.environ.clear()
    os.environ.update(environ)
    _rename(request.role)
    code = 1
    try:
        code = run(request.role)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # not sys.exit, which would run the parent's exit handlers


def _rename(role: str) -> None:
    """Show people which process is which: they all have the command line of `serve`."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"pr:{role}", encoding="ascii")  # 15 characters


# --- In the supervisor ------------------------------------------------------------------------


class Nursery:
    """The supervisor's end."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._asked: list[asyncio.Future[ForkedRole]] = []
        self._roles: dict[int, ForkedRole] = {}
        self._is_watched = False
        self.is_alive = True

    async def start(self, role: str, environ: Mapping[str, str], stdin: int) -> RoleProcess:
        """Fork a role; OSError if the nursery is gone."""
        loop = asyncio.get_running_loop()
        if not self._is_watched:
            self._is_watched = True
            self._pipe.setblocking(False)
            loop.add_reader(self._pipe, self._read)
        request = msgspec.json.encode(_StartRequest(role, dict(environ)))
        socket.send_fds(self._pipe, [request], [stdin])
        started: asyncio.Future[ForkedRole] = loop.create_future()
        self._asked.append(started)
        return await started

    def close(self) -> None:
        if self._is_watched:
            asyncio.get_running_loop().remove_reader(self._pipe)
        self._pipe.close()

    def _read(self) -> None:
        try:
            content, files, _flags, _address = socket.recv_fds(self._pipe, MESSAGE_BYTES_MAX, 1)
        except BlockingIOError:
            return
        except OSError:
            content, files = b"", []
        if not content:
            self._give_up()
            return
        match _report.decode(content):
            case _Started(pid=pid):
                role = self._roles[pid] = ForkedRole(pid, files[0])
                self._asked.pop(0).set_result(role)
            case _Ended(pid=pid, code=code):
                self._roles.pop(pid).ended(code)

    def _give_up(self) -> None:
        self.is_alive = False
        asyncio.get_running_loop().remove_reader(self._pipe)
        for started in self._asked:
            started.set_exception(OSError("the nursery died"))
        for role in self._roles.values():
            role.watch_alone()


class ForkedRole:
    """A role that the nursery forked."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        return self._code.result() if self._code.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    def send_signal(self, number: int, /) -> None:
        if not self._code.done():
            signal.pidfd_send_signal(self._pidfd, signal.Signals(number))

    def ended(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)
            os.close(self._pidfd)

    def watch_alone(self) -> None:
        """Wait on the pidfd: the nursery is gone, so the exit code is unknown."""
        loop = asyncio.get_running_loop()

        def gone() -> None:
            loop.remove_reader(self._pidfd)
            self.ended(CODE_UNKNOWN)

        loop.add_reader(self._pidfd, gone)
